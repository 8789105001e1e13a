"""The recipes that come with jumok, which `jumok train NAME` finds from any folder."""

from difflib import get_close_matches
from pathlib import Path

from jumok.errors import ConfigError
from jumok.sections import nearest

PLACES = (Path(__file__).parent / "recipes", Path(__file__).parents[2] / "recipes")
"""Inside the installed package, and beside src/ where jumok is used from its repository."""


def shipped_recipes() -> dict[str, Path]:
    """The recipes by their names, such as small-cpu."""
    folder = next((place for place in PLACES if place.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if folder is not None else {}


def find_recipe(given: Path) -> tuple[Path, str]:
    """The recipe meant by a path or by the name of one that comes with jumok, and what is to be said of the choice.

    A file of the user's own goes before one of the same name that comes with jumok.
    """
    shipped = shipped_recipes()
    name = given.stem if given.suffix == ".toml" else given.name
    is_name = given.parent in (Path(), Path("recipes"))
    if given.exists() and not (given.is_dir() and is_name and name in shipped):
        return given, ""
    own = given.with_name(f"{given.name}.toml")
    if given.suffix != ".toml" and own.is_file():
        other = "; jumok has one of that name, too, which is not used" if is_name and name in shipped else ""
        return own, f"the recipe is {own}{other}"
    if is_name and name in shipped:
        return shipped[name], f"the recipe is {name}, which comes with jumok: {shipped[name]}"
    if given.suffix == ".toml" or not is_name:  # a file, most likely
        close = get_close_matches(name, shipped, n=1)
        raise ConfigError(f"there is no recipe {given}" + (f"; jumok has a {close[0]} of its own" if close else ""))
    raise ConfigError(f"there is no recipe {given}, and none of that name comes with jumok{nearest(name, shipped)}")
