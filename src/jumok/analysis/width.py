"""How wide a text is in a terminal: Hangul, Chinese and Japanese letters take two cells."""

from rich.cells import cell_len, set_cell_size


def cells(text: str) -> int:
    """The number of terminal cells."""
    return cell_len(text)


def fitted(text: str, width: int) -> str:
    """The text cut or filled with spaces to exactly `width` cells."""
    return set_cell_size(text, width)
