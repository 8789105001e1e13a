"""Models exported to CTranslate2: the engine writes the tokens that ours writes."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.data import TokenizerPair
from jumok.decoding.ctranslate2_model import write_model
from jumok.errors import ModelError
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.translator import TrainedTranslator, Translator
from support.commands import jumok as command
from support.commands import well

ctranslate2 = pytest.importorskip("ctranslate2")

TEXTS = ["three days ago", "5 hours and 20 minutes", "12 kg", "Monday, March 3"]
VARIANTS: list[dict[str, Any]] = [
    {"norm": "pre", "positions": "added", "activation": "relu"},
    {"norm": "post", "positions": "added", "activation": "silu"},
    {"norm": "pre", "positions": "learned", "activation": "gelu"},
    {"norm": "pre", "positions": "rotary", "activation": "swiglu"},
    {"norm": "pre", "positions": "rotary", "activation": "relu", "key_heads": 2},
]


def random_model(*, copy: bool = False, **settings: Any) -> TrainedTranslator:
    """A small model with random weights and the vocabulary of the bundled one."""
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    if copy:
        tokenizers = TokenizerPair(tokenizers.source, tokenizers.source)
    side = {"kind": "transformer", "width": 64, "heads": 4, "hidden": 96, "layers": 2} | settings
    tied = "none" if settings["positions"] == "concatenated" else "output"
    tables = {"data": {"corpus": "cldr"}, "encoder": side, "decoder": side | {"tied": tied, "copy": copy}}
    recipe = make_recipe(tables)
    torch.manual_seed(0)
    model = TRANSLATION.build(recipe, tokenizers).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return TrainedTranslator(model, recipe, tokenizers)


def written_by_engine(folder: Path, trained: TrainedTranslator, text: str, *, steps: int, beam: int = 1) -> list[str]:
    source = trained.tokenizers.source
    engine = ctranslate2.Translator(str(folder), compute_type="float32")
    pieces = [source.pieces[id] for id in source.encode(text)[1:]]
    (result,) = engine.translate_batch([pieces], beam_size=beam, max_decoding_length=steps, patience=4)
    return list(result.hypotheses[0])


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: " ".join(map(str, settings.values())))
def test_an_exported_model_writes_greedily_what_ours_writes(settings: dict[str, Any], tmp_path: Path) -> None:
    trained = random_model(**settings)
    write_model(trained.model, trained.tokenizers, tmp_path)
    for text in TEXTS:
        (output,) = Translator(trained).translate([text], beam=1, max_length=12)
        ours = [trained.tokenizers.target.pieces[id] for id in output.pieces[0][1]]
        assert ours == written_by_engine(tmp_path, trained, text, steps=12), text


def test_the_bundled_model_translates_the_same_on_ctranslate2_with_beam_search(tmp_path: Path) -> None:
    translator = jumok.load(device="cpu")
    well("export", jumok.model_folder.BUNDLED, "--out", tmp_path / "exported")
    for text in TEXTS:
        (output,) = translator.translate([text], beam=5)
        pieces = written_by_engine(tmp_path / "exported", translator.trained, text, steps=50, beam=5)
        names = translator.trained.tokenizers.target.pieces
        assert [names[id] for id in output.pieces[0][1]] == pieces, text


@pytest.mark.parametrize("setting", [{"positions": "concatenated"}, {"positions": "added", "copy": True}], ids=str)
def test_a_model_that_ctranslate2_cannot_run_is_refused(setting: dict[str, Any], tmp_path: Path) -> None:
    trained = random_model(**setting)
    with pytest.raises(ModelError, match=list(setting)[-1]):
        write_model(trained.model, trained.tokenizers, tmp_path)


@pytest.mark.slow
def test_an_export_has_the_tokenizers_and_in_int8_the_shortlist(tmp_path: Path) -> None:
    model = shutil.copytree(jumok.model_folder.BUNDLED, tmp_path / "model")
    texts = tmp_path / "texts"
    texts.write_text("".join(f"{number} days ago\n" for number in range(9, 99)), encoding="utf-8")
    well("shortlist", model, "--source", texts)
    well("export", model, "--out", tmp_path / "int8", "--quantization", "int8")
    assert (tmp_path / "int8/tokenizer.model").read_bytes() == (model / "tokenizer.model").read_bytes()
    assert (tmp_path / "int8/vmap.txt").read_bytes() == (model / "shortlist.txt").read_bytes()
    engine = ctranslate2.Translator(str(tmp_path / "int8"), compute_type="int8")
    trained = jumok.load(device="cpu").trained
    source = [trained.tokenizers.source.pieces[id] for id in trained.tokenizers.source.encode("12 days ago")[1:]]
    (result,) = engine.translate_batch([source], use_vmap=True)
    ids = [trained.tokenizers.target.pieces.index(piece) for piece in result.hypotheses[0]]
    assert trained.tokenizers.target.decode(ids) == "12일 전"
    well("export", model, "--out", tmp_path / "float32")
    assert not (tmp_path / "float32/vmap.txt").exists()


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    done = command("export", jumok.model_folder.BUNDLED, "--out", tmp_path)
    assert done.code == 1
    assert "not empty" in done.err
