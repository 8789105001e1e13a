"""Recurrent decoders on a GPU: all steps in one operator, with fused kernels for attention and gates."""
