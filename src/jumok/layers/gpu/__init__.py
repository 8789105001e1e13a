"""Recurrent layers on a GPU: all steps in one operator, with a fused kernel for the gates."""
