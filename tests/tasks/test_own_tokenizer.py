"""A sentencepiece model of the user's own, tokenizer.model, in a run: trained, used, resumed and trained further."""

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

import jumok
from jumok.data.sentencepiece_model import read_tokenizer
from jumok.errors import ConfigError, DataError
from jumok.model_folder import BUNDLED
from jumok.models.weights import weights_of

PAIRS = [("a red apple", "빨간 사과"), ("two green pears", "초록 배 두 개"), ("a blue sky", "파란 하늘")]
HALF = {"kind": "rnn", "width": 16, "embedding": 8}


def own_model(folder: Path, kind: str = "unigram", **options: Any) -> Path:
    """A model file that the sentencepiece package trained, with other ids of special tokens than ours."""
    written, path = io.BytesIO(), folder / f"{kind}.model"
    texts = [text for pair in PAIRS for text in pair]
    options = {
        "vocab_size": 45,
        "hard_vocab_limit": False,
        "bos_id": -1,
        "pad_id": -1,
        "unk_id": 0,
        "eos_id": 1,
    } | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, model_type=kind, minloglevel=5, **options
    )
    path.write_bytes(written.getvalue())
    return path


def recipe(folder: Path, model: Path | str, **training: Any) -> dict[str, Any]:
    """A few steps on a few pairs."""
    files = {}
    for side, key in enumerate(["source", "target"]):
        (folder / key).write_text("".join(f"{pair[side]}\n" for pair in PAIRS * 10), encoding="utf-8")
        files |= {key: str(folder / key), f"valid_{key}": str(folder / key)}
    settings = {"steps": 4, "warmup": 1, "validate_every": 2, "metric": "loss", "learning_rate": 1e-2}
    return {
        "data": files,
        "tokenizer": {"model": str(model)},
        "filter": {"duplicates": False},
        **({} if "start_from" in training else {"encoder": HALF, "decoder": HALF}),
        "training": settings | training,
    }


def train(tables: dict[str, Any], out: Path, **options: Any) -> Any:
    return jumok.train(tables, out=out, device="cpu", draw=False, **options)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_texts_are_cut_as_the_sentencepiece_package_cuts_them(tmp_path: Path, kind: str) -> None:
    path = own_model(tmp_path, kind, user_defined_symbols=["<br>"])
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = read_tokenizer(path)
    assert tokenizer.pieces[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert len(set(tokenizer.pieces)) == tokenizer.size == theirs.get_piece_size() + 2  # <pad> and <s>
    for text in ("two  red apples", "ｂｌｕｅ<br>sky", "빨간 하늘", ""):
        assert [tokenizer.pieces[id] for id in tokenizer.encode(text)[1:-1]] == theirs.encode(text, out_type=str)
        assert tokenizer.decode(tokenizer.encode(text)) == theirs.decode(theirs.encode(text))


@pytest.mark.slow
def test_a_model_trained_with_it_holds_it_translates_and_resumes_exactly(tmp_path: Path) -> None:
    path = own_model(tmp_path, "bpe")
    whole = train(recipe(tmp_path, path, steps=8), tmp_path / "whole")
    train(recipe(tmp_path, path), tmp_path / "parts")
    train(recipe(tmp_path, path, steps=6), tmp_path / "parts", resume=True)
    options = {"overrides": {"training.steps": 8}, "device": "cpu", "draw": False}
    parts = jumok.train(tmp_path / "parts", resume=True, **options)
    after = weights_of(parts.model.trained.model)
    assert all(torch.equal(weight, after[name]) for name, weight in weights_of(whole.model.trained.model).items())
    (wanted,) = whole.model.translate(["a red sky"])
    pieces = read_tokenizer(path).pieces
    path.unlink()  # the model folder has a copy
    loaded = jumok.load(tmp_path / "whole", device="cpu")
    assert loaded.trained.tokenizers.shared
    assert loaded.trained.tokenizers.source.pieces == pieces
    assert (loaded.trained.recipe.tokenizer.kind, loaded.trained.recipe.tokenizer.size) == ("bpe", len(pieces))
    assert loaded.translate(["a red sky"])[0].text == wanted.text
    train(recipe(tmp_path, "", start_from=str(tmp_path / "whole")), tmp_path / "further")


@pytest.mark.slow
def test_a_resumed_run_needs_the_same_tokenizer(tmp_path: Path) -> None:
    train(recipe(tmp_path, own_model(tmp_path)), tmp_path / "run")
    other = own_model(tmp_path, "bpe")
    with pytest.raises(ConfigError, match="was prepared from other"):
        train(recipe(tmp_path, other, steps=8), tmp_path / "run", resume=True)


@pytest.mark.slow
def test_a_model_trained_further_takes_a_tokenizer_of_the_same_size_only(tmp_path: Path) -> None:
    path = own_model(tmp_path)
    start = train(recipe(tmp_path, path), tmp_path / "start")
    size = start.model.trained.tokenizers.source.size
    further = train(recipe(tmp_path, path, start_from=str(tmp_path / "start")), tmp_path / "further")
    assert further.model.trained.tokenizers.source.pieces == start.model.trained.tokenizers.source.pieces
    bundled = jumok.load(BUNDLED, device="cpu").trained.tokenizers.source.size
    message = f"the model in {BUNDLED} has {bundled:,} tokens, but tokenizer.model = {path} has {size}"
    with pytest.raises(ConfigError, match=message):
        train(recipe(tmp_path, path, start_from=str(BUNDLED)), tmp_path / "refused")


def test_a_file_that_is_no_sentencepiece_model_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.model").write_text("not a model", encoding="utf-8")
    for name, message in (("text.model", "is not a sentencepiece model"), ("none.model", "none.model")):
        with pytest.raises(DataError, match=message) as error:
            train(recipe(tmp_path, tmp_path / name), tmp_path / "run")
        assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="only sentencepiece models of type unigram and bpe"):
        read_tokenizer(own_model(tmp_path, "char"))


def test_settings_that_a_given_tokenizer_leaves_without_effect_are_refused(tmp_path: Path) -> None:
    tables = recipe(tmp_path, own_model(tmp_path, "bpe"))
    for name, value in (("shared", False), ("coverage", 0.99), ("source_form", "nfkc")):
        with pytest.raises(ConfigError, match=rf"tokenizer.{name} = .* has no effect with tokenizer.model"):
            train(tables | {"tokenizer": tables["tokenizer"] | {name: value}}, tmp_path / "run")
    with pytest.raises(ConfigError, match="sampling = 5"):
        train(tables | {"tokenizer": tables["tokenizer"] | {"sampling": 5.0}}, tmp_path / "run")
