"""Beam search on a GPU: the choice of hypotheses by two kernels."""
