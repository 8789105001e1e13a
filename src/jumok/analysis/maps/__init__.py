"""Attention maps as plain data, and how they are recorded."""
