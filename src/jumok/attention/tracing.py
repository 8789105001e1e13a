"""Whether torch.func (vmap, grad, jvp and what is made of them), forward-mode differentiation or a compiler is at work.

Their tensors hold no numbers to look at. Operators of our own have no rules for torch.func, and PyTorch's fused
attention on a CPU none for vmap, so that it would run for one entry after another: the direct form is all plain
operations.
"""

import torch
from torch import Tensor
from torch.autograd import forward_ad

REASON = "it has no rules for torch.func and forward-mode differentiation"


def in_transform() -> bool:
    """Whether a transformation is being traced; never while torch.compile is, which has its own ways."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_readable(tensor: Tensor) -> bool:
    """Whether its numbers can be looked at without cost: on an accelerator the host would have to wait for them."""
    return tensor.is_cpu and not torch.compiler.is_compiling() and not in_transform()


def is_symbolic(*sizes: int) -> bool:
    """Whether a size is left open in a program being exported: a choice made by it would hold for some sizes only."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


def graph_inputs(*tensors: Tensor) -> list[Tensor]:
    """The same tensors as inputs of a graph of its own, for the gradient of a gradient.

    A gradient with respect to one of them stops there, even where another depends on it or is the same tensor; their
    own history goes on behind.
    """
    return [tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in tensors]
