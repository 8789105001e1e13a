"""Draw attention maps as PNG, PDF, SVG, HTML, text and in a terminal: `draw.save(map, "map.svg")`."""

from jumok.analysis.draw.formats import FORMATS, check_format, save, to_svg, to_terminal
from jumok.analysis.draw.page import attention_page

__all__ = ["FORMATS", "attention_page", "check_format", "save", "to_svg", "to_terminal"]
