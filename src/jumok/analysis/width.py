"""How wide a text is in a terminal: Hangul, Chinese and Japanese letters take two cells."""

from rich.cells import cell_len, set_cell_size


def cells(text: str) -> int:
    """The number of terminal cells."""
    return cell_len(text)


def fitted(text: str, width: int) -> str:
    """The text cut or filled with spaces to exactly `width` cells."""
    return set_cell_size(text, width)


def wrapped(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` columns, broken at spaces; a word that is longer is cut."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and cells(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return [line if cells(line) <= room else fitted(line, max(1, room - 1)).rstrip() + "…" for line in lines]
