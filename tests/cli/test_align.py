"""`jumok align`: a line of links for every pair, from one model or two, scored where there is a gold standard."""

import gzip
import json
import shutil

import pytest

from jumok.data.word_links import parse_word_links
from jumok.model_folder import BUNDLED
from support.commands import jumok, well, write

SOURCE = ["1 2 3", "", "4 5", "6 7 8 9"]
TARGET = ["3 2 1", "", "5 4", "9 8 7 6"]


@pytest.fixture
def text(tmp_path):
    write(tmp_path / "one", "".join(f"{line}\n" for line in SOURCE))
    write(tmp_path / "two", "".join(f"{line}\n" for line in TARGET))
    write(tmp_path / "pairs.tsv", "".join(f"{one}\t{two}\n" for one, two in zip(SOURCE, TARGET, strict=True)))
    links = [" ".join(f"{at}-{len(one.split()) - 1 - at}" for at in range(len(one.split()))) for one in SOURCE]
    write(tmp_path / "gold", "".join(f"{line}\n" for line in links))
    return tmp_path


@pytest.fixture
def back(reverser, tmp_path):
    """A model of the other direction: what writes digits backwards does so both ways."""
    return shutil.copytree(reverser, tmp_path / "back", ignore=shutil.ignore_patterns("checkpoints", "data"))


def two_files(text):
    return [f"--source={text}/one", f"--target={text}/two"]


@pytest.mark.slow
def test_a_line_of_links_for_every_pair_and_empty_lines_stay_empty(reverser, text):
    lines = well("align", reverser, "--words", *two_files(text)).out.split("\n")
    assert len(lines) == len(SOURCE) + 1
    assert lines[1] == lines[-1] == ""
    for line, source, target in zip(lines, SOURCE, TARGET, strict=False):
        links = parse_word_links(line, "")
        assert [target for _, target in sorted(links, key=lambda link: link[1])] == list(range(len(target.split())))
        assert all(one < len(source.split()) for one, _ in links)


def test_pairs_come_from_two_files_a_tsv_standard_input_or_compressed_files(reverser, text):
    wanted = well("align", reverser, "--words", *two_files(text)).out
    assert well("align", reverser, "--words", "--source", text / "pairs.tsv").out == wanted
    assert well("align", reverser, "--words", stdin=(text / "pairs.tsv").read_bytes()).out == wanted
    for name in ("one", "two"):
        (text / f"{name}.gz").write_bytes(gzip.compress((text / name).read_bytes()))
    assert well("align", reverser, "--words", f"--source={text}/one.gz", f"--target={text}/two.gz").out == wanted


def test_at_a_terminal_a_line_says_what_to_type(monkeypatch):
    monkeypatch.setattr("jumok.cli.align.is_typed", lambda source: source == "-")
    assert well("align", stdin="1 2 ||| 2 1\n").err.startswith("type a text ||| its translation, one per line; Ctrl-D")


@pytest.mark.slow
def test_the_look_can_be_given_or_is_chosen_and_told(transformer, text):
    chosen = well("align", transformer, *two_files(text))
    assert "aligning with layer" in chosen.err
    given = well("align", transformer, *two_files(text), "--layer=1", "--head=0", "--no-shift")
    assert "aligning with layer 1, head 0, not shifted" in given.err
    last = well("align", transformer, *two_files(text), "--layer=-1", "--head=-2", "--no-shift")
    assert (last.out, last.err) == (given.out, given.err)
    dev = [f"--dev-source={text}/one", f"--dev-target={text}/two", f"--dev-gold={text}/gold"]
    assert "aligning with layer" in well("align", transformer, *two_files(text), *dev).err


def test_json_holds_the_texts_and_the_links(reverser, text):
    rows = [
        json.loads(line) for line in well("align", reverser, "--words", *two_files(text), "--json").out.splitlines()
    ]
    plain = well("align", reverser, "--words", *two_files(text)).out.splitlines()
    assert [row["source"] for row in rows] == SOURCE
    assert [[tuple(link) for link in row["links"]] for row in rows] == [
        sorted(parse_word_links(line, "")) for line in plain
    ]


def test_two_directions_are_made_one(reverser, back, text):
    both = [
        well("align", reverser, "--words", *two_files(text), "--reverse", back, "--symmetrise", method).out.splitlines()
        for method in ("intersection", "grow-diag", "union")
    ]
    for small, middle, large in zip(*both, strict=True):
        assert set(small.split()) <= set(middle.split()) <= set(large.split())


def test_two_directions_are_joined_by_the_product_of_their_weights(reverser, back, text):
    both = ["--words", *two_files(text), "--reverse", back, "--symmetrise=product"]
    few, some, all_ = (
        well("align", reverser, *both, f"--threshold={least}").out.splitlines() for least in (0.9, 0.5, 0)
    )
    assert well("align", reverser, *both).out.splitlines() == some
    for one, two, three, source, target in zip(few, some, all_, SOURCE, TARGET, strict=True):
        assert set(one.split()) <= set(two.split()) <= set(three.split())
        assert len(three.split()) == len(source.split()) * len(target.split())


def test_a_gold_standard_gives_rates(reverser, text):
    found = json.loads(well("align", reverser, "--words", *two_files(text), f"--gold={text}/gold", "--json").out)
    assert found["pairs"] == 4
    assert found["aer"] == pytest.approx(1 - found["recall"], abs=0.35)
    shown = well("align", reverser, "--words", *two_files(text), f"--gold={text}/gold").out
    assert "aer" in shown
    assert f"{100 * found['aer']:.2f}" in shown


def test_gold_links_past_the_end_are_told_and_dropped(reverser, text):
    write(text / "gold", "0-0 9-9\n\n1-0 0-1\n\n")
    done = well("align", reverser, "--words", *two_files(text), f"--gold={text}/gold", "--json")
    assert json.loads(done.out)["dropped"] == 1
    assert "line 1: the gold link 9-9" in done.err


def test_threshold_and_mutual_links_are_subsets_or_more(reverser, text):
    best = well("align", reverser, "--words", *two_files(text)).out.splitlines()
    mutual = well("align", reverser, "--words", *two_files(text), "--links=mutual").out.splitlines()
    every = well("align", reverser, "--words", *two_files(text), "--links=threshold", "--threshold=0").out.splitlines()
    for one, few, all_ in zip(best, mutual, every, strict=True):
        assert set(few.split()) <= set(one.split()) <= set(all_.split())


@pytest.mark.slow
def test_a_model_of_letters_aligns_them_and_says_so(reverser, tmp_path):
    pairs = write(tmp_path / "pairs.tsv", "12345\t54321\n\t\n321\t123\n")
    done = well("align", reverser, "--source", pairs, "--json")
    first, empty, last = map(json.loads, done.out.splitlines())
    assert first["tokens"] == {"source": list("12345"), "target": list("54321")}
    assert empty["links"] == []
    for row in (first, last):
        size = len(row["source"])
        assert [at for _, at in sorted(row["links"], key=lambda link: link[1])] == list(range(size))
        backwards = sum(one == size - 1 - other for one, other in row["links"])
        assert backwards >= size - 1
    note = "links are between tokens (source: characters, target: characters); --words gives links between words\n"
    assert done.err.count(note) == 1
    words = well("align", reverser, "--words", "--source", pairs)
    assert words.out == "0-0\n\n0-0\n"
    assert "tokens" not in words.err


def test_gold_links_of_letters_count_letters(reverser, tmp_path):
    pairs, gold = write(tmp_path / "pairs.tsv", "123\t321\n"), write(tmp_path / "gold", "0-2 1-1 2-0\n")
    done = well("align", reverser, "--source", pairs, "--gold", gold, "--json")
    assert json.loads(done.out)["dropped"] == 0


def test_two_directions_with_other_tokens_align_words_only(reverser, tmp_path):
    pairs = write(tmp_path / "pairs.tsv", "12\t21\n")
    done = jumok("align", reverser, "--source", pairs, "--reverse", BUNDLED)
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("cut texts into different tokens; align words: --words")
    assert well("align", reverser, "--source", pairs, "--reverse", BUNDLED, "--words").code == 0


def test_tokens_need_a_model(text):
    assert "--tokens needs a model" in jumok("align", *two_files(text), "--tokens").err


def test_help_names_the_options():
    assert "--symmetrise" in jumok("align", "--help").out


def test_without_a_model_links_are_learned_from_the_text(text):
    lines = well("align", *two_files(text)).out.split("\n")
    assert len(lines) == len(SOURCE) + 1
    assert lines[1] == ""
    assert json.loads(well("align", *two_files(text), f"--gold={text}/gold", "--json").out)["pairs"] == 4
    done = jumok("align", *two_files(text), "--layer=1")
    assert done.code == 1
    assert "--layer needs a model" in done.err


def test_a_line_of_too_many_words_is_named_and_stays_empty():
    found = well("align", stdin=("a b\tA B\n" * 20 + "a " * 501 + "\tA\n").encode())
    assert "line 21 has more than 500 words on a side and no links" in found.err
    assert found.out.split("\n")[20] == ""
    assert found.out.startswith("0-0 1-1\n")
