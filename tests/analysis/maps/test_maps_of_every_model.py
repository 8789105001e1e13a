"""A map made in one pass over a translation holds the very weights that beam search looked with, in every model."""

from dataclasses import dataclass, replace

import pytest
import torch

from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import BOS, EOS, PAD, Pair, TokenizerPair, pad
from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.images.scenes import scenes
from jumok.images.store import to_tensor
from jumok.models.encoder_decoder import Decoder, State
from jumok.tasks import CAPTIONING, TRANSLATION, make_recipe
from jumok.tasks.captioner import Captioner, TrainedCaptioner
from support.rnn_decoders import LOOKS, name

TEXTS = ["27 1828", "9", "31415 9"]
ATTENDING = [look for look in LOOKS if look["attention"] != "none"]
COPYING = [look | {"copy": True} for look in ATTENDING if look.get("reach", "global") == "global"]
RECURRENT = ATTENDING + COPYING
TRANSFORMERS = [
    {"norm": norm, "positions": positions}
    for norm in ("pre", "post")
    for positions in ("added", "concatenated", "learned", "rotary")
]


@dataclass(frozen=True, eq=False)
class Watched(State):
    """A state, and for each of its hypotheses the tokens it was given and the weights it looked with."""

    inner: State
    sentences: list[int]
    past: list[list[tuple[tuple[int, ...], list[torch.Tensor]]]]

    def reorder(self, parents):
        past = [[self.past[row][parent] for parent in line] for row, line in enumerate(parents.tolist())]
        return replace(self, inner=self.inner.reorder(parents), past=past)

    def keep(self, sentences):
        rows = sentences.tolist()
        sentences_left, past = [self.sentences[row] for row in rows], [self.past[row] for row in rows]
        return Watched(self.inner.keep(sentences), sentences_left, past)


class Watcher(Decoder):
    """Steps as a decoder does and remembers, for every hypothesis there ever was, where each step looked."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder, self.vocabulary, self.limit = decoder, decoder.vocabulary, decoder.limit
        self.looked: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def hidden(self, encoding, target_in):
        raise NotImplementedError

    def logits(self, hidden):
        raise NotImplementedError

    def start(self, encoding, *, capacity):
        count = len(encoding.states)
        return Watched(self.decoder.start(encoding, capacity=capacity), list(range(count)), [[((), [])]] * count)

    def step(self, state, tokens):
        with pytest.MonkeyPatch.context() as patch:
            caught, advance = [], self.decoder.advance
            patch.setattr(self.decoder, "advance", lambda *given: caught.append(advance(*given)) or caught[-1])
            log_probs, inner = self.decoder.step(state.inner, tokens)
        weights = torch.stack([layer() for layer in caught[0][0].attention], 1)  # sentence layer head beam source
        past = []
        for row, (line, given) in enumerate(zip(state.past, tokens.tolist(), strict=True)):
            grown = [
                ((*before, token), [*rows, weights[row, :, :, beam]])
                for beam, ((before, rows), token) in enumerate(zip(line, given, strict=True))
            ]
            self.looked |= {(state.sentences[row], said): torch.stack(rows, 2) for said, rows in grown}
            past.append(grown)
        return log_probs, replace(state, inner=inner, past=past)


@pytest.fixture(scope="module")
def tokenizers():
    recipe = make_recipe({"data": {"corpus": "reverse"}, "tokenizer": {"kind": "char"}})
    return TokenizerPair.train([Pair(f"{n} {n * 7}", str(n * 13)) for n in range(99)], recipe.tokenizer)


def check(encoder: dict, decoder: dict, tokenizers: TokenizerPair) -> None:
    recipe = make_recipe({"data": {"corpus": "reverse"}, "encoder": encoder, "decoder": decoder})
    model = TRANSLATION.new_model(recipe, tokenizers).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    source, visible = pad([tokenizers.source.encode(text)[1:] for text in TEXTS])
    watcher = Watcher(model.decoder)
    with torch.no_grad():
        config = DecodingConfig(beam=3, max_length=6, min_length=2)
        found = beam_search(watcher, model.encoder(source, visible), Specials(PAD, BOS, EOS), config)
    for sentence, (text, hypotheses) in enumerate(zip(TEXTS, found, strict=True)):
        assert hypotheses
        for hypothesis in hypotheses[:2]:
            shown = map_of_translation(model, tokenizers, text, hypothesis.ids, words=False)
            looked = watcher.looked[sentence, (BOS, *hypothesis.ids)][..., : len(shown.source)]
            torch.testing.assert_close(shown.weights, looked.float())


@pytest.mark.parametrize("settings", RECURRENT, ids=name)
def test_maps_of_recurrent_models_are_what_beam_search_saw(settings, tokenizers):
    half = {"kind": "rnn", "width": 8, "embedding": 6, "dropout": 0.0}
    window = {"half_window": 2} if settings.get("reach", "global") != "global" else {}
    check(half, half | window | settings, tokenizers)


@pytest.mark.parametrize("settings", TRANSFORMERS, ids=name)
def test_maps_of_transformers_are_what_beam_search_saw(settings, tokenizers):
    half = {"kind": "transformer", "width": 16, "heads": 2, "hidden": 16, "layers": 2, "dropout": 0.0} | settings
    half |= {"position_width": 6} if settings["positions"] == "concatenated" else {}
    check(half, half | {"tied": "none"}, tokenizers)


IMAGE_ENCODERS = {
    "grid": {"kind": "grid", "stem": "small", "blocks": [1, 1], "channels": 4, "width": 16, "dropout": 0.0},
    "patches": {"kind": "patches", "patch": 8, "width": 16, "heads": 2, "hidden": 16, "layers": 1, "dropout": 0.0},
}
CAPTION_DECODERS = {
    "rnn": {"kind": "rnn", "width": 8, "embedding": 6, "dropout": 0.0},
    "transformer": {"kind": "transformer", "width": 16, "heads": 2, "hidden": 16, "layers": 2, "dropout": 0.0},
}


@pytest.mark.parametrize("encoder", IMAGE_ENCODERS)
@pytest.mark.parametrize("decoder", CAPTION_DECODERS)
def test_maps_of_captioners_are_what_beam_search_saw(encoder, decoder, tokenizers):
    images = [scene.picture(32) for scene in scenes(2, split="test")]
    tables = {"images": {"scenes": "en", "size": 32}, "encoder": IMAGE_ENCODERS[encoder]}
    recipe = make_recipe(tables | {"decoder": CAPTION_DECODERS[decoder]})
    model = CAPTIONING.new_model(recipe, tokenizers.target).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    captioner, watcher = Captioner(TrainedCaptioner(model, recipe, tokenizers.target)), Watcher(model.decoder)
    with torch.no_grad():
        config = DecodingConfig(beam=3, max_length=6, min_length=2)
        found = beam_search(watcher, model.encoder(to_tensor(images)), Specials(PAD, BOS, EOS), config)
    for number, (image, hypotheses) in enumerate(zip(images, found, strict=True)):
        assert hypotheses
        for hypothesis in hypotheses[:2]:
            shown = captioner.map_of(image, hypothesis.ids, words=False)
            assert shown.weights.shape[-1] == shown.layout.rows * shown.layout.columns > 1
            looked = watcher.looked[number, (BOS, *hypothesis.ids)]  # the last step looked for where to end
            torch.testing.assert_close(shown.weights, looked[:, :, :-1], atol=1e-5, rtol=1e-4)
