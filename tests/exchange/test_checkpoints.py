"""Models of JoeyNMT and OpenNMT-py, imported: they write what the original code wrote (support/foreign_models.py)."""

import json
import pickle
import shutil
import warnings
from argparse import Namespace
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

from jumok.data import BOS
from jumok.data.sentencepiece_model import from_merges, make_tokenizer
from jumok.errors import DataError
from jumok.exchange.checkpoints import read_torch_checkpoint
from jumok.exchange.convert import import_model
from jumok.tasks import load
from jumok.tasks.translator import Translator
from support.commands import jumok, well

pytest.importorskip("yaml")

MODELS = Path(__file__).parent / "models"
FOLDERS = {path.name: path for path in sorted(MODELS.iterdir())}


def place(folder: Path) -> Path:
    return next(folder.glob("*.pt"), folder)


@pytest.mark.parametrize("name", FOLDERS)
def test_an_imported_model_writes_the_tokens_that_the_original_code_wrote(name: str, tmp_path: Path) -> None:
    import_model(place(FOLDERS[name]), tmp_path / "model")
    translator: Translator = load(tmp_path / "model", device="cpu")
    expected = json.loads((FOLDERS[name] / "expected.json").read_text())
    assert len(expected["outputs"]) == 3
    pieces = translator.trained.tokenizers.target.pieces
    is_word = translator.tokenizer.kind == "word"
    for text, wanted, scores in zip(expected["texts"], expected["outputs"], expected["scores"], strict=True):
        (output,) = translator.translate([text], beam=1, max_length=len(wanted), max_ratio=100.0)
        ours = [pieces[id].removeprefix("▁") if is_word else pieces[id] for id in output.pieces[0][1]]
        assert ours == [token for token in wanted if token != "</s>"], text
        found = log_probabilities(translator, text, output.pieces[0][1])
        exact = translator.trained.recipe.encoder.kind == "rnn"  # Transformers normalise with 1e-6, and ours with 1e-5
        assert found == pytest.approx(scores[: len(found)], abs=2e-5 if exact else 2e-3)
    together = translator.translate(expected["texts"], beam=3)
    alone = [translator.translate([text], beam=3)[0] for text in expected["texts"]]
    assert [output.text for output in together] == [output.text for output in alone]


@pytest.mark.parametrize("name", [name for name in FOLDERS if name.startswith("opennmt")])
def test_ctranslate2_runs_transformers_of_opennmt_whose_encoders_do_not_read_the_end(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    import_model(place(FOLDERS[name]), tmp_path / "model")
    translator: Translator = load(tmp_path / "model", device="cpu")
    texts = json.loads((FOLDERS[name] / "expected.json").read_text())["texts"]
    settings = {"beam": 1, "max_length": 30, "max_ratio": 100.0}
    ours, theirs = (translator.translate(texts, engine=engine, **settings) for engine in ("jumok", "ctranslate2"))
    assert "float32" in translator.engines.made
    assert [output.text for output in theirs] == [output.text for output in ours]
    assert [output.score for output in theirs] == pytest.approx([output.score for output in ours], abs=1e-4)


@torch.no_grad()
def log_probabilities(translator: Translator, text: str, ids: tuple[int, ...]) -> list[float]:
    source = torch.tensor([translator.trained.tokenizers.source.encode(text)[1:]])
    logits = translator.trained.model(source, torch.ones_like(source).bool(), torch.tensor([[BOS, *ids[:-1]]])).logits
    return logits[0].log_softmax(-1)[range(len(ids)), list(ids)].tolist()


def test_a_checkpoint_of_opennmt_with_a_sentencepiece_model_cuts_texts_itself(tmp_path: Path) -> None:
    checkpoint = place(FOLDERS["opennmt-plain"])
    vocabularies = read_torch_checkpoint(checkpoint)["vocab"]
    tokens = sorted({*vocabularies["src"], *vocabularies["tgt"]} - {"<blank>", "<s>", "</s>", "<unk>"})
    pieces = tmp_path / "fitting.model"
    pieces.write_bytes(make_tokenizer(from_merges([*tokens, "▁"], [], ""), [*tokens, "▁"]).model)
    said = well("import", checkpoint, "--tokenizer", pieces, "--out", tmp_path / "model").err
    assert load(tmp_path / "model", device="cpu").tokenizer.kind == "bpe"
    assert f"1 of {len(tokens) + 1} pieces" in said


def test_a_sentencepiece_model_of_another_model_is_refused(tmp_path: Path) -> None:
    pieces = MODELS / "joeynmt-pre" / "joint.model"
    done = jumok("import", place(FOLDERS["opennmt-plain"]), "--tokenizer", pieces, "--out", tmp_path / "model")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert all(word in done.err for word in ("joint.model", "%", "another model"))
    assert not (tmp_path / "model").exists()


class Malicious:
    """Its pickle would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.path,)


class Statistics:
    """An object of a class that jumok does not know."""

    def __init__(self) -> None:
        self.steps = 7


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"opt": Namespace(heads=2), "more": Malicious(tmp_path / "ran")}, path)
    with pytest.raises(DataError, match="without running its code"):
        import_model(path, tmp_path / "out")
    assert not (tmp_path / "ran").exists()
    torch.save({"opt": Namespace(heads=2), "more": Statistics()}, path)
    content = read_torch_checkpoint(path)
    assert content["opt"].heads == 2
    assert content["more"].steps == 7
    assert not isinstance(content["more"], Statistics)
    with pytest.raises(DataError, match="must have model, generator"):
        import_model(path, tmp_path / "out")
    path.write_bytes(pickle.dumps([1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match="damaged"):
            import_model(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "config.yaml").write_text("["), "config of JoeyNMT"),
        (lambda folder: (folder / "best.ckpt").unlink(), "no checkpoint"),
        (lambda folder: (folder / "best.ckpt").write_bytes(b"x"), "damaged"),
        (lambda folder: (folder / "src_vocab.txt").unlink(), "src_vocab.txt"),
        (lambda folder: (folder / "src_vocab.txt").write_text("a\nb\n"), "model"),
        (lambda folder: (folder / "joint.model").unlink(), "joint.model"),
        (lambda folder: half_recurrent(folder / "config.yaml"), "two Transformers or two recurrent networks"),
        (lambda folder: _replace(folder / "config.yaml", "level: bpe", "level: char"), "character-level"),
        (lambda folder: _replace(folder / "config.yaml", "hidden_size: 16", "width: 16"), "hidden_size"),
        (lambda folder: _replace(folder / "config.yaml", "beam_size: 4", "beam_size: x"), "'x'"),
    ],
)
def test_a_damaged_or_foreign_folder_is_refused_in_one_line(
    damage: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(MODELS / "joeynmt-pre", folder)
    damage(folder)
    with pytest.raises(DataError) as error:
        import_model(folder, tmp_path / "out")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def half_recurrent(path: Path) -> None:
    """A decoder of another kind than the encoder, which comes after it."""
    path.write_text(path.read_text().replace("type: transformer", "type: recurrent", 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("joeynmt-lstm", "init_hidden: zero", "init_hidden: last", ['init_hidden = "last"', "tanh(W h + b)", "zero"]),
        ("joeynmt-lstm", "attention: luong", "attention: dot", ['attention = "dot"']),
        ("joeynmt-gru", "rnn_type: gru", "rnn_type: sru", ['rnn_type = "sru"']),
        ("joeynmt-gru", "hidden_size: 16", "hidden_size: 17", ["hidden_size", "different models"]),
    ],
)
def test_a_recurrent_model_with_other_equations_is_refused(
    name: str, old: str, new: str, words: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    shutil.copytree(MODELS / name, folder)
    _replace(folder / "config.yaml", old, new)
    with pytest.raises(DataError) as error:
        import_model(folder, tmp_path / "out")
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_a_recurrent_model_of_opennmt_is_refused_with_the_reason(tmp_path: Path) -> None:
    content = torch.load(place(FOLDERS["opennmt-plain"]), weights_only=False)
    content["opt"].encoder_type, content["opt"].decoder_type = "brnn", "rnn"
    torch.save(content, tmp_path / "rnn.pt")
    with pytest.raises(DataError, match=r"type brnn .* only Transformers .* because .* tanh\(W h\)$"):
        import_model(tmp_path / "rnn.pt", tmp_path / "out")


def test_training_leaves_the_constants_that_stand_for_a_bias_alone(tmp_path: Path) -> None:
    for name in ("joeynmt-gru", "joeynmt-lstm"):
        model = import_model(FOLDERS[name], tmp_path / name).model
        source = torch.randint(4, 20, (3, 7))
        states = model.encoder(source, torch.ones_like(source).bool()).states
        constants = states[..., [states.shape[-1] // 2 - 1, -1]]
        assert constants.unique().numel() == 1
        model(source, torch.ones_like(source).bool(), source).logits.square().sum().backward()
        bias = model.encoder.forwards[0].rnn.bias_ih_l0.grad.unflatten(0, (-1, states.shape[-1] // 2))
        assert bias[:, -1].abs().max() < 1e-8
        assert bias[:, :-1].abs().max() > 1e-3


@pytest.mark.parametrize("scale", ["true", "false"])
def test_a_recurrent_model_stays_tied_where_its_embeddings_are_scaled(scale: str, tmp_path: Path) -> None:
    source, found, logits = torch.randint(4, 20, (3, 7)), [], []
    for embeddings, output in product(["true", "false"], repeat=2):
        folder = tmp_path / f"{embeddings}-{output}"
        shutil.copytree(FOLDERS["joeynmt-gru"], folder)
        _replace(folder / "config.yaml", "scale: true", f"scale: {scale}")
        _replace(folder / "config.yaml", "tied_embeddings: true", f"tied_embeddings: {embeddings}")
        _replace(folder / "config.yaml", "tied_softmax: true", f"tied_softmax: {output}")
        trained = import_model(folder, folder / "out")
        found.append(trained.recipe.decoder.tied)
        logits.append(trained.model(source, torch.ones_like(source).bool(), source).logits)
    assert found == (
        ["all", "embeddings", "output", "none"] if scale == "true" else ["embeddings", "embeddings", "none", "none"]
    )
    for other in logits[1:]:
        torch.testing.assert_close(logits[0], other)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_error_for_anything_else_names_what_is_read(tmp_path: Path) -> None:
    done = jumok("import", tmp_path, "--out", tmp_path / "out")
    assert done.code == 1
    assert all(name in done.err for name in ("marian", "m2m_100", "JoeyNMT", "OpenNMT-py"))
