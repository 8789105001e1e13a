"""`jumok compare`: curves of several models, printed, as JSON and as pictures."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sacrebleu

from jumok.cli.arguments import named_path, named_paths
from jumok.data import corpus_pairs
from support.commands import jumok, well, write


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder, pairs = tmp_path_factory.mktemp("digits"), list(corpus_pairs("reverse", 20, split="test", longest=6))
    source = write(folder / "src", "".join(f"{' '.join(pair.source)}\n" for pair in pairs))
    reference = write(folder / "ref", "".join(f"{' '.join(pair.target)}\n" for pair in pairs))
    return ["--source", source, "--reference", reference]


def test_a_folder_is_called_as_it_is_named_even_with_an_equals_sign_in_its_own_name(tmp_path, monkeypatch):
    (tmp_path / "lr=0.1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert named_paths(["lr=0.1", "big=lr=0.1"]) == [("lr=0.1", Path("lr=0.1")), ("big", Path("lr=0.1"))]
    assert named_path(".").name == tmp_path.name


@pytest.mark.slow
def test_length_gives_each_models_score_in_each_band(reverser, transformer, texts, tmp_path):
    models = [f"one={reverser}", f"two={transformer}"]
    options = ["--bands", "3,6,9", "--metric", "chrf", "--joined", "1,2", "--beam", "1"]
    done = well("compare", "length", *models, *texts, *options, "--json", "--out", tmp_path / "length.svg")
    found = json.loads(done.out)
    assert found["sentences"] == 30
    assert list(found["by_length"]) == ["one", "two"]
    counts = [[(band["words"], band["sentences"]) for band in bands] for bands in found["by_length"].values()]
    assert counts[0] == counts[1]
    assert sum(count for _, count in counts[0]) == 30
    ElementTree.fromstring((tmp_path / "length.svg").read_text())
    table = well("compare", "length", f"copied={texts[1]}", *texts, "--metric", "chrf").out
    assert table.startswith("source words  sentences  chrF, copied")


def test_length_takes_outputs_made_elsewhere(texts):
    source, reference = texts[1], texts[3]
    done = well("compare", "length", f"copied={source}", *texts, "--bands", "99", "--json")
    (band,) = json.loads(done.out)["by_length"]["copied"]
    outputs, references = (path.read_text().splitlines() for path in (source, reference))
    assert band["score"]["value"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)


@pytest.mark.slow
def test_gradient_gives_shares_by_distance(reverser, transformer, texts, tmp_path):
    given = ["compare", "gradient", f"one={reverser}", f"two={transformer}", *texts, "--shortest", "6"]
    found = json.loads(well(*given, "--joined", "1,2", "--json", "--out", tmp_path / "reach.svg").out)
    for curve in found.values():
        assert [reach["nearest"] for reach in curve] == list(range(0, 5 * len(curve), 5))
        assert all(reach["low"] <= reach["share"] <= reach["high"] for reach in curve)
    ElementTree.fromstring((tmp_path / "reach.svg").read_text())
    fresh = json.loads(well(*given, "--fresh", "--ends", "last", "--json").out)
    assert fresh != found
    assert well(*given).out.startswith("tokens from the end  tokens  one")


@pytest.mark.slow
def test_speed_times_every_length(reverser, transformer, tmp_path):
    given = [
        "compare",
        "speed",
        reverser,
        f"other={transformer}",
        "--lengths",
        "2,4",
        "--tokens",
        "8",
        "--repeats",
        "1",
    ]
    found = json.loads(well(*given, "--device", "cpu", "--json", "--out", tmp_path / "speed.svg").out)
    for kind, begins in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        well(*given, "--device", "cpu", "--out", tmp_path / f"speed.{kind}")
        assert (tmp_path / f"speed.{kind}").read_bytes().startswith(begins)
    assert list(found) == ["model", "other"]
    assert all([one["length"] for one in times] == [2, 4] for times in found.values())
    ElementTree.fromstring((tmp_path / "speed.svg").read_text())
    assert len(well(*given).out.splitlines()) == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["length", "m", "--source", "two", "--reference", "one"], "--source two has 2 lines but --reference one"),
        (["length", "m", "--source", "none", "--reference", "none"], "none is empty"),
        (["length", "m", "--source", "one", "--reference", "one", "--joined", "3"], "nothing to compare on"),
        (["length", "m", "--source", "one", "--reference", "one", "--bands", "ten"], "--bands 'ten' must be whole"),
        (["length", "m", "--source", "one", "--reference", "one", "--metric", "blue"], "'blue' is not a score"),
        (["length", "m", "--source", "one", "--reference", "one", "--out", "x.gif"], "x.gif should end in one of"),
        (["length", "m", "--source", "one", "--reference", "one"], "there is no model folder or file of outputs m"),
        (["gradient", "m", "n/m", "--source", "one", "--reference", "one"], "the name 'm' is used twice"),
        (["gradient", "m", "--source", "missing", "--reference", "one"], "there is no file missing"),
        (["speed", "m", "--lengths", "8,,"], "--lengths '8,,' must be whole numbers"),
        (["speed", "m", "--device", "tpu"], "device = 'tpu' must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(monkeypatch, tmp_path, given, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "one", "a\n")
    write(tmp_path / "two", "a\nb\n")
    write(tmp_path / "none", "")
    done = jumok("compare", *given)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("jumok: ")
    assert said in done.err


def test_sources_that_are_all_too_short_are_said(reverser, texts):
    done = jumok("compare", "gradient", reverser, *texts, "--shortest", "99")
    assert (done.code, done.out) == (1, "")
    assert "no source has 99 tokens or more" in done.err
