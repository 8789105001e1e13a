"""Transformer layers compiled for training on a GPU.

torch.compile fuses what stands between the matrix products of a layer: norms, residual connections, dropout, biases,
activation functions and changes of precision. One graph serves all layers of a kind and all shapes of batches, so it is
compiled once, before the first step. The layers keep their weights and their equations; validation, decoding and
attention maps run them as they are written.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from jumok.layers.multi_head import keys_values_of
from jumok.layers.transformer import DecoderLayer, EncoderLayer
from jumok.training.config import TrainingConfig

Layer = EncoderLayer | DecoderLayer
OFF = 'training.compile = "off" trains without it'


@contextmanager
def compiled_layers(
    model: nn.Module,
    config: TrainingConfig,
    say: Callable[[str], None],
    precision: AbstractContextManager[object],
) -> Iterator[None]:
    """Within the block, the layers of the model that learn are compiled; outside it, they are as they were.

    `precision` is the autocast of a training step. If compilation fails, the reason is said once and training goes on
    without it.
    """
    layers = [] if why_not(model, config) else [layer for layer in model.modules() if isinstance(layer, Layer)]
    kinds: list[Any] = list(dict.fromkeys(map(type, layers)))
    if kinds:
        say(f"compiling the Transformer layers for this GPU, which takes up to a minute; {OFF}")
    compiled = {kind: torch.compile(kind.values, dynamic=True) for kind in kinds}
    try:
        with precision:
            for kind in kinds:
                _try(compiled[kind], [layer for layer in layers if type(layer) is kind])
    except Exception as error:  # whatever a compiler may raise
        why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        say(f"training without compiled layers, which is slower, because compilation failed ({why})")
        layers = []
    for layer in layers:
        layer.values = partial(_values, compiled[type(layer)], layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.values


def why_not(model: nn.Module, config: TrainingConfig) -> str | None:
    """Why the layers of a model are not compiled; None if they are."""
    device = next(model.parameters()).device
    if config.compile == "off":
        return 'training.compile = "off"'
    if any(_is_watched(layer) for layer in model.modules() if isinstance(layer, Layer)):
        return "the layers have hooks, which a compiled layer does not call"
    if config.compile == "on":
        return None
    if device.type != "cuda":
        return f"the model is on {device}, not on a CUDA GPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; pip install triton"
    return None


def _is_watched(layer: nn.Module) -> bool:
    return any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())


def _values(compiled: Callable[..., Tensor], layer: Layer, *given: Any) -> Tensor:
    """The output of a layer: compiled where there is a gradient to compute."""
    kind: Any = type(layer)
    values: Tensor = (compiled if torch.is_grad_enabled() else kind.values)(layer, *given)
    return values


def _try(compiled: Callable[..., Tensor], layers: Sequence[Any]) -> None:
    """Compile forward and backward passes with a small input; sizes that differ stay independent of each other."""
    layer = layers[0].train()
    device = layer.own.to_query.weight.device
    x = torch.randn(3, 6, layer.own.to_query.in_features, device=device, requires_grad=True)
    given: tuple[Any, ...] = (torch.ones(3, 1, 1, 6, dtype=torch.bool, device=device),)
    if isinstance(layer, DecoderLayer):
        states = torch.randn(3, 5, layer.cross.to_key.in_features, device=device)
        memory = keys_values_of([each.cross for each in layers], states)[0]
        given = (memory, torch.ones(3, 1, 1, 5, dtype=torch.bool, device=device))
    learned = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    torch.autograd.grad(compiled(layer, x, *given).sum(), [x, *learned])
