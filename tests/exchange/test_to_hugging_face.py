"""Models exported for `transformers`: its classes load them and write the tokens that ours write."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.data import EOS, Tokenizer, TokenizerPair
from jumok.data.subwords import append_settings, settings_of
from jumok.data.symbols import symbol_pieces
from jumok.data.tokenizer import Symbols
from jumok.errors import ModelError
from jumok.exchange.to_hugging_face import export_model, why_not
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.translator import TrainedTranslator, Translator
from support.commands import jumok as command
from support.commands import well

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEXTS = ["three days ago", "5 hours and 20 minutes", "12  kg", "Monday, March 3"]
VARIANTS: list[dict[str, Any]] = [
    {"norm": "post", "tied": "all"},
    {"norm": "post", "tied": "output", "activation": "gelu"},
    {"norm": "pre", "tied": "all", "activation": "silu"},
    {"norm": "pre", "tied": "output"},
    {"norm": "pre", "tied": "none", "width": 60},
    {"norm": "pre", "tied": "embeddings"},
    {"norm": "pre", "tied": "all", "positions": "learned"},
    {"norm": "pre", "tied": "output", "positions": "learned", "activation": "gelu"},
]


def random_model(
    *, tied: str, tags: tuple[str, ...] = (), language: str = "", copy: bool = False, **settings: Any
) -> TrainedTranslator:
    """A small model with random weights and the vocabulary of the bundled one."""
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    tokenizers = tokenizers._replace(source=tokenizers.source.with_symbols(Symbols(tags)))
    if language:
        tokenizers = tokenizers._replace(target=speaking(tokenizers.target, language))
    if copy or tied in ("all", "embeddings"):
        tokenizers = TokenizerPair(tokenizers.source, tokenizers.source)
    side = {"kind": "transformer", "width": 64, "heads": 4, "hidden": 96, "layers": 2} | settings
    own = {"tied": tied, "heads": 2, "copy": copy}
    tables = {"data": {"corpus": "cldr"}, "encoder": side, "decoder": side | own}
    recipe = make_recipe(tables | {"filter": {"max_length": settings.get("longest", 257) - 1}})
    torch.manual_seed(0)
    model = TRANSLATION.build(recipe, tokenizers).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.15)
    return TrainedTranslator(model, recipe, tokenizers)


def speaking(tokenizer: Tokenizer, language: str) -> Tokenizer:
    """The tokenizer of a model of several languages, set to one."""
    model = tokenizer.model + symbol_pieces([f">>{language}<<"])
    return Tokenizer(append_settings(model, settings_of(tokenizer.model))).with_language(language)


@functools.lru_cache(1)
def opened(folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer that the classes of `transformers` find in a folder."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def written_by_transformers(folder: Path, text: str, *, beam: int, longest: int) -> tuple[list[str], str]:
    """The pieces that they write, and their text."""
    model, tokenizer = opened(folder)
    (ids,) = model.generate(**tokenizer([text], return_tensors="pt"), num_beams=beam, max_length=longest + 2)
    names = [tokenizer.decoder[int(id)] for id in ids]
    return [name for name in names[1:] if name not in ("<pad>", "</s>")], tokenizer.decode(
        ids, skip_special_tokens=True
    )


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: " ".join(map(str, settings.values())))
def test_transformers_writes_what_ours_writes(settings: dict[str, Any], tmp_path: Path) -> None:
    trained = random_model(**settings)
    export_model(trained, tmp_path)
    names = trained.tokenizers.target.pieces
    for beam in (1, 4):
        for text in TEXTS[:2]:
            (output,) = Translator(trained).translate([text], beam=beam, max_length=12)
            theirs, _ = written_by_transformers(tmp_path, text, beam=beam, longest=12)
            ours = [names[id] for id in output.pieces[0][1]]
            if beam == 1 or len(theirs) < 12:  # at the greatest length, transformers does not count the end
                assert ours[:12] == theirs[:12], text


def test_the_bundled_model_translates_the_same_in_transformers(tmp_path: Path) -> None:
    said = well("export", BUNDLED, "--to", "hf", "--out", tmp_path / "exported").err
    translator = jumok.load(device="cpu")
    for text in TEXTS:
        (output,) = translator.translate([text])
        pieces, decoded = written_by_transformers(
            tmp_path / "exported", text, beam=translator.decoding.beam, longest=60
        )
        names = translator.trained.tokenizers.target.pieces
        assert [names[id] for id in output.pieces[0][1]] == pieces, text
        assert decoded == output.text
    assert "ForConditionalGeneration" in said or "MarianMTModel" in said


def test_transformers_stops_where_the_positions_of_the_model_end(tmp_path: Path) -> None:
    trained = random_model(tied="all", norm="pre", positions="learned", longest=16)
    with torch.no_grad():
        trained.model.decoder.output.bias[EOS] = -1e4  # outputs that never end
    export_model(trained, tmp_path)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for beam in (1, 4):
        (ids,) = model.generate(**tokenizer(["three days ago"], return_tensors="pt"), num_beams=beam)
        (output,) = Translator(trained).translate(["three days ago"], beam=beam, max_ratio=100.0)
        assert len(output.pieces[0][1]) == 15
        assert len(ids) == 1 + 15 + 1


@pytest.mark.parametrize("tied", ["all", "output"])
def test_transformers_keeps_the_tags_of_a_text(tied: str, tmp_path: Path) -> None:
    trained = random_model(tied=tied, tags=("<b>", "<medical>"))
    export_model(trained, tmp_path)
    tokenizer, source = transformers.AutoTokenizer.from_pretrained(tmp_path), trained.tokenizers.source
    for text in ("<b> three days ago", "<medical> <b> 12  kg", "three <b> days", "three days ago", "<b>three"):
        assert tokenizer(text).input_ids == source.encode(text)[1:], text
    (output,) = Translator(trained).translate(["<b> three days ago"], beam=1, max_length=12)
    theirs, _ = written_by_transformers(tmp_path, "<b> three days ago", beam=1, longest=12)
    assert [trained.tokenizers.target.pieces[id] for id in output.pieces[0][1]][:12] == theirs[:12]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"positions": "rotary"}, "rotary"),
        ({"positions": "learned", "norm": "post"}, "learned"),
        ({"activation": "swiglu"}, "swiglu"),
        ({"key_heads": 2}, "key_heads"),
        ({"copy": True}, "decoder.copy = true"),
        ({"language": "de"}, "begin with a language, de"),
        ({"norm": "post", "tags": ("<b>",)}, "<b>"),
    ],
)
def test_a_model_that_no_class_of_transformers_is_is_refused(
    settings: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=word):
        export_model(random_model(tied="output", **settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_models_that_normalise_after_a_sublayer_are_marian_models(tmp_path: Path) -> None:
    assert why_not(random_model(tied="output", norm="pre")) is None
    with pytest.raises(
        ModelError, match=r"Marian's models are \"post\"; --to hf writes another class of transformers$"
    ):
        export_model(random_model(tied="output", norm="pre"), tmp_path, marian=True)
    assert export_model(random_model(tied="output", norm="post"), tmp_path, marian=True) == "MarianMTModel"
    done = command("export", BUNDLED, "--to", "marian-hf", "--out", tmp_path / "out")
    if done.code:
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("marian", [False, True])
def test_a_refusal_names_a_format_that_the_model_has(marian: bool, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"begin with a language, de, which MarianTokenizer leaves out; use --to ctranslate2 or --to onnx$",
    ):
        export_model(random_model(tied="output", norm="pre", language="de"), tmp_path, marian=marian)


def test_transformers_writes_no_more_than_learned_positions_allow(tmp_path: Path) -> None:
    export_model(random_model(tied="none", norm="pre", positions="learned", longest=16), tmp_path)
    model, tokenizer = opened(tmp_path)
    (ids,) = model.generate(**tokenizer(["three"], return_tensors="pt"), num_beams=1)
    assert model.generation_config.max_length == 17  # the last token is not read
    assert len(ids) <= 17
