"""Tags and mixtures in a whole run: a model trained further learns a new tag, and is used with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import jumok
from jumok.analysis.alignment.aligner import Aligner
from jumok.analysis.alignment.word_attention import AlignmentHead
from jumok.data import Pair
from jumok.data.word_links import format_word_links
from jumok.errors import ArgumentError
from jumok.model_folder import BUNDLED
from jumok.models.weights import weights_of, with_new_rows
from support.commands import jumok as jumok_command
from support.commands import well
from support.serving import serving

pytestmark = pytest.mark.slow
OLD = [("a red apple", "빨간 사과"), ("two green pears", "초록 배 두 개"), ("a blue sky", "파란 하늘")]
NEW = [("the red heart", "빨간 심장"), ("two blue veins", "파란 정맥 두 개")]


def recipe(tmp_path: Path, **training: Any) -> dict[str, Any]:
    """A mixture of two corpora of a few pairs, the second with a tag that the model does not know."""
    mix = []
    for name, pairs, more in (("old", OLD, {"weight": 2.0}), ("new", NEW, {"tag": "<medical>"})):
        files = {}
        for side, key in enumerate(["source", "target"]):
            path = tmp_path / f"{name}.{key}"
            path.write_text("".join(f"{pair[side]}\n" for pair in pairs * 10), encoding="utf-8")
            files |= {key: str(path), f"valid_{key}": str(path)}
        mix.append(files | {"name": name} | more)
    settings = {"steps": 4, "warmup": 1, "validate_every": 4, "metric": "loss", "start_from": str(BUNDLED)}
    return {"data": {"mix": mix}, "filter": {"duplicates": False}, "training": settings | training}


def test_a_model_trained_further_gets_a_row_for_a_new_tag_and_keeps_the_others(tmp_path: Path) -> None:
    run = jumok.train(recipe(tmp_path, learning_rate=1e-9), out=tmp_path / "run", device="cpu", draw=False)
    start, after = jumok.load(BUNDLED, device="cpu").trained, run.model.trained
    assert after.tokenizers.source.pieces == [*start.tokenizers.source.pieces, "<medical>"]
    trained = weights_of(after.model)
    grown = 0
    for name, weight in weights_of(start.model).items():
        torch.testing.assert_close(trained[name][: len(weight)], weight, atol=1e-6, rtol=0)
        grown += len(trained[name]) - len(weight)
    assert grown
    loaded = jumok.load(tmp_path / "run", device="cpu")
    assert loaded.tags == ["<medical>"]


def test_every_corpus_is_validated_and_their_mean_decides(tmp_path: Path) -> None:
    run = jumok.train(recipe(tmp_path, metric="chrf"), out=tmp_path / "run", device="cpu", draw=False)
    scores = run.metrics
    assert {"old chrf", "new chrf", "chrf", "loss"} <= scores.keys()
    assert scores["chrf"] == pytest.approx((scores["old chrf"] + scores["new chrf"]) / 2)


def test_a_mixture_resumes_exactly_and_learns_what_a_tag_means(tmp_path: Path) -> None:
    tables = recipe(tmp_path, learning_rate=3e-3, steps=8, validate_every=2)
    whole = jumok.train(tables, out=tmp_path / "whole", device="cpu", draw=False)
    first = recipe(tmp_path, learning_rate=3e-3, steps=4, validate_every=2)
    jumok.train(first, out=tmp_path / "parts", device="cpu", draw=False)
    parts = jumok.train(tables, out=tmp_path / "parts", resume=True, device="cpu", draw=False)
    assert whole.metrics == parts.metrics
    for name, weight in weights_of(whole.model.trained.model).items():
        assert torch.equal(weight, weights_of(parts.model.trained.model)[name])


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tagged")
    jumok.train(recipe(folder), out=folder / "run", device="cpu", draw=False)
    return jumok.load(folder / "run", device="cpu")


def test_a_tag_is_named_with_or_without_its_brackets_and_stands_in_the_map(tagged: Any) -> None:
    by_name, by_tag = (tagged.translate(["the red heart"], tag=tag)[0] for tag in ("medical", "<medical>"))
    typed = tagged.translate(["<medical> the red heart"])[0]
    assert by_name.text == by_tag.text == typed.text
    assert by_name.source == "the red heart"
    assert by_name.attention().source == ("<medical>", "the", "red", "heart", "</s>")
    assert tagged.translate([""], tag="medical")[0].text == ""


def test_every_part_of_a_long_text_begins_with_the_tag(tagged: Any) -> None:
    (long,) = tagged.translate(["the red heart. two blue veins. the red heart."], tag="medical", max_source=8)
    assert len(long.pieces) > 1
    assert all(part.source.startswith("<medical> ") for part in long.pieces)


def test_a_pair_is_aligned_with_a_tag_that_the_links_do_not_count(tagged: Any) -> None:
    trained, head = tagged.trained, AlignmentHead(0, 0, shift=False)
    pair = Pair("two blue veins", "파란 정맥 두 개")
    for tokens in (False, True):
        aligner = Aligner(trained.model, trained.tokenizers, head, tokens=tokens, tag="<medical>")
        (found,) = aligner.weights([pair])
        source, target = aligner.units(pair)
        assert found.shape == (len(target), len(source))
        assert found.sum(-1) == pytest.approx(1.0, abs=1e-5)
    shown = tagged.attention(*pair, tag="medical").weights[0, 0, :-1, 1:-1].numpy()
    (found,) = aligner._replace(tokens=False).weights([pair])
    assert np.allclose(found, shown / shown.sum(-1, keepdims=True), atol=1e-5)
    assert aligner.align([Pair("", "개")]) == [set()]


def test_align_and_the_server_take_a_tag(tagged: Any, tmp_path: Path) -> None:
    folder, pair = tagged.engines.folder, {"source": "two blue veins", "target": "파란 정맥 두 개"}
    options = ["--layer", "0", "--head", "0", "--no-shift"]
    text = f"{pair['source']} ||| {pair['target']}\n"
    aligned = well("align", folder, "--source", "-", "--tag", "medical", *options, stdin=text).out
    aligner = Aligner(tagged.trained.model, tagged.trained.tokenizers, AlignmentHead(0, 0, False), tag="<medical>")
    assert aligned.strip() == format_word_links(aligner.align([Pair(**pair)])[0])
    assert "no tag 'legal'" in jumok_command("align", folder, "--source", "-", "--tag", "legal", stdin=text).err
    with serving({"model": folder}) as live:
        answer = live.post("/api/align", pair | {"tag": "medical"}).json
        assert answer["source"] == pair["source"].split()
        assert all(link[0] < 3 for link in answer["links"])
        assert live.post("/api/align", pair | {"tag": "legal"}).status == 422


def test_an_unknown_tag_is_refused_with_the_known_ones(tagged: Any) -> None:
    with pytest.raises(ArgumentError, match=r"the model has no tag .legal.; its tags are <medical>"):
        tagged.translate(["a"], tag="legal")
    with pytest.raises(ArgumentError, match=r"the model has no tags$"):
        jumok.load(BUNDLED, device="cpu").translate(["a"], tag="legal")


def test_a_new_token_has_the_lowest_bias_so_that_it_is_not_written() -> None:
    small, large = (torch.nn.Linear(3, size) for size in (4, 6))
    grown = with_new_rows(weights_of(small), large, {4: 6})
    assert torch.equal(grown["bias"][4:], small.bias.detach().min().expand(2))
    assert torch.equal(grown["weight"][4:], large.weight.detach()[4:])
    assert torch.equal(grown["weight"][:4], small.weight.detach())
