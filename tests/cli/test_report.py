"""`jumok evaluate --report`: a page of its own, from models with and without attention and from outputs."""

import json
import re

import pytest

from jumok.analysis.draw.style import DARK, LIGHT
from jumok.data import corpus_pairs
from support.browser import Opened
from support.commands import BRIEFLY, RECIPE, jumok, well, write

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def test_set(tmp_path_factory):
    folder, pairs = tmp_path_factory.mktemp("digits"), list(corpus_pairs("reverse", 12, split="test", longest=6))
    write(folder / "src", "".join(f"{pair.source}\n" for pair in pairs))
    write(folder / "ref", "".join(f"{pair.target}\n" for pair in pairs))
    write(folder / "out", "".join(f"{pair.source}\n" for pair in pairs))
    return folder


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """A model without attention."""
    folder = tmp_path_factory.mktemp("fixed")
    recipe = write(folder / "fixed.toml", RECIPE.replace("[decoder]\n", '[decoder]\nattention = "none"\n'))
    well("train", recipe, "--out", folder / "fixed", "--device", "cpu", *BRIEFLY)
    return folder / "fixed"


@pytest.fixture(scope="module")
def command(reverser, test_set):
    return ["evaluate", reverser, "--source", test_set / "src", "--reference", test_set / "ref"]


@pytest.fixture(scope="module")
def nasty_report(command, fixed, test_set, tmp_path_factory):
    """A report on three systems, with markup wherever a user can write."""
    folder = tmp_path_factory.mktemp("nasty")
    for name in ("src", "ref", "out"):
        write(folder / name, (test_set / name).read_text() + f"{NASTY}\n1 2\n")
    texts = ["--source", folder / "src", "--reference", folder / "ref"]
    others = ["--compare", f"{NASTY}={fixed}", "--compare", f"outputs {NASTY}={folder / 'out'}"]
    well(*command[:2], *texts, "--report", folder / "report.html", *others)
    return folder / "report.html"


def test_a_report_is_one_page_and_standard_output_stays_as_it_was(command, tmp_path):
    plain, reported = well(*command, "--json"), well(*command, "--json", "--report", tmp_path / "pages/report.html")
    assert json.loads(reported.out) == json.loads(plain.out)
    assert "wrote" in reported.err
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["report.html"]
    text = (tmp_path / "pages/report.html").read_text()
    assert "attention entropy" in text
    assert 'aria-label="Attention of' in text


def test_a_name_that_is_not_unicode_is_shown_as_far_as_it_can_be(command, test_set, tmp_path):
    given = f"other\udcff={test_set / 'out'}"  # how Python spells the byte 0xff of an argument
    well(*command, "--report", tmp_path / "report.html", "--compare", given)
    assert "other?" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_model_without_attention_is_reported_on(fixed, command, tmp_path):
    well("evaluate", fixed, *command[2:], "--report", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<strong>fixed</strong> has no attention to show" in text
    assert "Worst" in text


def test_outputs_alone_are_reported_on(command, test_set, tmp_path):
    given = ["evaluate", "--output", test_set / "out", *command[2:], "--metrics", "exact_match,wer"]
    well(*given, "--report", tmp_path / "report.html", "--compare", f"right={test_set / 'ref'}")
    text = (tmp_path / "report.html").read_text()
    assert "right is better" in text
    assert "Is the difference significant?" not in text  # sacrebleu has no paired test of these scores


def test_the_page_runs_nothing_asks_for_nothing_and_fits_a_phone(nasty_report, browser):
    for width, scheme in ((1000, "light"), (1000, "dark"), (360, "light")):
        opened = Opened(browser, nasty_report, width=width, scheme=scheme)
        assert opened.said == []
        assert opened.asked == [nasty_report.as_uri()]
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert opened.page.evaluate("document.querySelectorAll('script').length") == 0
        assert opened.page.locator("svg").count() > 4
        assert NASTY in opened.page.locator("nav ~ main").inner_text()


def test_dark_and_light_pages_differ(nasty_report, browser):
    light, dark = (Opened(browser, nasty_report, scheme=scheme).page for scheme in ("light", "dark"))
    ground = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(ground) != dark.evaluate(ground)


def rgb(text: str) -> list[int]:
    """Of "rgb(31, 41, 51)" and, of a mixed colour, "color(srgb 0.12 0.16 0.2)"."""
    parts = [float(part) for part in re.findall(r"[\d.]+", text)]
    return [round(255 * part) if text.startswith("color") else round(part) for part in parts[:3]]


@pytest.mark.parametrize(("scheme", "ramp"), [("light", LIGHT), ("dark", DARK)])
def test_maps_have_the_colours_of_the_page_light_or_dark(nasty_report, browser, scheme, ramp):
    page = Opened(browser, nasty_report, scheme=scheme).page
    fill = "all => all.map(one => getComputedStyle(one).fill)"
    paper = page.locator("article").first.evaluate("one => getComputedStyle(one).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert set(page.locator(".map svg > rect:first-of-type").evaluate_all(fill)) == {paper}
    assert ink in page.locator(".map svg > text").evaluate_all(fill)
    cells = page.locator(".map").first.locator("svg > rect:has(title)")
    weights = [float(text.rsplit(": ", 1)[1]) for text in cells.locator("title").all_text_contents()]
    largest, smallest = (rgb(cells.evaluate_all(fill)[weights.index(one)]) for one in (max(weights), min(weights)))
    assert largest == rgb_of(ramp[-1])
    assert sum(abs(one - other) for one, other in zip(smallest, rgb_of(ramp[0]), strict=True)) < 60


def rgb_of(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def test_charts_and_tables_are_readable_on_a_telephone(nasty_report, browser):
    page = Opened(browser, nasty_report, width=390).page
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    sideways = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel)"
    assert page.locator("figure, .scroll:not(.map)").evaluate_all(sideways) == []
    letters = """all => all.filter(one => one.getBoundingClientRect().width).map(text => {
        const box = text.getBoundingClientRect(), chart = text.closest("svg").getBoundingClientRect();
        const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
        return [Math.abs(size) || 13, box.left >= chart.left - 1 && box.right <= chart.right + 1];
    })"""
    found = page.locator("figure svg text").evaluate_all(letters)
    assert len(found) > 20
    assert min(size for size, _ in found) > 10
    assert all(inside for _, inside in found)
    column = "one => getComputedStyle(one, '::before').content"
    assert page.locator("#scores .stacked td").first.evaluate(column) == '"BLEU"'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--output", "out", "--reference", "ref", "--report", "r.html"], "--source is missing"),
        (
            ["--output", "out", "--source", "short", "--reference", "ref", "--report", "r.html"],
            "--source short has 1 line but --reference ref has 12",
        ),
        (
            ["--output", "none", "--source", "none", "--reference", "none", "--report", "r.html"],
            "--reference none is empty",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--report", "r.html", "--compare", "b=short"],
            "b has 1 outputs, but there are 12 source sentences",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--report", "r.html", "--compare", "out"],
            "the name 'out' is used twice; give each its own: NAME=PATH",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--report", "r.html", "--compare", "missing"],
            "there is no model folder or file of outputs missing",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--report", "r.pdf"],
            "--report r.pdf must end in .html",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--report", "folder.html"],
            "folder.html is a folder; name a file in it",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--report", "src/r.html"],
            "src is a file, not a folder",
        ),
        (
            ["--output", "out", "--source", "src", "--reference", "ref", "--save", "folder.html"],
            "folder.html is a folder; name a file in it",
        ),
    ],
)
def test_what_is_wrong_is_said_and_no_page_is_written(test_set, monkeypatch, tmp_path, given, said):
    for name in ("src", "ref", "out"):
        write(tmp_path / name, (test_set / name).read_text())
    write(tmp_path / "short", "a\n")
    write(tmp_path / "none", "")
    (tmp_path / "folder.html").mkdir()
    monkeypatch.chdir(tmp_path)
    done = jumok("evaluate", *given)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("jumok: ")
    assert said in done.err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_a_page_that_cannot_be_written_in_the_end_leaves_the_scores(command, tmp_path, monkeypatch):
    expected = well(*command).out

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    done = jumok(*command, "--report", tmp_path / "page.html")
    assert done.code == 1
    assert done.out == expected
    assert done.err.splitlines()[-1] == f"jumok: cannot write {tmp_path / 'page.html'}: No space left on device"
