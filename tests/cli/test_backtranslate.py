"""`jumok backtranslate`: pairs of monolingual text that a recipe reads, the same whether or not it was interrupted."""

import json
from pathlib import Path

import pytest

import jumok
from jumok.data import read_pairs
from jumok.errors import ArgumentError, DataError
from jumok.tasks.back_translation import back_translate
from support.commands import BRIEFLY, RECIPE, well, write
from support.commands import jumok as command

TEXTS = ["123", "45", "", "123", "6", "9876", "55"]


@pytest.fixture
def model(reverser: Path) -> Path:
    return reverser


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write(tmp_path / "mono.txt", "\n".join(TEXTS) + "\n")


def test_the_pairs_are_what_sampling_writes_for_each_new_text(model: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "back.tsv"
    done = well("backtranslate", model, "--text", text, "--out", out, "--seed", "3", "--json")
    counts = json.loads(done.out)
    assert (counts["read"], counts["kept"]) == (7, 5)
    assert {rule: count for rule, count in counts["dropped"].items() if count} == {"empty": 1, "duplicate": 1}
    drawn = [output.text for output in jumok.load(model, device="cpu").translate(TEXTS, samples=1, seed=3)]
    new = [0, 1, 4, 5, 6]
    assert list(read_pairs(out)) == [(drawn[line], TEXTS[line]) for line in new]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.tsv", "mono.txt"]


def test_every_draw_is_written_also_equal_ones_and_those_of_a_text_in_parts(model: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "mono.txt", "123\n1 2 3 4 5 6 7 8 9\n")
    options = ["--samples", "4", "--top-k", "1", "--max-source", "8", "--max-ratio", "0"]
    well("backtranslate", model, "--text", text, "--out", tmp_path / "back.tsv", *options)
    greedy = well("translate", model, text, "--beam", "1", "--max-source", "8").out.splitlines()
    pairs = list(zip(greedy, text.read_text().splitlines(), strict=True))
    assert list(read_pairs(tmp_path / "back.tsv")) == [pairs[0]] * 4 + [pairs[1]] * 4


def test_beam_search_writes_what_translate_writes(model: Path, text: Path, tmp_path: Path) -> None:
    well("backtranslate", model, "--text", text, "--out", tmp_path / "back.tsv", "--beam", "4")
    lines = well("translate", model, text, "--beam", "4").out.splitlines()
    assert [pair.source for pair in read_pairs(tmp_path / "back.tsv")] == [lines[line] for line in (0, 1, 4, 5, 6)]


def test_an_interrupted_run_goes_on_and_ends_with_the_same_file(model: Path, text: Path, tmp_path: Path) -> None:
    translator = jumok.load(model, device="cpu")
    settings = {"samples": 2, "seed": 1, "chunk": 2}
    whole, parts = tmp_path / "whole.tsv", tmp_path / "parts.tsv"
    for done in back_translate(translator, TEXTS, whole, **settings):
        report = str(done.report)
    for stops in (2, 2):
        steps = back_translate(translator, TEXTS, parts, **settings)
        for _ in range(stops):
            next(steps)
        with open(f"{parts}.part", "ab") as file:
            file.write(b"half a li")
    assert not parts.exists()
    *_, last = back_translate(translator, TEXTS, parts, **settings)
    assert str(last.report) == report
    assert parts.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"whole.tsv", "parts.tsv", "mono.txt"}


def test_another_text_model_or_setting_does_not_go_on_with_what_was_begun(model: Path, tmp_path: Path) -> None:
    translator, out = jumok.load(model, device="cpu"), tmp_path / "back.tsv"
    steps = back_translate(translator, TEXTS, out, seed=1, chunk=2)
    next(steps), next(steps)
    for texts, seed, words in ((TEXTS, 2, "other settings"), (TEXTS[::-1], 1, "another text")):
        with pytest.raises(ArgumentError, match=words):
            next(back_translate(translator, texts, out, seed=seed, chunk=2))
    write(tmp_path / "back.tsv.part.json", "{}")
    with pytest.raises(DataError, match="damaged"):
        next(back_translate(translator, TEXTS, out, seed=1, chunk=2))


def test_pairs_of_unlike_lengths_are_dropped(model: Path, tmp_path: Path) -> None:
    texts = ["12345678901234567890"]
    for ratio, kept in ((0.0, 1), (1.01, 0)):
        out = tmp_path / f"{ratio}.tsv"
        settings = {"samples": 0, "beam": 1, "max_length": 3, "max_source": 30}
        *_, done = back_translate(jumok.load(model, device="cpu"), texts, out, max_ratio=ratio, **settings)
        assert done.report.kept == kept
        assert done.report.dropped["ratio"] == 1 - kept


def test_a_recipe_mixes_the_pairs_with_a_tag_and_does_not_validate_on_them(model: Path, tmp_path: Path) -> None:
    digits = [str(number) for number in range(100, 180)]
    real = write(tmp_path / "real.tsv", "".join(f"{line[::-1]}\t{line}\n" for line in digits))
    text = write(tmp_path / "mono.txt", "".join(f"{line}\n" for line in digits[:20]))
    well("backtranslate", model, "--text", text, "--out", tmp_path / "back.tsv", "--top-k", "2")
    mixture = f"""
[[data.mix]]
pairs = "{real}"

[[data.mix]]
pairs = "{tmp_path / "back.tsv"}"
tag = "<back>"
validate = false
weight = 2
"""
    recipe = write(tmp_path / "mixed.toml", mixture + RECIPE[RECIPE.index("[tokenizer]") :])
    briefly = [option for option in BRIEFLY if "data." not in option]
    done = well("train", recipe, "--out", tmp_path / "run", "--device", "cpu", *briefly)
    assert "back exact_match" not in done.err
    assert "kept 99 of 99 pairs" in done.err  # one real pair in a hundred is held out, and none of the others
    assert jumok.load(tmp_path / "run", device="cpu").tags == ["<back>"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "back.txt"], "must end in .tsv"),
        (["--out", "there.tsv"], "exists already"),
        (["--out", "back.tsv", "--beam", "3", "--top-k", "2"], "--top-k applies only to sampling"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "there.tsv", "a\tb\n")
    done = command("backtranslate", model, "--text", text, *options)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert words in done.err


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_text_is_named_and_nothing_is_written(model: Path, tmp_path: Path, content: str) -> None:
    empty = write(tmp_path / "empty.txt", content)
    done = command("backtranslate", model, "--text", empty, "--out", tmp_path / "back.tsv")
    assert done.code == 1
    assert f"{empty} has no text" in done.err
    assert list(tmp_path.iterdir()) == [empty]
