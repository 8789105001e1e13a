"""`jumok recipes`: the recipes that come with jumok."""

from typing import Annotated

from typer import Argument, Option

from jumok.cli.output import print_json, print_table
from jumok.errors import ArgumentError
from jumok.recipe import recipe_title, shipped_recipes
from jumok.settings import nearest


def recipes(
    name: Annotated[str | None, Argument(help="Recipe to print, such as small-cpu.", show_default=False)] = None,
    json: Annotated[bool, Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the recipes that come with jumok, or print one as a starting point for your own."""
    shipped = shipped_recipes()
    if name is not None:
        if json:
            raise ArgumentError(
                f"--json applies only to the list of recipes, and {name} is printed as TOML; leave out one of them"
            )
        if name not in shipped:
            raise ArgumentError(f"no recipe called {name} comes with jumok{nearest(name, shipped)}")
        print(shipped[name].read_text(encoding="utf-8"), end="")
        return
    titles = {recipe: recipe_title(path) for recipe, path in shipped.items()}
    if json:
        print_json(titles)
    else:
        print_table(["recipe", ""], [list(row) for row in titles.items()])
