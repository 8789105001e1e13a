"""Decoding on a CPU with CTranslate2: what it writes is what our own search writes."""

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.data import EOS
from jumok.errors import ArgumentError
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION
from jumok.tasks.cpu_engine import CpuEngines
from jumok.tasks.translated_text import Translation
from jumok.tasks.translator import TrainedTranslator, Translator
from support.commands import jumok as command
from support.commands import well

pytest.importorskip("ctranslate2")

WORDS = [
    "three",
    "days",
    "cat",
    "ago",
    "5",
    "kg",
    "Monday",
    "and",
    "the",
    "hours",
    "minutes",
    "December",
    "1988",
    "price",
    "is",
    "John",
    "Li",
]


def texts(count: int) -> list[str]:
    """Examples of the corpus, and words in any order, of which the model is less sure."""
    picks = random.Random(0)
    mixed = [" ".join(picks.choices(WORDS, k=picks.randint(1, 9))) for _ in range(count // 2)]
    return jumok.load(device="cpu").examples(count - len(mixed)) + mixed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder of one's own."""
    return Path(shutil.copytree(BUNDLED, tmp_path / "model"))


def ids(outputs: list[Translation]) -> list[list[tuple[int, ...]]]:
    return [[part.ids for part in output.pieces] for output in outputs]


def both(translator: Translator, sources: list[str], **settings: Any) -> tuple[list[Translation], list[Translation]]:
    ours = translator.translate(sources, engine="jumok", **settings)
    return ours, translator.translate(sources, engine="ctranslate2", **settings)


@torch.no_grad()
def unsure_translator() -> Translator:
    """One with random weights: many tokens are about as likely, and outputs of all lengths score about the same."""
    trained = jumok.load(device="cpu").trained
    recipe, tokenizers = trained.recipe, trained.tokenizers
    recipe = replace(recipe, encoder=replace(recipe.encoder, norm="post"), decoder=replace(recipe.decoder, norm="post"))
    torch.manual_seed(0)
    model = TRANSLATION.build(recipe, tokenizers).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(std=0.25)
    model.decoder.output.bias.normal_(std=0.5)[EOS] = 5.5
    return Translator(TrainedTranslator(model, recipe, tokenizers), folder=BUNDLED)


@pytest.mark.slow
def test_greedy_search_writes_the_same_tokens_with_the_same_scores(folder: Path) -> None:
    ours, theirs = both(jumok.load(folder, device="cpu"), texts(60), beam=1)
    assert ids(theirs) == ids(ours)
    assert [output.score for output in theirs] == pytest.approx([output.score for output in ours], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"beam": 5}, {"beam": 4, "length_penalty": 0.6}, {"beam": 5, "length_penalty": 0}]
)
def test_beam_search_writes_the_same_in_99_of_100_sentences(folder: Path, settings: dict[str, Any]) -> None:
    ours, theirs = both(jumok.load(folder, device="cpu"), texts(300), **settings)
    same = [one == other for one, other in zip(ids(ours), ids(theirs), strict=True)]
    assert sum(same) >= 0.99 * len(same)
    pairs = zip(ours, theirs, same, strict=True)
    assert all(abs(one.score - other.score) < 1e-3 for one, other, alike in pairs if alike)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"beam": 4, "max_length": 30}, {"beam": 5, "max_length": 30}, {"beam": 5, "length_penalty": 0.6}]
)
def test_a_model_that_is_unsure_of_everything_writes_the_same_in_99_of_100_sentences(settings: dict[str, Any]) -> None:
    ours, theirs = both(unsure_translator(), texts(100), **settings)
    assert sum(one == other for one, other in zip(ids(ours), ids(theirs), strict=True)) >= 0.99 * len(ours)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"n_best": 3}, {"min_length": 6}, {"no_repeat": 2}, {"max_length": 3}, {"length_penalty": -0.5}]
)
def test_what_the_engine_does_in_another_way_stays_with_our_search(folder: Path, settings: dict[str, Any]) -> None:
    ours, theirs = both(jumok.load(folder, device="cpu"), texts(24), **settings)
    assert ids(theirs) == ids(ours)
    assert [[best.text for best in output.n_best] for output in theirs] == [
        [best.text for best in output.n_best] for output in ours
    ]


@pytest.mark.slow
def test_outputs_depend_on_neither_batches_nor_threads(folder: Path) -> None:
    sources = texts(40)
    trained = jumok.load(folder, device="cpu").trained
    threads = torch.get_num_threads()
    found = []
    try:
        for batch_tokens, count in ((4096, 1), (60, 1), (4096, 2)):
            torch.set_num_threads(count)
            translator = Translator(trained, batch_tokens=batch_tokens, folder=folder)
            found.append(ids(translator.translate(sources, engine="ctranslate2")))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]
    one_by_one = Translator(trained, folder=folder)
    assert [ids(one_by_one.translate([text], engine="ctranslate2"))[0] for text in sources] == found[0]


def test_a_loaded_model_decodes_on_the_engine_without_being_asked(folder: Path) -> None:
    jumok.load(folder, device="cpu").translate(["three days ago"])
    assert (folder / "ctranslate2/float32/model.bin").exists()
    assert not (BUNDLED / "ctranslate2").exists()


@pytest.mark.slow
def test_the_export_is_made_once_and_again_for_other_weights_or_a_damaged_file(folder: Path) -> None:
    stamp, binary = (folder / "ctranslate2/float32" / name for name in ("made_here.json", "model.bin"))

    def made() -> int:
        assert jumok.load(folder, device="cpu").translate(["three days ago"])[0].text == "3일 전"
        return stamp.stat().st_ctime_ns

    first = made()
    assert made() == first
    binary.write_bytes(b"broken")
    second = made()
    assert second != first
    stamp.write_text("{")
    third = made()
    assert third != second
    translator = jumok.load(folder, device="cpu")
    with torch.no_grad():
        translator.trained.model.decoder.output.bias.add_(1.0)
    translator.translate(["three days ago"])
    assert stamp.stat().st_ctime_ns != third


@pytest.mark.slow
def test_an_export_that_came_from_elsewhere_is_never_read(folder: Path, tmp_path: Path) -> None:
    jumok.load(folder, device="cpu").translate(["three days ago"])
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    binary = copied / "ctranslate2/float32/model.bin"
    before = binary.stat().st_ino
    assert jumok.load(copied, device="cpu").translate(["three days ago"])[0].text == "3일 전"
    assert binary.stat().st_ino != before
    files = json.loads((copied / "ctranslate2/float32/made_here.json").read_text())["files"]
    assert files["model.bin"][0] == binary.stat().st_ino


def test_a_folder_that_cannot_be_written_to_serves_as_well(folder: Path) -> None:
    (folder / "ctranslate2").write_text("in the way")
    assert jumok.load(folder, device="cpu").translate(["three days ago"], engine="ctranslate2")[0].text == "3일 전"


def test_changed_weights_are_used_at_once(folder: Path) -> None:
    translator = jumok.load(folder, device="cpu")
    translator.translate(["three days ago"])
    with torch.no_grad():
        translator.trained.model.decoder.output.bias[2] += 50.0  # the end of the sentence
    assert translator.translate(["three days ago"])[0].text == ""


def test_a_recording_sees_the_layers_run(folder: Path) -> None:
    translator = jumok.load(folder, device="cpu")
    translator.translate(["three days ago"])
    with jumok.record(translator.trained.model) as recording:
        translator.translate(["three days ago"])
    assert recording.calls


@pytest.mark.slow
def test_int8_translates_nearly_the_same(folder: Path) -> None:
    translator = jumok.load(folder, device="cpu")
    sources = translator.examples(40)
    single, eight = (translator.translate(sources, beam=1, precision=precision) for precision in ("float32", "int8"))
    pairs = zip(single, eight, strict=True)
    assert sum(one.text == other.text for one, other in pairs) >= 0.9 * len(sources)
    assert (folder / "ctranslate2/int8/model.bin").exists()


@pytest.mark.slow
def test_the_command_takes_engine_and_precision(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("three days ago\n")
    for options in (["--engine", "jumok"], ["--engine", "ctranslate2"], ["--precision", "int8"]):
        assert well("translate", folder, tmp_path / "in.txt", *options).out == "3일 전\n"
    wrong = command("translate", folder, tmp_path / "in.txt", "--engine", "marian")
    assert wrong.code == 2


def test_an_engine_that_is_not_installed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.tasks.cpu_engine.is_installed", lambda: False)
    translator = jumok.load(folder, device="cpu")
    assert translator.translate(["three days ago"])[0].text == "3일 전"
    with pytest.raises(ArgumentError, match=r"CTranslate2 is not installed .* pip install '\.\[fast\]'"):
        translator.translate(["three days ago"], engine="ctranslate2")


def test_a_search_asks_once_whether_the_engine_runs_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, why_not = [], CpuEngines._why_not
    monkeypatch.setattr(CpuEngines, "_why_not", lambda engines: asked.append(0) or why_not(engines))
    translator = jumok.load(folder, device="cpu")
    for engine, times in (("auto", 1), ("ctranslate2", 1), ("jumok", 0)):
        asked.clear()
        translator.translate(["three days ago"], engine=engine)
        assert len(asked) == times, engine


def test_samples_and_ensembles_name_our_engine_when_another_was_asked_for(folder: Path) -> None:
    alone, several = (jumok.load(folders, device="cpu") for folders in (folder, [folder, folder]))
    with pytest.raises(ArgumentError, match=r"samples are drawn by jumok's own engine; use engine = \"auto\""):
        alone.translate(["three days ago"], samples=1, engine="ctranslate2")
    with pytest.raises(ArgumentError, match=r"ensembles run on jumok's own engine; use engine = \"auto\""):
        several.translate(["three days ago"], engine="ctranslate2")
    assert several.translate(["three days ago"])[0].text == "3일 전"


def test_a_machine_on_which_the_engine_dies_keeps_our_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jumok.decoding.ctranslate2_engine.PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    )
    translator = jumok.load(folder, device="cpu")
    assert translator.translate(["three days ago"])[0].text == "3일 전"
    assert not (folder / "ctranslate2/float32").exists()
    with pytest.raises(ArgumentError, match="signal 4"):
        translator.translate(["three days ago"], engine="ctranslate2")
    assert os.listdir(folder / "ctranslate2") == []
