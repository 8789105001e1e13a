"""Fused additive attention on a GPU, in Triton: forward and backward side by side."""
