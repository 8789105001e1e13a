"""Whether something listens to the modules of a model, so that the modules themselves must run."""

from torch import nn

METHODS = ("_attend", "attend")
"""Methods that `jumok.record` replaces in attention layers."""


def is_recorded(model: nn.Module) -> bool:
    """Whether a module of the model has a hook, or is recorded by `jumok.record`."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or any(method in part.__dict__ for method in METHODS)
        for part in model.modules()
    )
