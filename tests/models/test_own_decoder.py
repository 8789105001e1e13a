"""A decoder written from the docstring of `Decoder` alone trains, decodes, aligns and draws like the built-in ones."""

import random
from functools import cache

import pytest
import torch
from torch import nn

from jumok.analysis.alignment.aligner import Aligner
from jumok.analysis.alignment.head_choice import guided_head
from jumok.analysis.maps.model_map import map_of_translation
from jumok.attention import attend
from jumok.data import BOS, EOS, PAD, Batch, Pair, TokenizerConfig, TokenizerPair, pad
from jumok.decoding import DecodingConfig, Specials, beam_search
from jumok.errors import ArgumentError
from jumok.models import (
    Decoder,
    EncoderDecoder,
    Hidden,
    RnnEncoder,
    RnnEncoderConfig,
    SingleHeadWeights,
    TransformerDecoder,
    TransformerDecoderConfig,
)
from jumok.tasks import TRANSLATION
from jumok.tasks.recipes import TranslationTraining
from jumok.training import held_out_loss, train
from support.rnn_decoders import LOOKS, VOCABULARY, decoder, encoder_width, encoding, name, targets


class GruDecoder(Decoder):
    """A recurrent decoder with dot-product attention after its step."""

    def __init__(self, *, vocabulary: int, width: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.words = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(2 * width, vocabulary)

    def hidden(self, encoding, target_in):
        states, _ = self.gru(self.words(target_in), encoding.summary[None].contiguous())
        keys = encoding.states
        context, weights = attend(states, keys, keys, visible=encoding.visible[:, None])
        return Hidden(torch.cat([states, context], -1), attention=(SingleHeadWeights((weights,)),))

    def logits(self, hidden):
        return self.output(hidden.states)


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
CONFIG = TranslationTraining(
    steps=120,
    learning_rate=0.01,
    warmup=20,
    metric="loss",
    validate_every=120,
    guided_alignment=1.0,
    guided_shift=False,
)


def reversals(count: int, seed: int) -> list[Pair]:
    draws = random.Random(seed)
    sentences = [draws.choices(WORDS, k=draws.randint(2, 4)) for _ in range(count)]
    return [Pair(" ".join(words), " ".join(reversed(words))) for words in sentences]


class Reversals:
    """Batches of reversed sentences with the links between their words."""

    def __init__(self, tokenizers: TokenizerPair, *, steps: int, seed: int) -> None:
        self.tokenizers, self.count, self.seed = tokenizers, steps, seed

    def steps(self, epoch: int) -> int:
        return self.count

    def batch(self, epoch: int, step: int) -> Batch:
        pairs = reversals(32, seed=1000 * self.seed + step)
        source, visible = pad([self.tokenizers.source.encode(pair.source)[1:] for pair in pairs])
        target, _ = pad([self.tokenizers.target.encode(pair.target) for pair in pairs])
        lengths = visible.sum(1)[:, None, None] - 1
        rows, columns = torch.arange(target.shape[1] - 1)[:, None], torch.arange(source.shape[1])
        links = (rows + columns == lengths - 1) & (rows < lengths)
        return Batch(source, visible, target[:, :-1], target[:, 1:], target[:, 1:] != PAD, links)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[EncoderDecoder, TokenizerPair]:
    tokenizers = TokenizerPair.train(reversals(200, seed=1), TokenizerConfig(kind="word", shared=True))
    torch.manual_seed(0)
    size = tokenizers.source.size
    encoder = RnnEncoder(RnnEncoderConfig(width=32, embedding=32, dropout=0.0), vocabulary=size)
    model = EncoderDecoder(encoder, GruDecoder(vocabulary=size, width=32))
    held_out = Reversals(tokenizers, steps=2, seed=9)
    folder = tmp_path_factory.mktemp("run")
    batches = Reversals(tokenizers, steps=120, seed=1)
    train(
        model, batches, CONFIG, folder=folder, validate=lambda model: held_out_loss(model, held_out), task=TRANSLATION
    )
    return model.eval(), tokenizers


@cache
def unseen() -> list[Pair]:
    return reversals(20, seed=77)


@pytest.mark.slow
def test_it_trains_and_beam_search_finds_the_reversals(trained):
    model, tokenizers = trained
    source, visible = pad([tokenizers.source.encode(pair.source)[1:] for pair in unseen()])
    with torch.no_grad():
        encoding = model.encoder(source, visible)
    found = beam_search(model.decoder, encoding, Specials(pad=PAD, bos=BOS, eos=EOS), DecodingConfig(beam=4))
    outputs = [tokenizers.target.decode(hypotheses[0].ids) for hypotheses in found]
    right = sum(output == pair.target for output, pair in zip(outputs, unseen(), strict=True))
    assert right >= 18


@pytest.mark.slow
def test_guided_alignment_teaches_it_to_align(trained):
    model, tokenizers = trained
    head = guided_head(model, CONFIG.guide)
    words = right = 0
    for pair, links in zip(unseen(), Aligner(model, tokenizers, head).align(unseen()), strict=True):
        last = len(pair.source.split()) - 1
        words += last + 1
        right += len(links & {(last - place, place) for place in range(last + 1)})
    assert right >= 0.9 * words


def test_its_attention_is_drawn_as_a_map(trained):
    model, tokenizers = trained
    pair = unseen()[0]
    shown = map_of_translation(model, tokenizers, pair.source, tokenizers.target.encode(pair.target)[1:-1])
    assert shown.source == (*pair.source.split(), "</s>")
    assert shown.target == (*pair.target.split(), "</s>")
    torch.testing.assert_close(shown.weights.sum(-1), torch.ones(1, 1, len(shown.target)))


def test_attention_that_sees_the_whole_target_is_optional(trained):
    model, _ = trained
    ids = torch.ones(1, 1, dtype=torch.long)
    with pytest.raises(ArgumentError, match=r'GruDecoder has no .* set training.guided_context = "causal"'):
        model.decoder.informed_attention(model.encoder(ids, ids.bool()), ids, ids.bool(), layer=0)


def transformer_decoder(**settings) -> Decoder:
    torch.manual_seed(0)
    config = TransformerDecoderConfig(width=8, heads=2, hidden=8, layers=2, dropout=0.0, **settings)
    return TransformerDecoder(config, vocabulary=VOCABULARY, encoder_width=7).double()


DECODERS = {name(settings): (lambda settings=settings: decoder(**settings)) for settings in LOOKS}
DECODERS |= {"copying": lambda: decoder(attention="additive", copy=True), "transformer": transformer_decoder}
DECODERS |= {"transformer-copying": lambda: transformer_decoder(copy=True)}


@torch.no_grad()
@pytest.mark.parametrize("kind", DECODERS)
def test_the_default_steps_over_the_prefix_agree_with_those_a_decoder_writes_itself(kind):
    model = DECODERS[kind]()
    source = encoding(encoder_width({"attention": kind.partition("-")[0]}))
    tokens = targets()
    own, default = model.start(source, capacity=3), Decoder.start(model, source, capacity=3)
    for step, (parents, kept) in enumerate([([[0, 0]] * 3, [0, 1, 2]), ([[1, 0, 1]] * 3, [2, 0]), ([[2, 1]] * 2, [1])]):
        parents, kept = torch.tensor(parents), torch.tensor(kept)
        own, default = (state.reorder(parents).keep(kept) for state in (own, default))
        given = tokens[: len(kept), step : step + parents.shape[1]]
        wanted, own = model.advance(own, given)
        hidden, default = Decoder.advance(model, default, given)
        torch.testing.assert_close(model.logits(hidden), model.logits(wanted))
        for mine, other in zip(hidden.attention, wanted.attention, strict=True):
            torch.testing.assert_close(mine(), other())
            torch.testing.assert_close(mine(heads=[0], rows=[1]), other(heads=[0], rows=[1]))
