"""The documentation tells the truth: its code runs, shows what it says it shows, and its pictures and links exist.

The ```python blocks of a page run top to bottom in one namespace, and so does the code in a table column headed "code".
What a line shows is checked, to the digits shown:

    1 + 1  # -> 2                    the value of an expression
    print(plan)                      what it prints, on the lines below
    # -> direct: it is small enough
    attend(q, k, v, score="dto")  # raises ArgumentError: score must be

The commands of ```console blocks, lines that begin with "$ ", run between them in the same folder; what is on the lines
below a command is what it prints. A recipe that a command names is the last ```toml block above it.
"""

import ast
import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from support.commands import well, write

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md")])
KOREAN = ROOT / "README.ko.md"
OPTIONAL = ("ctranslate2", "onnxruntime", "transformers")
"""Libraries without which the blocks that import them are left out."""
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if page != KOREAN], ids=lambda page: page.name)
def test_the_code_of_a_page_runs_and_shows_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    recipe = ""
    for piece in code(page.read_text(encoding="utf-8")):
        if piece.language == "toml":
            recipe = piece.text
        elif piece.language == "console":
            run_commands(piece, recipe, page)
        elif not any(
            re.search(rf"^(import|from) {name}\b", piece.text, re.MULTILINE) and find_spec(name) is None
            for name in OPTIONAL
        ):
            run(piece, namespace, page)


def test_the_korean_readme_has_the_code_of_the_english_one():
    english, korean = (
        [re.sub(" +# (?!->).*", "", piece.text) for piece in code(page.read_text(encoding="utf-8"))]
        for page in (ROOT / "README.md", KOREAN)
    )
    assert english
    assert korean == english


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_picture_and_local_link_of_a_page_exists(page: Path):
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path):
    text = without_code(page.read_text(encoding="utf-8"))
    targets = [
        (page.parent / file if file else page, name) for file, name in re.findall(r"\]\(([^)#\s:]*)#([^)]+)\)", text)
    ]
    assert [name for file, name in targets if name not in headings(file)] == []


def test_every_picture_is_on_some_page():
    shown = {(page.parent / target).resolve() for page in PAGES for target in links(page)}
    assert {path.name for path in (ROOT / "docs/pictures").iterdir() if path not in shown} == set()


@pytest.mark.slow
def test_the_pictures_are_those_the_script_draws(tmp_path: Path):
    make_pictures = pytest.importorskip("docs.make_pictures", reason="needs matplotlib")
    make_pictures.make_pictures(tmp_path)
    drawn, kept = ({path.name for path in folder.iterdir()} for folder in (tmp_path, ROOT / "docs/pictures"))
    assert drawn <= kept


def test_the_checker_sees_a_wrong_output():
    with pytest.raises(AssertionError, match="shows 3"):
        run(Code("1 + 1  # -> 3", 1), {}, Path("page.md"))
    run(Code("[1 / 3]  # -> [0.333]", 1), {}, Path("page.md"))
    run(Code("int('x')  # raises ValueError: invalid literal", 1), {}, Path("page.md"))


def test_the_checker_sees_what_a_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_commands(Code("$ echo a | cat > b\n$ cat b\na", 1, "console"), "", Path("page.md"))
    with pytest.raises(AssertionError, match=r"page\.md, line 2"):
        run_commands(Code("$ echo a\nb", 2, "console"), "", Path("page.md"))


class Code(NamedTuple):
    """Some lines of code, and where on the page they begin."""

    text: str
    line: int
    language: str = "python"


def code(page: str) -> Iterator[Code]:
    """The ```python, ```console and ```toml blocks and the cells of table columns headed "code", in order."""
    block: list[str] | None = None
    fence, start, column = "", 0, None
    for number, line in enumerate(page.splitlines(), start=1):
        if fence:
            if line.strip() == "```":
                if fence in ("python", "console", "toml") and block is not None:
                    yield Code("\n".join(block), start, fence)
                fence = ""
            elif block is not None:
                block.append(line)
        elif line.startswith("```"):
            fence, block, start = line[3:].strip() or "text", [], number + 1
        elif line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if column is None:
                column = cells.index("code") if "code" in cells else -1
            elif column >= 0:
                yield from (Code(text.replace("\\|", "|"), number) for text in re.findall("`([^`]+)`", cells[column]))
        else:
            column = None


def run(piece: Code, namespace: dict[str, Any], page: Path) -> None:
    """Run the statements one by one and compare what each shows with what the page says."""
    lines = piece.text.splitlines()
    for statement in ast.parse(piece.text).body:
        last = statement.end_lineno or statement.lineno
        where = f"{page.name}, line {piece.line + statement.lineno - 1}"
        promised = re.search(r"# raises (\w+): (.*)", lines[last - 1])
        if promised:
            with pytest.raises(Exception, match=re.escape(promised[2].strip())) as raised:
                execute(statement, namespace, where)
            assert raised.typename == promised[1], where
            continue
        shown = outputs(lines, last)
        said = execute(statement, namespace, where)
        if shown:
            assert alike(shown, said), f"{where} shows {shown}, but it is {said}"


def write_texts(folder: Path) -> None:
    """The small files that pages train, translate and evaluate with."""
    sizes, things = ("old", "new", "big", "small", "red"), ("house", "tree", "dog", "boat", "road", "hat", "cup", "sea")
    pairs = [(f"the {size} {thing}", f"{thing} {size}") for thing in things for size in sizes]
    texts = {
        "train.en": [source for source, _ in 3 * pairs],
        "train.xx": [target for _, target in 3 * pairs],
    }
    for name, lines in texts.items():
        write(folder / name, "".join(f"{line}\n" for line in lines))


def run_commands(piece: Code, recipe: str, page: Path) -> None:
    """Run the commands one by one and compare what each prints with the lines below it, if there are any."""
    for found in re.finditer(r"^\$ (.*)\n?((?:(?!\$ ).*\n?)*)", piece.text, re.MULTILINE):
        where = f"{page.name}, line {piece.line + piece.text[: found.start()].count(chr(10))}"
        for name in re.findall(r"\S+\.toml", found[1]):
            if not Path(name).exists():
                write(Path(name), recipe)
        said, shown = shell(found[1]), found[2].strip()
        assert not shown or alike(shown, said), f"{where} shows {shown}, but it is {said}"


def shell(command: str) -> str:
    """What a command prints: programs joined by "|", perhaps with "> file" at the end; `jumok` in this process."""
    pipe, _, file = command.partition(" > ")
    text = ""
    for program in pipe.split(" | "):
        words = shlex.split(program)
        if words[0] == "jumok":
            text = well(*words[1:], stdin=text).out
        else:
            text = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    if file:
        write(Path(file), text)
    return "" if file else text


def execute(statement: ast.stmt, namespace: dict[str, Any], where: str) -> str:
    """What the statement prints, or the value of an expression that prints nothing."""
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), where, "eval"), namespace)
        else:
            exec(compile(ast.Module([statement], []), where, "exec"), namespace)
    return printed.getvalue() or repr(value)


def outputs(lines: list[str], last: int) -> str:
    """The `# -> ...` beside a statement that ends on that line, or on the comment lines below it."""
    beside = re.search(r"# -> (.*)", lines[last - 1])
    if beside:
        return beside[1]
    below = []
    for line in lines[last:]:
        found = re.fullmatch(r"\s*#(?: ->)?(.*)", line)
        if not found or not (below or "# ->" in line):
            break
        below.append(found[1])
    return "\n".join(below)


def alike(shown: str, said: str) -> bool:
    """Equal but for spaces, and for numbers within one of the last digit shown."""
    if re.sub(r"\s+", "", NUMBER.sub("#", shown)) != re.sub(r"\s+", "", NUMBER.sub("#", said)):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(said), strict=True)
    return all(abs(float(one) - float(other)) <= 1.01 * last_digit(one) for one, other in pairs)


def last_digit(number: str) -> float:
    """What the last digit of a number counts; whole numbers must be equal."""
    digits, _, exponent = number.partition("e")
    decimals = len(digits.partition(".")[2])
    return 0.0 if not decimals and not exponent else 10.0 ** (int(exponent or 0) - decimals)


def without_code(page: str) -> str:
    return re.sub(r"```.*?```", "", page, flags=re.DOTALL)


def headings(page: Path) -> set[str]:
    """The names by which links reach the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> set[str]:
    """The local files a page shows or points to."""
    text = without_code(page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'(?:src|href)="([^"#]+)"', text)
    return {target for target in targets if not re.match(r"[a-z]+:", target)}
