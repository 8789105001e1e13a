"""Whether torch.func (vmap, grad, jvp, ...), forward-mode differentiation or a compiler is tracing the program.

Traced tensors have no numbers to read. Our own operators have no rules for torch.func, and PyTorch's fused attention on
a CPU has none for vmap and would run for one entry after another; the direct backend consists of plain operations.
"""

import torch
from torch import Tensor
from torch.autograd import forward_ad

REASON = "it has no rules for torch.func and forward-mode differentiation"


def in_transform() -> bool:
    """Whether torch.func or forward-mode differentiation is active; always False under torch.compile."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_traced() -> bool:
    """Whether a compiler, torch.func or forward-mode differentiation is active."""
    return torch.compiler.is_compiling() or in_transform()


def is_exported() -> bool:
    """Whether torch.export is tracing; up to PyTorch 2.11, `torch.compiler.is_exporting` is so in torch.compile too."""
    return torch.compiler._is_exporting_flag


def is_readable(tensor: Tensor) -> bool:
    """Whether the numbers can be read cheaply: reading from an accelerator would make the host wait."""
    return tensor.is_cpu and not is_traced()


def is_symbolic(*sizes: int) -> bool:
    """Whether a size is symbolic, so that a decision based on it would hold for some sizes only."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


def graph_inputs(*tensors: Tensor) -> list[Tensor]:
    """Views of the tensors as inputs of a new graph, for a second gradient.

    A gradient with respect to one of them stops there, even if another tensor depends on it or is the same tensor; the
    second gradient continues into their history.
    """
    return [tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in tensors]
