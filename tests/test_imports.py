"""Who may import whom: arrows point one way, and what is optional is imported only where it is used."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from jumok.cli import library
from jumok.cli.library import LazyModule

PACKAGE = Path(__file__).resolve().parents[1] / "src/jumok"
FOLDERS = {"attention", "layers", "models", "data", "training", "decoding", "analysis"}
FOLDERS |= {"regression", "graphs", "images"}
EVERYTHING = FOLDERS | {"tasks", "screen", "progress", "recipe", "model_folder", "settings", "setting_hints"}
EVERYTHING |= {"files", "soft_database", "devices"}

MAY_IMPORT = {
    "attention": set(),
    "files": set(),
    "settings": {"setting_hints"},
    "data": {"files", "settings", "devices"},
    "layers": {"attention", "graphs"},
    "models": {"layers", "attention", "files", "settings", "devices"},
    "regression": {"attention", "files", "progress"},
    "soft_database": {"attention"},
    "graphs": {"settings", "attention", "data", "files", "progress"},
    "images": {"settings", "layers", "models", "data", "files", "devices", "progress"},
    "training": {"settings", "models", "layers", "attention", "data", "screen", "files", "model_folder", "devices"},
    "decoding": {"models", "layers", "attention", "data", "files", "settings", "setting_hints"},
    "analysis": {"decoding", "training", "models", "layers", "data", "files", "images", "graphs", "progress"},
    "recipe": {"files", "setting_hints", "settings"},
    "model_folder": {"models", "data", "files", "settings"},
    "tasks": EVERYTHING,
    "exchange": {"tasks", "decoding", "models", "layers", "data", "files", "model_folder", "screen"},
    "bench": FOLDERS - {"graphs", "images"} | {"screen", "devices", "progress"},
    "cli": EVERYTHING | {"serve", "exchange", "bench"},
    "serve": EVERYTHING,
    "__main__": {"cli"},
}
"""For each folder the folders of jumok it may import, besides itself and `errors`, which is open to all."""

ONLY_IN = {
    "triton": (
        "attention/additive/gpu/",
        "attention/flash/",
        "attention/triton_launch",
        "regression/gpu",
        "graphs/gpu",
        "training/loss_gpu",
        "training/gpu_kernels",
        "layers/gpu/",
        "models/rnn/gpu/",
        "decoding/gpu/",
    ),
    "matplotlib": ("analysis/", "regression/picture"),
    "fastapi": ("serve/",),
}
"""Optional packages, and the places of each."""

POINTS_BACK = {
    ("jumok.analysis.maps.attention_map", "jumok.analysis.draw.notebook"),
    ("jumok.analysis.maps.record", "jumok.analysis.draw.notebook"),
}
"""Imports against the arrows, within `_repr_html_` alone: a notebook shows maps and recordings as pictures."""

LOADERS = {"load", "import_module", "LazyModule", "__import__"}
"""Functions that import the module whose name they get."""

FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_a_file_imports_only_what_its_folder_may(file: Path):
    place = file.relative_to(PACKAGE).as_posix()
    folder = place.removesuffix(".py").partition("/")[0]
    for module in imports(file.read_text(encoding="utf-8"), package=("jumok", *Path(place).parent.parts)):
        package, _, rest = module.partition(".")
        home = ONLY_IN.get(package)
        assert home is None or place.startswith(home), f"{place} imports {package}, which belongs to {home} only"
        part = rest.partition(".")[0]
        # The face of the package, __init__.py, shows names from everywhere.
        if package == "jumok" and is_part(part) and folder != "__init__":
            assert part in {folder, "errors", *MAY_IMPORT.get(folder, set())}, f"{place} imports jumok.{part}"


@pytest.mark.slow
def test_no_module_imports_itself_by_way_of_others():
    modules = {module_name(file): file for file in FILES}
    arrows = {}
    for name, file in modules.items():
        package = tuple(name.split(".") if file.stem == "__init__" else name.split(".")[:-1])
        names = imports(file.read_text(encoding="utf-8"), package)
        owners = {full if full in modules else full.rpartition(".")[0] for full in names}
        back = {other for module, other in POINTS_BACK if module == name}
        assert back <= owners
        owners -= back
        above = {package for owner in owners for package in packages(owner)} - {*packages(name)}
        arrows[name] = {other for other in owners | above if other in modules and other != name}
    arrows["jumok"] = set()  # the face of the package shows names from everywhere
    reached = {name: reachable(name, arrows) for name in arrows}
    cycles = {name for name, others in reached.items() if name in others}
    assert cycles == set()


def test_every_folder_is_in_the_table():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= MAY_IMPORT.keys()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["matplotlib", "sklearn", "triton", "fastapi", "uvicorn", "PIL"])
def test_importing_jumok_does_not_import_what_is_optional(package: str):
    assert package not in imported_by("import jumok, jumok.attention, jumok.layers")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["maps", "scores"])
def test_maps_and_scores_load_without_what_draws_them(part: str):
    names = [module_name(file) for file in FILES if file.parent == PACKAGE / "analysis" / part]
    loaded = imported_by(f"import {', '.join(names)}")
    assert loaded >= {*names}
    assert not {name for name in loaded if name.startswith("jumok.analysis.draw")}


def test_importing_jumok_alone_does_not_wait_for_torch():
    assert "torch" not in imported_by("import jumok")


def test_the_modules_that_commands_import_lazily_are_those_that_type_checkers_see():
    tree = ast.parse((PACKAGE / "cli/library.py").read_text(encoding="utf-8"))
    declared = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {name: module.__name__ for name, module in vars(library).items() if isinstance(module, LazyModule)}
    assert {name: declared.get(name) for name in lazy} == lazy
    assert all(find_spec(name) for name in lazy.values())


def test_imports_are_found_however_they_are_written():
    source = "import a.b\nfrom jumok import data\nfrom . import x\nload('c.d')\n"
    source += "def f():\n    from ..layers.heads import y\n"
    assert set(imports(source, package=("jumok", "models"))) == {
        "a.b",
        "jumok.data",
        "jumok.models.x",
        "jumok.layers.heads.y",
        "c.d",
    }


def imports(source: str, package: tuple[str, ...]) -> Iterator[str]:
    """The full names a file imports, inside functions too; `from a import b` is a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call) and ast.unparse(node.func) in LOADERS and isinstance(node.args[0], ast.Constant)
        ):
            yield node.args[0].value


def module_name(file: Path) -> str:
    return ".".join(("jumok", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def packages(module: str) -> Iterator[str]:
    """The packages of a module; whoever imports it from outside of them runs them first."""
    while module := module.rpartition(".")[0]:
        yield module


def reachable(start: str, arrows: dict[str, set[str]]) -> set[str]:
    """All modules that a module imports, directly or by way of others."""
    found, waiting = set(), list(arrows[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += arrows[name]
    return found


def is_part(name: str) -> bool:
    """Whether jumok.NAME is a folder or a file, not just a name such as __version__."""
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() if name else False


@cache
def imported_by(statement: str) -> set[str]:
    """The modules in memory after a statement ran in a fresh interpreter."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {*shown.stdout.split()}
