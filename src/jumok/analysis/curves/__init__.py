"""Curves: training, gradient reach, time against length."""
