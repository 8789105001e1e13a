"""`jumok evaluate`: scores that anybody can compute again."""

import inspect
import json
import sys
import unicodedata
from io import BytesIO, StringIO

import pytest
import sacrebleu

from jumok.cli.evaluate import evaluate
from jumok.cli.translate import translate
from jumok.data import corpus_pairs
from jumok.progress import ProgressBars
from jumok.tasks.translation_scores import DECODING_OPTIONS
from support.commands import jumok, well, write

OUTPUTS = ["the cat sat on the mat", "a dog", "one two three four five six", "yes"]
REFERENCES = ["the cat sat on a mat", "a dog", "one two three four five six seven", "no"]


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "out", "".join(f"{line}\n" for line in OUTPUTS))
    write(tmp_path / "ref", "".join(f"{line}\n" for line in REFERENCES))
    return tmp_path


@pytest.fixture(scope="module")
def test_set(tmp_path_factory):
    folder, pairs = tmp_path_factory.mktemp("digits"), list(corpus_pairs("reverse", 20, split="test", longest=6))
    write(folder / "src", "".join(f"{pair.source}\n" for pair in pairs))
    write(folder / "ref", "".join(f"{pair.target}\n" for pair in pairs))
    return folder


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("delay", "shown"), [(0.0, True), (60.0, False)])
def test_progress_bars_appear_at_a_terminal_when_the_work_takes_long(monkeypatch, delay, shown):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("jumok.progress.DELAY", delay)
    with ProgressBars() as bars:
        assert [*bars("abcd", "first", 4), *bars("ef", "second", 2)] == list("abcdef")
    assert [name in terminal.getvalue() for name in ("first", "second")] == [shown, shown]


def test_nothing_is_shown_in_a_file_however_long_the_work_takes(monkeypatch):
    file = StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr("jumok.progress.DELAY", 0.0)
    with ProgressBars() as bars:
        assert list(bars("abcd", "first", 4)) == list("abcd")
        bars.show_share("line 1", 0.5)
    assert not file.getvalue()


class Watched(BytesIO):
    def isatty(self):
        return True


def test_scoring_shows_its_progress_at_a_terminal_and_nothing_in_a_file(files, monkeypatch):
    command = ["evaluate", "--output", files / "out", "--reference", files / "ref"]
    monkeypatch.setattr("jumok.progress.DELAY", 0.0)
    assert not well(*command).err
    monkeypatch.setattr("support.commands.BytesIO", Watched)
    shown = well(*command).err
    for name in ("bleu", "chrf", "ter"):
        assert f"scoring {name}" in shown


def test_signatures_are_folded_in_a_narrow_terminal_and_not_cut(files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("support.commands.BytesIO", Watched)
    command = ["evaluate", "--output", files / "out", "--reference", files / "ref", "--metrics", "bleu"]
    (score,) = json.loads(well(*command, "--json").out)["scores"]
    shown = well(*command).out
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("\n") > 2
    assert score["signature"] in "".join(shown.split())


@pytest.mark.parametrize("columns", ["0", "-5", "wide", ""])
def test_a_width_of_the_terminal_that_is_none_leaves_nothing_empty(files, monkeypatch, columns):
    command = ["evaluate", "--output", files / "out", "--reference", files / "ref", "--metrics", "wer"]
    monkeypatch.delenv("COLUMNS", raising=False)
    usual = [well(*command).out, well("--help").out]
    monkeypatch.setenv("COLUMNS", columns)
    found = [well(*command).out]
    monkeypatch.setenv("COLUMNS", columns)
    assert [*found, well("--help").out] == usual
    assert all("jumok" in text or "WER" in text for text in usual)


def test_outputs_made_elsewhere_get_sacrebleus_scores_and_signatures(files):
    found = json.loads(well("evaluate", "--output", files / "out", "--reference", files / "ref", "--json").out)
    assert found["sentences"] == 4
    scores = {score["name"]: score for score in found["scores"]}
    for name, metric in (("BLEU", sacrebleu.BLEU()), ("chrF", sacrebleu.CHRF()), ("TER", sacrebleu.TER())):
        assert scores[name]["value"] == pytest.approx(metric.corpus_score(OUTPUTS, [REFERENCES]).score)
        assert scores[name]["low"] <= scores[name]["value"] <= scores[name]["high"]
    assert "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:" in scores["BLEU"]["signature"]


def test_the_same_korean_text_scores_100_however_it_is_spelt_in_unicode(tmp_path):
    write(tmp_path / "out", "한국어 문장\n두 번째\n")
    write(tmp_path / "ref", unicodedata.normalize("NFD", "한국어 문장\n두 번째\n"))
    done = well(
        "evaluate", "--output", tmp_path / "out", "--reference", tmp_path / "ref", "--metrics", "chrf", "--json"
    )
    assert json.loads(done.out)["scores"][0]["value"] == pytest.approx(100)
    assert "2 lines are not in Unicode's composed form" in done.err


def test_words_are_counted_as_the_chosen_tokenizer_cuts_them_before_bleu_is_called_0(tmp_path):
    file = write(tmp_path / "lines.txt", "我喜欢读书\n")
    given = ("evaluate", "--output", file, "--reference", file, "--metrics", "bleu")
    assert "BLEU is 0, because" in well(*given).err
    assert "BLEU is 0, because" not in well(*given, "--tokenize", "zh").err


@pytest.mark.parametrize(("text", "hint"), [("the old house", True), ("the old house.", False), ("집", True)])
def test_bleu_of_texts_under_four_words_comes_with_what_counts_instead(tmp_path, text, hint):
    file = write(tmp_path / "lines.txt", f"{text}\n")
    given = ("evaluate", "--output", file, "--reference", file)
    assert ("--tokenize char" in well(*given).err) == hint
    assert "--tokenize char" not in well(*given, "--tokenize", "char").err + well(*given, "--metrics", "chrf").err


def test_lines_that_were_cut_for_the_model_are_counted(reverser, tmp_path):
    write(tmp_path / "src", "1 2\n" + "1 " * 400 + "\n")
    write(tmp_path / "ref", "2 1\n" + "1 " * 400 + "\n")
    said = well(
        "evaluate", reverser, "--source", tmp_path / "src", "--reference", tmp_path / "ref", "--metrics", "chrf"
    ).err
    assert f"{reverser.name}: 1 line was too long for it and was translated in parts (--max-source 7 tokens)" in said


def test_max_source_says_where_lines_are_cut(reverser, tmp_path):
    write(tmp_path / "src", "123456 654321\n")
    command = ["evaluate", reverser, "--source", tmp_path / "src", "--reference", tmp_path / "src", "--metrics", "chrf"]
    assert f"{reverser.name}: 1 line has a sentence longer than the 7 tokens it was trained on" in well(*command).err
    cut = well(*command, "--max-source", 8).err
    assert cut == f"{reverser.name}: 1 line was too long for it and was translated in parts (--max-source 8 tokens)\n"


@pytest.mark.parametrize(
    ("name", "text", "more"),
    [
        ("pairs.tsv", "a b\tb a\nc\tc\n", []),
        ("pairs.jsonl", '{"source": "a b", "target": "b a"}\n{"source": "c", "target": "c"}\n', []),
        (
            "pairs.jsonl",
            '{"t": {"en": "a b", "ko": "b a"}}\n{"t": {"en": "c", "ko": "c"}}\n',
            ["--columns", "t.en,t.ko"],
        ),
        ("pairs.txt", "a b ||| b a\nc ||| c\n", []),
        ("pairs.tsv", "x\ta b\tb a\ny\tc\tc\n", ["--columns", "2,3"]),
    ],
)
def test_one_file_of_pairs_is_a_test_set(tmp_path, name, text, more):
    write(tmp_path / name, text)
    write(tmp_path / "out", "b a\nd\n")
    command = ["evaluate", "--output", tmp_path / "out", "--source", tmp_path / name, *more]
    found = json.loads(well(*command, "--metrics", "exact_match", "--by-length", "--json").out)
    assert found["scores"][0]["value"] == 50
    assert [band["sentences"] for band in found["by_length"]] == [2]


def test_a_file_of_one_side_needs_a_reference(files):
    done = jumok("evaluate", "--output", files / "out", "--source", files / "out")
    assert done.err.startswith(
        f"jumok: --reference is missing: the reference translations, one per line; --source {files}"
    )


def test_systems_are_compared_in_the_terminal_with_p_and_no_report_is_needed(files):
    both = ["evaluate", "--output", files / "out", "--reference", files / "ref", "--compare", f"right={files / 'ref'}"]
    lines = well(*both, "--metrics", "chrf,exact_match").out.splitlines()
    assert lines[0].split() == ["score", "system", "value", "95%", "interval", "p"]
    assert [line.split()[:2] for line in lines[1:3]] == [["chrF", "out"], ["chrF", "right"]]
    assert 0 < float(lines[2].split()[-1]) < 1
    (other,) = json.loads(well(*both, "--metrics", "chrf,exact_match", "--json").out)["compared"]
    assert other["name"] == "right"
    assert [score["value"] for score in other["scores"]] == [100, 100]
    assert 0 < other["scores"][0]["p"] < 1
    assert other["scores"][1]["p"] is None  # there is no paired test of exact matches


def test_the_table_shows_value_interval_and_signature(files):
    lines = well("evaluate", "--output", files / "out", "--reference", files / "ref").out.splitlines()
    assert lines[0].split() == ["score", "value", "95%", "interval", "signature"]
    assert [line.split()[0] for line in lines[1:]] == ["BLEU", "chrF", "TER"]
    assert all("version:" in line for line in lines[1:])


def test_metrics_are_chosen_and_case_can_be_ignored(files):
    write(files / "out", "".join(f"{line.upper()}\n" for line in OUTPUTS))
    command = ["evaluate", "--output", files / "out", "--reference", files / "ref", "--json", "--metrics"]
    (cased,) = json.loads(well(*command, "bleu").out)["scores"]
    found = json.loads(well(*command, "bleu,ter,chrf", "--lowercase").out)["scores"]
    lowered = {score["name"]: score for score in found}
    assert cased["value"] == 0
    assert lowered["BLEU"]["value"] > 50
    assert "case:lc" in lowered["BLEU"]["signature"]
    assert lowered["TER"]["value"] == pytest.approx(sacrebleu.TER().corpus_score(OUTPUTS, [REFERENCES]).score)


def test_exact_match_and_word_errors(files):
    command = ["evaluate", "--output", files / "out", "--reference", files / "ref", "--json"]
    found = json.loads(well(*command, "--metrics", "exact_match, wer").out)["scores"]
    assert [score["name"] for score in found] == ["exact match", "WER"]
    assert found[0]["value"] == 25
    assert found[1]["value"] == pytest.approx(100 * 3 / 16)


def test_a_model_is_translated_with_and_its_outputs_can_be_kept(reverser, test_set, tmp_path):
    command = ["evaluate", reverser, "--source", test_set / "src", "--reference", test_set / "ref"]
    done = well(*command, "--metrics", "exact_match", "--json", "--save", tmp_path / "kept")
    kept = (tmp_path / "kept").read_text()
    assert kept == well("translate", reverser, "--source", test_set / "src").out
    command = ["evaluate", "--output", tmp_path / "kept", "--reference", test_set / "ref"]
    again = well(*command, "--metrics", "exact_match", "--json")
    assert json.loads(again.out) == json.loads(done.out)
    assert json.loads(done.out)["scores"][0]["value"] > 80


@pytest.mark.parametrize(
    "decoding",
    [
        ("--sample", "--temperature", 3, "--top-k", 9, "--top-p", 0.99, "--seed", 2),
        ("--sample", "--temperature", 3, "--mbr", 4),
        ("--mbr", 4),
        ("--beam", 2, "--length-penalty", 0, "--min-length", 3, "--max-length", 4, "--no-repeat", 1),
    ],
    ids=lambda decoding: decoding[0] + decoding[-2],
)
def test_the_options_of_decoding_are_those_of_translate(reverser, test_set, tmp_path, decoding):
    command = ["evaluate", reverser, "--source", test_set / "src", "--reference", test_set / "ref"]
    well(*command, *decoding, "--metrics", "exact_match", "--save", tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == well("translate", reverser, *decoding, "--source", test_set / "src").out


def test_translate_and_evaluate_describe_their_options_of_decoding_alike():
    shared = inspect.signature(translate).parameters.keys() & inspect.signature(evaluate).parameters.keys()
    decoding = shared & (DECODING_OPTIONS | {"sample"})
    missing = {"samples", "max_ratio", "placeholders"}  # `--sample` stands for samples; the others are of the recipe
    assert decoding == (DECODING_OPTIONS - missing) | {"sample"}
    for name in decoding:
        assert inspect.signature(translate).parameters[name] == inspect.signature(evaluate).parameters[name]


def test_the_other_models_are_decoded_with_the_same_options(reverser, test_set):
    command = ["evaluate", reverser, "--source", test_set / "src", "--reference", test_set / "ref"]
    drawn = [*command, "--sample", "--temperature", 3, "--compare", f"again={reverser}", "--metrics", "chrf", "--json"]
    found = json.loads(well(*drawn).out)
    assert found["compared"][0]["scores"][0]["value"] == found["scores"][0]["value"]


@pytest.mark.parametrize("option", [("--sample",), ("--mbr", 4), ("--beam", 2), ("--to", "ko")])
def test_options_of_decoding_need_a_model(files, option):
    done = jumok("evaluate", "--output", files / "out", "--reference", files / "ref", *option)
    assert done.code == 1
    assert f"{option[0]} does not apply to {files / 'out'}, which is a file of outputs" in done.err


def test_by_length_counts_every_sentence_once(files):
    write(files / "src", "a b\n" * 2 + "a b c d e f\n" + "\n")
    command = ["evaluate", "--output", files / "out", "--source", files / "src", "--reference", files / "ref"]
    bands = json.loads(well(*command, "--by-length", "--metrics", "exact_match", "--json").out)["by_length"]
    assert [(band["words"], band["sentences"], band["value"]) for band in bands] == [
        ("0", 1, 0.0),
        ("1-5", 2, 50.0),
        ("6-10", 1, 0.0),
    ]
    table = well(*command, "--by-length", "--metrics", "exact_match").out
    assert "source words" in table


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "give either MODEL"),
        (["--reference", "ref"], "give either MODEL to test or --output"),
        (["model", "--output", "out", "--reference", "ref"], "give either MODEL"),
        (["model", "--reference", "ref"], "there is no model folder model"),
        (["--output", "out", "--reference", "ref", "--by-length"], "--source is missing"),
        (["--output", "out", "--reference", "ref", "--metrics", "blue"], "'blue' is not a score; choose from bleu,"),
        (["--output", "out", "--reference", "ref", "--metrics", ","], "--metrics"),
        (["model", "other", "--reference", "ref", "--task", "mine.py"], "--task mine.py applies to a single model"),
        (["--output", "out", "--reference", "ref", "--tokenize", "14a"], "'14a' is not a tokenizer of sacrebleu"),
        (["--output", "ref", "--reference", "short"], "ref has 4 outputs but short has 2 lines: line n"),
        (["--output", "one", "--reference", "none"], "--reference none is empty"),
        (
            ["--output", "ref", "--source", "short", "--reference", "ref", "--by-length"],
            "--source short has 2 lines but --reference ref has 4",
        ),
    ],
)
def test_what_is_missing_or_unknown_is_said(files, monkeypatch, given, said):
    monkeypatch.chdir(files)
    for name, text in (("short", "a\nb\n"), ("one", "a\n"), ("none", "")):
        write(files / name, text)
    done = jumok("evaluate", *given)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("jumok: ")
    assert said in done.err


def test_terms_are_counted_in_the_outputs_of_a_file(tmp_path):
    files = {
        "source": "a file\nthe file\n",
        "output": "파일\n문서\n",
        "reference": "파일\n파일\n",
        "terms": "file\t파일\n",
    }
    options = [part for name, text in files.items() for part in (f"--{name}", write(tmp_path / name, text))]
    assert well("evaluate", *options, "--metrics", "chrf").out.splitlines()[-1] == "terms: 1 of 2 kept"
    assert json.loads(well("evaluate", *options, "--json").out)["terms"] == {"required": 2, "kept": 1}
    without = [option for at, option in enumerate(options) if at > 1]
    done = jumok("evaluate", *without)
    assert (done.code, "--source is missing" in done.err) == (1, True)
