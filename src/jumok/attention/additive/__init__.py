"""Additive attention: the reference, and faster twins on CPU and GPU with the same contract."""
