"""Softmax attention over dot products on a GPU: Triton kernels that skip keys that no query sees."""
