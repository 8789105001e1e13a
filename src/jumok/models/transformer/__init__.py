"""Transformer encoders and decoders."""
