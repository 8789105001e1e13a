"""Training that starts from another model: its vocabulary, its shape and its weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.errors import ConfigError, DataError, ModelError
from jumok.model_folder import BUNDLED, recipe_tables
from jumok.models.weights import read_tensors, weights_of
from jumok.tasks import TRANSLATION
from jumok.tasks.fine_tuning import with_start


def recipe(tmp_path: Path, **training: Any) -> dict[str, Any]:
    """A few steps on a few pairs of a new domain."""
    pairs = [("a red apple", "빨간 사과"), ("two green pears", "초록 배 두 개"), ("a blue sky", "파란 하늘")] * 10
    for side, name in enumerate(["new.en", "new.ko"]):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    files = {"source": str(tmp_path / "new.en"), "target": str(tmp_path / "new.ko")}
    held = {"valid_source": files["source"], "valid_target": files["target"]}
    settings = {"steps": 4, "warmup": 1, "validate_every": 4, "metric": "loss", "start_from": str(BUNDLED)}
    return {"data": files | held, "filter": {"duplicates": False}, "training": settings | training}


def test_a_model_starts_with_the_weights_and_the_vocabulary_of_another(tmp_path: Path) -> None:
    tables = recipe(tmp_path, learning_rate=1e-9)
    run = jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    start = jumok.load(BUNDLED, device="cpu").trained
    assert run.model.trained.tokenizers.source.pieces == start.tokenizers.source.pieces
    after = weights_of(run.model.trained.model)
    for name, weight in weights_of(start.model).items():
        torch.testing.assert_close(after[name], weight, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_training_from_another_model_learns_the_new_text_and_resumes_exactly(tmp_path: Path) -> None:
    tables = recipe(tmp_path, learning_rate=3e-3, steps=8, validate_every=2)
    whole = jumok.train(tables, out=tmp_path / "whole", device="cpu", draw=False)
    first = recipe(tmp_path, learning_rate=3e-3, steps=4, validate_every=2)
    jumok.train(first, out=tmp_path / "parts", device="cpu", draw=False)
    parts = jumok.train(tables, out=tmp_path / "parts", resume=True, device="cpu", draw=False)
    assert whole.metrics["loss"] == parts.metrics["loss"]
    start = jumok.train(recipe(tmp_path, learning_rate=1e-9), out=tmp_path / "start", device="cpu", draw=False)
    assert whole.metrics["loss"] < start.metrics["loss"]


@pytest.mark.slow
def test_attention_is_guided_in_a_model_that_starts_from_another(tmp_path: Path) -> None:
    links = ["1-0 2-1", "1-0 2-1 0-2 0-3", "1-0 2-1"]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in links * 10), encoding="utf-8")
    tables = recipe(tmp_path, learning_rate=3e-3, steps=30, validate_every=30, guided_alignment=1.0)
    tables["data"]["alignments"] = str(tmp_path / "links")
    jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    pairs = [("a red apple", "빨간 사과"), ("two green pears", "초록 배 두 개"), ("a blue sky", "파란 하늘")]
    wanted = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in links]

    def found(model: Path) -> int:
        aligned = jumok.align(pairs, model, device="cpu")
        return sum(len(one.links & right) for one, right in zip(aligned, wanted, strict=True))

    assert found(tmp_path / "run") == 8
    assert found(BUNDLED) < 8


def test_frozen_parts_keep_their_weights(tmp_path: Path) -> None:
    tables = recipe(tmp_path, learning_rate=1e-2, freeze=["encoder"])
    jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    before, after = (read_tensors(folder / "model.safetensors") for folder in (BUNDLED, tmp_path / "run"))
    for name, weight in after.items():
        if name.startswith("encoder."):
            torch.testing.assert_close(weight, before[name].to(weight.dtype), atol=0, rtol=0)
    assert any(not torch.equal(after[name], before[name].to(after[name].dtype)) for name in after)


@pytest.mark.slow
def test_a_table_that_encoder_and_decoder_share_is_frozen_with_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = recipe(tmp_path, learning_rate=1e-2, freeze=["decoder"])
    jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    wanted = 'training.freeze = ["decoder"] also freezes encoder.tokens.embedding.table: the weights are shared'
    assert wanted in capsys.readouterr().err
    before, after = (weights_of(jumok.load(at, device="cpu").trained.model) for at in (BUNDLED, tmp_path / "run"))
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed
    assert all(name.startswith(("encoder.layers.", "encoder.norm.")) for name in changed)


def test_a_part_that_is_not_there_cannot_be_frozen(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"names no weights .* are encoder, decoder, encoder.tokens, encoder.layers, "
    ):
        jumok.train(recipe(tmp_path, freeze=["lm_head"]), out=tmp_path / "run", device="cpu", draw=False)
    assert not (tmp_path / "run" / "data").exists()  # refused before the text is tokenised


def test_settings_that_its_weights_do_not_fit_are_refused_before_the_text_is_tokenised(tmp_path: Path) -> None:
    for name, size in (("encoder", "hidden"), ("encoder", "layers"), ("encoder", "width"), ("decoder", "width")):
        tables = recipe(tmp_path) | {name: {size: 32}}
        with pytest.raises(ConfigError, match=rf"^{name}\.{size} is fixed by training.start_from: .* leave it out$"):
            jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    with pytest.raises(DataError, match=r"model.safetensors .*; leave out the settings of \[encoder\]"):
        jumok.train(recipe(tmp_path) | {"decoder": {"tied": "none"}}, out=tmp_path / "run", device="cpu", draw=False)
    assert not (tmp_path / "run" / "data").exists()


def test_the_model_to_start_from_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = TRANSLATION.load
    monkeypatch.setattr(type(TRANSLATION), "load", lambda _, *given, **how: loaded.append(given) or load(*given, **how))
    jumok.train(recipe(tmp_path), out=tmp_path / "run", device="cpu", draw=False)
    assert loaded == [(str(BUNDLED),)]


def test_settings_of_a_tokenizer_that_is_kept_are_refused_unless_they_are_its_own(tmp_path: Path) -> None:
    tables = recipe(tmp_path, learning_rate=1e-9)
    for setting, value in (("size", 5000), ("lowercase", True), ("unsplit", ["%s"])):
        with pytest.raises(ConfigError, match=rf"^tokenizer\.{setting} = .* has no effect.*leave out one of them$"):
            jumok.train(tables | {"tokenizer": {setting: value}}, out=tmp_path / "no", device="cpu", draw=False)
    assert not (tmp_path / "no").exists()
    own = recipe_tables(BUNDLED)["tokenizer"] | {"sampling": 0.0, "unsplit": []}
    jumok.train(tables | {"tokenizer": own}, out=tmp_path / "run", device="cpu", draw=False)


def test_unknown_text_is_not_blamed_on_settings_of_a_vocabulary_that_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = recipe(tmp_path)
    (tmp_path / "new.en").write_text("Добрый день\n" * 30, encoding="utf-8")
    jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    said = capsys.readouterr().err
    assert "are unknown to the vocabulary, which training.start_from or tokenizer.model gives" in said
    assert "raise tokenizer" not in said


@pytest.mark.slow
@pytest.mark.parametrize("freeze", ["encoder", "encoder.tokens", "encoder.tokens.embedding.table", "decoder"])
def test_a_new_tag_needs_an_embedding_that_learns(tmp_path: Path, freeze: str) -> None:
    tables = recipe(tmp_path, freeze=[freeze], learning_rate=1e-2)
    tables["data"] |= {"tag": "<fruit>"}
    with pytest.raises(ConfigError, match=rf"<fruit> is new .* freeze {freeze[:7]}.layers .*instead$"):
        jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    assert not (tmp_path / "run" / "data").exists()
    tables["training"]["freeze"] = ["encoder.layers"]
    first = jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
    assert first.model.tags == ["<fruit>"]
    tables["training"] |= {"freeze": [freeze], "start_from": str(tmp_path / "run")}  # the tag is known now
    jumok.train(tables, out=tmp_path / "further", device="cpu", draw=False)


def test_the_advice_to_freeze_other_parts_names_only_parts_with_weights(tmp_path: Path) -> None:
    half = {"kind": "rnn", "width": 8, "embedding": 8}
    tables = recipe(tmp_path, start_from="") | {"encoder": half, "decoder": half, "tokenizer": {"kind": "char"}}
    jumok.train(tables, out=tmp_path / "rnn", device="cpu", draw=False)
    further = recipe(tmp_path, start_from=str(tmp_path / "rnn"), freeze=["encoder"])
    further["data"] |= {"tag": "<fruit>"}
    with pytest.raises(ConfigError, match=r"; freeze encoder.forwards and encoder.backwards instead$"):
        jumok.train(further, out=tmp_path / "run", device="cpu", draw=False)
    further["training"]["freeze"] = ["encoder.forwards", "encoder.backwards"]
    assert jumok.train(further, out=tmp_path / "run", device="cpu", draw=False).model.tags == ["<fruit>"]


def test_pairs_that_are_longer_than_the_positions_of_the_model_are_left_out(tmp_path: Path) -> None:
    half = {
        "kind": "transformer",
        "width": 8,
        "heads": 1,
        "layers": 1,
        "hidden": 8,
        "positions": "learned",
        "longest": 9,
    }
    tables = recipe(tmp_path, start_from="")
    parts = {"tokenizer": {"kind": "word"}, "encoder": half, "decoder": half}
    filters = {"filter": tables["filter"] | {"max_length": 8}}
    jumok.train(tables | parts | filters, out=tmp_path / "start", device="cpu", draw=False)
    further = recipe(tmp_path, start_from=str(tmp_path / "start"))
    run = jumok.train(further, out=tmp_path / "run", device="cpu", draw=False)
    assert run.model.trained.recipe.filter.max_length == 8
    with pytest.raises(ConfigError, match=r"filter.max_length = 8$"):
        jumok.train(further | {"filter": {"max_length": 20}}, out=tmp_path / "longer", device="cpu", draw=False)


@pytest.mark.slow
def test_fine_tuning_on_short_texts_does_not_lower_the_longest_source(tmp_path: Path) -> None:
    run = jumok.train(recipe(tmp_path), out=tmp_path / "run", device="cpu", draw=False)
    start = jumok.load(BUNDLED, device="cpu")
    assert run.model.longest == start.longest > 10
    chosen = jumok.train(recipe(tmp_path) | {"decoding": {"max_source": 9}}, out=tmp_path / "chosen", device="cpu")
    assert chosen.model.longest == 9


@pytest.mark.slow
def test_decoding_settings_of_the_model_to_start_from_are_kept_unless_the_recipe_has_its_own(tmp_path: Path) -> None:
    first = jumok.train(
        recipe(tmp_path) | {"decoding": {"beam": 3, "max_length": 40}}, out=tmp_path / "one", device="cpu"
    )
    tables = recipe(tmp_path, start_from=str(first.folder)) | {"decoding": {"max_length": 30}}
    further = jumok.train(tables, out=tmp_path / "other", device="cpu")
    assert (further.model.decoding.beam, further.model.decoding.max_length) == (3, 30)


def test_a_recipe_for_beam_search_may_start_from_a_model_that_samples() -> None:
    started = {"kind": "rnn"}
    saved = {"beam": 3, "samples": 5, "temperature": 0.7, "seed": 4}
    tables = {"training": {"start_from": "runs/one"}, "decoding": {"samples": 0}}
    start = {"tokenizer": {"kind": "char"}, "encoder": started, "decoder": started, "decoding": saved}
    assert with_start(tables, lambda folder: start)["decoding"] == {"beam": 3, "samples": 0}


def test_a_folder_to_start_from_must_hold_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        jumok.train(recipe(tmp_path, start_from=str(tmp_path)), out=tmp_path / "run", device="cpu", draw=False)


def test_a_recipe_of_another_kind_than_the_model_it_starts_from_is_refused(tmp_path: Path) -> None:
    tables = recipe(tmp_path) | {"encoder": {"kind": "rnn"}}
    with pytest.raises(ConfigError, match=r"leave out \[encoder\]"):
        jumok.train(tables, out=tmp_path / "run", device="cpu", draw=False)
