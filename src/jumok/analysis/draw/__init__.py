"""Draw attention maps as PNG, PDF, SVG, HTML, text and in a terminal: `draw.save(map, "map.svg")`."""

from jumok.analysis.draw.chart import CHART_FORMATS
from jumok.analysis.draw.formats import FORMATS, save, to_svg, to_terminal
from jumok.analysis.draw.page import attention_page

__all__ = ["CHART_FORMATS", "FORMATS", "attention_page", "save", "to_svg", "to_terminal"]
