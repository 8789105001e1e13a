"""jumok (주목): one attention mechanism, from kernel regression to the Transformer and graph attention."""

__version__ = "0.1.0"
