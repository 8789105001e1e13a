"""`jumok translate`: line n of the output belongs to line n of the input."""

import gzip
import json
import os
import re
import sys
from io import StringIO

import pytest

from jumok.progress import ProgressBars
from jumok.tasks import TRANSLATION
from support.commands import jumok, well, write

LINES = ["123", "", "98", "   ", "5", "404"]
TEXT = "".join(f"{line}\n" for line in LINES)


def test_lines_come_out_in_the_order_they_went_in(reverser):
    found = well("translate", reverser, stdin=TEXT)
    alone = [well("translate", reverser, stdin=f"{line}\n").out for line in LINES]
    assert found.out == "".join(alone)
    assert found.err == ""


def test_empty_lines_stay_empty_lines(reverser):
    found = well("translate", reverser, stdin=TEXT).out.split("\n")
    assert len(found) == len(LINES) + 1
    assert [found[1], found[3]] == ["", ""]
    assert well("translate", reverser, stdin="").out == ""
    assert well("translate", reverser, stdin="\n\n").out == "\n\n"


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_number_of_lines_read_at_once_changes_nothing(reverser, batch):
    assert well("translate", reverser, "--batch", batch, stdin=TEXT).out == well("translate", reverser, stdin=TEXT).out


def test_a_file_is_read_as_standard_input_is(reverser, tmp_path):
    expected = well("translate", reverser, stdin=TEXT).out
    with gzip.open(tmp_path / "lines.gz", "wb") as file:
        file.write(TEXT.encode())
    assert well("translate", reverser, "--source", write(tmp_path / "lines", TEXT)).out == expected
    assert well("translate", reverser, "--source", tmp_path / "lines.gz").out == expected
    assert well("translate", reverser, tmp_path / "lines").out == expected


LONG = "12\n123456 654321 123456\n3\n"


def test_a_line_that_is_too_long_is_translated_in_parts_and_that_is_said(reverser):
    found = well("translate", reverser, stdin=LONG)
    assert len(found.out.splitlines()) == 3
    assert found.err == "line 2 was too long for the model and translated in 3 parts\n"


def test_max_source_cuts_sooner_or_later(reverser):
    lines = "12\n123456 654321\n123456 123456\n"
    whole = well("translate", reverser, stdin=lines)
    assert whole.err.splitlines() == [
        "line 2: a sentence of 14 tokens was translated whole, but the model was trained on at most 7; use "
        "--max-source 7 (in Python max_source=7) to translate it in parts",
        "in all, 2 lines are longer than the model was trained on",
    ]
    sooner = well("translate", reverser, "--max-source", 7, stdin=lines)
    assert sooner.err.splitlines() == [
        f"line {number} was too long for the model and translated in 2 parts" for number in (2, 3)
    ]
    later = well("translate", reverser, "--max-source", 100, stdin=LONG)
    assert later.err.startswith("line 2: a sentence of 21 tokens was translated whole")


def test_every_part_of_a_line_has_its_attention_map(reverser, tmp_path):
    well("translate", reverser, "--attention", tmp_path, "--format", "json", stdin=LONG)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["0001.json", "0002-1.json", "0002-2.json", "0002-3.json", "0003.json"]


def test_the_bundled_model_says_that_it_does_not_know_such_words():
    done = well("translate", stdin="May 5, 2021\nHello, how are you?\n")
    assert done.err.splitlines()[1:] == [
        "line 2: 4 of 4 words are unknown to the model, such as 'Hello'; the model learned nothing but dates, times, "
        "durations, measures, amounts and names of countries and languages"
    ]
    found = json.loads(well("translate", "--json", stdin="Thank you\n").out)
    assert found["warnings"][0].startswith("2 of 2 words are unknown to the model")


def test_a_line_that_is_too_long_is_refused_with_no_split_which_is_said_to_be_why(reverser):
    found = jumok("translate", reverser, "--no-split", stdin=LONG)
    assert found.code == 1
    assert found.err.startswith("jumok: text 2 has 21 tokens, more than the 7")
    assert found.err.endswith("or have it translated in parts, as `jumok translate` does without --no-split\n")
    assert found.out == ""


def test_a_refused_line_is_counted_from_the_first_line_of_the_input(reverser):
    found = jumok("translate", reverser, "--no-split", "--batch", 1, stdin=LONG)
    assert found.err.startswith("jumok: text 2 has 21 tokens")
    assert len(found.out.splitlines()) == 1


def test_n_best_are_sorted_distinct_and_tab_separated(reverser):
    for line in well("translate", reverser, "--n-best", 3, stdin="123\n98\n").out.splitlines():
        cells = line.split("\t")
        texts, scores = cells[::2], [float(score) for score in cells[1::2]]
        assert len(set(texts)) == len(texts) == len(scores) <= 3
        assert scores == sorted(scores, reverse=True)


def test_empty_lines_stay_empty_lines_among_lists_too(reverser):
    first, second, third = well("translate", reverser, "--n-best", 2, stdin="12\n \n3\n").out.splitlines()
    assert second == ""
    assert len(first.split("\t")) == len(third.split("\t")) == 4


def test_a_list_longer_than_the_beam_widens_it_here_and_in_python(reverser):
    found = well("translate", reverser, "--n-best", 7, stdin="123\n").out.split("\t")
    assert len(found) == 14
    (same,) = TRANSLATION.load(reverser, device="cpu").translate(["123"], n_best=7)
    assert [one.text for one in same.n_best] == found[::2]


def test_a_list_longer_than_a_beam_that_was_asked_for_is_refused(reverser):
    found = jumok("translate", reverser, "--n-best", 3, "--beam", 2, stdin="1\n")
    assert found.code == 1
    assert found.err.startswith("jumok: the 3 best outputs are asked for, but the beam is only 2 wide")


def test_json_is_one_object_a_line(reverser):
    plain = well("translate", reverser, stdin=TEXT).out.splitlines()
    found = [json.loads(line) for line in well("translate", reverser, "--json", stdin=TEXT).out.splitlines()]
    assert [one["source"] for one in found] == LINES
    assert [one["text"] for one in found] == plain
    assert found[1]["score"] == 0
    best = json.loads(well("translate", reverser, "--json", "--n-best", 2, stdin="12\n").out)
    assert best["n_best"][0] == {"text": best["text"], "score": best["score"]}
    assert len(best["n_best"]) == 2


def test_json_has_the_probability_of_each_word_if_asked(reverser):
    translator = TRANSLATION.load(reverser, device="cpu")
    found = json.loads(well("translate", reverser, "--json", "--probabilities", stdin="12\n").out)
    wanted = translator.translate(["12"])[0].probabilities()
    assert [word["word"] for word in found["words"]] == [word for word, _ in wanted] == ["▁", "2", "1", "</s>"]
    assert [word["probability"] for word in found["words"]] == pytest.approx([share for _, share in wanted], abs=1e-4)
    both = json.loads(well("translate", reverser, "--json", "--probabilities", "--n-best", 2, stdin="12\n").out)
    assert both["n_best"][0]["words"] == both["words"] == found["words"] != both["n_best"][1]["words"]


def test_probabilities_are_part_of_json(reverser):
    found = jumok("translate", reverser, "--probabilities", stdin="12\n")
    assert (found.code, found.err) == (1, "jumok: --probabilities needs --json\n")


def test_attention_maps_are_drawn_for_lines_that_have_one(reverser, tmp_path):
    done = well("translate", reverser, "--attention", tmp_path / "maps", stdin="123\n\n1 2\n")
    assert done.err == f"saved 2 attention maps in {tmp_path / 'maps'}\n"
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == ["0001.svg", "0003.svg"]
    drawn = (tmp_path / "maps/0001.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert re.findall(r">\s*([123]+)\s*<", drawn)[:3] == ["1", "2", "3"]


def test_maps_of_an_earlier_run_in_the_same_folder_are_pointed_out(reverser, tmp_path):
    well("translate", reverser, "--attention", tmp_path, stdin="1\n2\n3\n")
    again = well("translate", reverser, "--attention", tmp_path, stdin="1\n")
    assert again.err.splitlines() == [
        f"saved 1 attention map in {tmp_path}",
        f"{tmp_path} also holds 2 attention maps of an earlier run, such as 0002.svg",
    ]


@pytest.mark.parametrize("kind", ["html", "json", "png"])
def test_attention_maps_are_drawn_in_the_form_asked_for(reverser, tmp_path, kind):
    well("translate", reverser, "--attention", tmp_path / "maps", "--format", kind, stdin="123\n")
    assert [path.name for path in (tmp_path / "maps").iterdir()] == [f"0001.{kind}"]


def test_options_of_the_search_are_heard(reverser):
    assert len(well("translate", reverser, "--max-length", 2, stdin="123456\n").out.strip()) <= 2
    assert len(well("translate", reverser, "--min-length", 6, stdin="12\n").out.strip()) >= 5  # a space is a token, too
    assert well("translate", reverser, "--beam", 1, stdin="12\n").code == 0


class Answers(StringIO):
    """Standard output, which writes the next line into the pipe once the one before it is answered."""

    def __init__(self, handle, lines):
        super().__init__()
        self.handle, self.lines = handle, list(lines)

    def flush(self):
        for line in self.lines[:1]:
            os.write(self.handle, line.encode())
            if not line.endswith(("\n", "\x04")):
                os.close(self.handle)
        del self.lines[:1]


def converse(monkeypatch, reverser, read, write, answers):
    from jumok.cli import main

    os.write(write, b"12\n")
    with os.fdopen(read) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", answers)
        monkeypatch.setattr(sys, "argv", ["jumok", "translate", str(reverser)])
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 0


def test_whoever_waits_for_an_answer_before_the_next_line_gets_one(reverser, monkeypatch):
    read, write = os.pipe()
    answers = Answers(write, ["345\n", "\n", "6"])
    converse(monkeypatch, reverser, read, write, answers)
    together = well("translate", reverser, stdin="12\n345\n\n6\n").out
    assert answers.getvalue() == together


def test_at_a_terminal_lines_are_answered_as_they_are_typed_and_no_bar_is_drawn(reverser, monkeypatch, capsys):
    pty = pytest.importorskip("pty")
    expected = well("translate", reverser, stdin="12\n345\n").out
    write, read = pty.openpty()
    module = sys.modules["jumok.cli.translate"]
    monkeypatch.setattr(module.ProgressBars, "__call__", lambda *_: pytest.fail("a bar appears where texts are typed"))
    answers = Answers(write, ["345\n", "\x04"])  # Ctrl-D
    converse(monkeypatch, reverser, read, write, answers)
    assert answers.getvalue() == expected
    assert capsys.readouterr().err == "type a text and press Enter; Ctrl-D ends\n"


def test_the_progress_within_one_long_line_is_shown(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("jumok.progress.DELAY", 0.0)
    with ProgressBars() as bars:
        bars.show_share("line 1", 0.5)
        bars.display.refresh()
        bars.show_share("line 1", 1.0)
        assert not bars.display.tasks
    assert "line 1" in terminal.getvalue()
    assert "50/100" in terminal.getvalue()


class Terminal(StringIO):
    def isatty(self):
        return True


def test_every_line_begins_with_the_prefix_and_has_its_terms(reverser, tmp_path):
    terms = write(tmp_path / "terms.tsv", "98\t444\n5\t5\n")
    found = well("translate", reverser, "--prefix", "32", stdin=TEXT).out.split("\n")
    assert [line.startswith("32") for line in found] == [True, False, True, False, True, True, False]
    found = well("translate", reverser, "--terms", terms, stdin=TEXT).out.split("\n")
    plain = well("translate", reverser, stdin=TEXT).out.split("\n")
    assert "444" in found[2].split()
    assert found[:2] + found[3:] == plain[:2] + plain[3:]


def test_alternatives_after_a_prefix_are_printed(reverser):
    found = well("translate", reverser, "--prefix", "3", "--n-best", 3, "--json", stdin="123\n")
    assert all(each["text"].startswith("3") for each in json.loads(found.out)["n_best"])
