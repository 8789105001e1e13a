"""Faster twins of the functions in `jumok.attention`: the same contract, held together by tests."""
