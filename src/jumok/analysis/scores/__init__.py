"""How good outputs are: metrics, significance, length bands, statistics of outputs."""
