"""Curves: training, score by length, gradient reach, time against length."""
