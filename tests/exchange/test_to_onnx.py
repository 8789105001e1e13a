"""Models exported to ONNX: onnxruntime writes the tokens that ours write, for batches with padding, too."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import jumok
from jumok.data import TokenizerPair
from jumok.data.tokenizer import Symbols
from jumok.errors import ModelError
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.translator import TrainedTranslator, Translator
from support.commands import well

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from jumok.exchange.to_onnx import export_model, why_not  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = ["three days ago", "5 hours and 20 minutes", "12 kg", "Monday, March 3"]
STEPS = 12
TRANSFORMER = {"kind": "transformer", "width": 64, "heads": 4, "hidden": 96, "layers": 2}
RNN = {"kind": "rnn", "width": 48, "embedding": 32}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pre": (TRANSFORMER, TRANSFORMER | {"tied": "output"}),
    "post, learned, gelu": tuple(  # type: ignore[dict-item]
        TRANSFORMER | {"norm": "post", "positions": "learned", "activation": "gelu"} for _ in range(2)
    ),
    "rotary, swiglu, shared keys": tuple(  # type: ignore[dict-item]
        TRANSFORMER | {"positions": "rotary", "activation": "swiglu", "key_heads": 2} for _ in range(2)
    ),
    "concatenated, silu": (
        TRANSFORMER | {"positions": "concatenated", "activation": "silu"},
        TRANSFORMER | {"positions": "concatenated", "activation": "silu", "tied": "none"},
    ),
    "additive gru": (RNN, RNN),
    "two lstm layers, input feeding": (
        RNN | {"cell": "lstm", "layers": 2},
        RNN | {"cell": "lstm", "layers": 2, "attention": "general", "input_feeding": True},
    ),
    "concat, one direction": (
        RNN | {"bidirectional": False, "cell": "rnn"},
        RNN | {"attention": "concat", "cell": "rnn"},
    ),
    "coverage": (RNN | {"layers": 2}, RNN | {"coverage": True, "embedding": 48, "tied": "output"}),
    "fixed context": (RNN | {"cell": "lstm"}, RNN | {"attention": "none", "cell": "gru"}),
    "dot": (RNN, RNN | {"attention": "dot"}),
    "mixed": (TRANSFORMER, RNN),
    "mixed the other way": (RNN, TRANSFORMER),
}


def random_model(encoder: dict[str, Any], decoder: dict[str, Any], *, tags: tuple[str, ...] = ()) -> TrainedTranslator:
    """A small model with random weights and the vocabulary of the bundled one."""
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    tokenizers = tokenizers._replace(source=tokenizers.source.with_symbols(Symbols(tags)))
    if decoder.get("copy"):
        tokenizers = TokenizerPair(tokenizers.source, tokenizers.source)
    recipe = make_recipe({"data": {"corpus": "cldr"}, "encoder": encoder, "decoder": decoder})
    torch.manual_seed(0)
    model = TRANSLATION.build(recipe, tokenizers).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return TrainedTranslator(model, recipe, tokenizers)


def written_by_onnx(folder: Path, tokenizers: TokenizerPair, texts: list[str], steps: int) -> list[list[int]]:
    """Greedy outputs of the graphs, for all texts at once."""
    model = json.loads((folder / "model.json").read_text())
    encoder, decoder = (onnxruntime.InferenceSession(str(folder / f"{part}.onnx")) for part in ("encoder", "decoder"))
    ids = [tokenizers.source.encode(text)[1:] for text in texts]
    source = np.zeros((len(ids), max(map(len, ids))), np.int64)
    for row, tokens in zip(source, ids, strict=True):
        row[: len(tokens)] = tokens
    names = [output.name for output in encoder.get_outputs()]
    parts = dict(zip(names, encoder.run(None, {"source": source, "visible": source != model["pad"]}), strict=True))
    token, rows = np.full(len(ids), model["bos"]), list[np.ndarray]()
    for _ in range(steps):
        scores, *states = decoder.run(None, {"token": token, **parts})
        parts |= dict(zip(model["state"], states, strict=True))
        token = scores.argmax(-1)
        rows.append(token)
    return [_until_end(row, model["eos"]) for row in np.stack(rows, 1).tolist()]


def _until_end(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids


@pytest.mark.parametrize("name", VARIANTS)
def test_the_graphs_write_greedily_what_the_model_writes(name: str, tmp_path: Path) -> None:
    trained = random_model(*VARIANTS[name])
    export_model(trained, tmp_path)
    outputs = Translator(trained).translate(TEXTS, beam=1, max_length=STEPS)
    ours = [list(output.pieces[0][1]) for output in outputs]
    assert ours == written_by_onnx(tmp_path, trained.tokenizers, TEXTS, STEPS)


@pytest.mark.slow
def test_the_bundled_model_translates_the_same_with_onnxruntime(tmp_path: Path) -> None:
    well("export", BUNDLED, "--to", "onnx", "--out", tmp_path / "exported")
    translator = jumok.load(device="cpu")
    outputs = translator.translate(TEXTS, beam=1)
    theirs = written_by_onnx(tmp_path / "exported", translator.trained.tokenizers, TEXTS, 60)
    assert [list(output.pieces[0][1]) for output in outputs] == theirs


def test_the_description_gives_the_ids_of_symbols_and_languages(
    tmp_path: Path,
) -> None:
    trained = random_model(TRANSFORMER, TRANSFORMER, tags=("<b>",))
    export_model(trained, tmp_path)
    model = json.loads((tmp_path / "model.json").read_text())
    assert [model["symbols"]["<b>"]] == trained.tokenizers.source.encode("<b>")[1:-1]
    assert model["first"] is None
    assert model["source_first"] is None


def test_models_without_graphs_are_refused(tmp_path: Path) -> None:
    local = random_model(RNN, RNN | {"attention": "general", "reach": "local-m"})
    with pytest.raises(ModelError, match="reach"):
        export_model(local, tmp_path)
    assert "location" in str(why_not(random_model(RNN, RNN | {"attention": "location"})))
    for decoder in (RNN, TRANSFORMER):
        copying = random_model(TRANSFORMER, decoder | {"copy": True})
        assert why_not(copying) == "decoder.copy = true has no ONNX graph"
