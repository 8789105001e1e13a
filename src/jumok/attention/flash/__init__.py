"""Softmax attention over dot products on a GPU: Triton kernels that never read what is hidden from everybody."""
