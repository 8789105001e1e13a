"""Faster twins of the functions in `jumok.attention`: the same contract, held together by tests.

Additive attention on a CPU: additive_cpu, and additive_steps for a decoder's loop. On a GPU, from the inside out:
additive_tanh (one number), additive_prepare (one query or key), additive_tiles (scores), additive_passes (softmax and
values; few queries in one pass), additive_upstream and additive_gradients (backward), additive_few (backward for few
queries); additive_fused and additive_backward launch them, additive_ops tells PyTorch.
"""
