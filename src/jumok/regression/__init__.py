"""Kernel regression: the estimator, its bandwidth and intervals, fast sums on CPU and GPU, and its picture."""
