"""From attention weights to numbers and pictures."""

from jumok.analysis.draw import notebook as notebook  # gives maps and recordings their output in a notebook cell
