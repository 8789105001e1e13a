"""jumok (주목): one attention mechanism, from kernel regression to the Transformer and graph attention."""

from jumok.cpu import avoid_broken_amx

__version__ = "0.1.0"

avoid_broken_amx()
