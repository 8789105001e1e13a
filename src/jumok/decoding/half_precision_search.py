"""Beam search in half precision, by a copy of the model, and again in single precision where numbers grew too large."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from jumok.decoding.beam import beam_search
from jumok.decoding.config import SearchConfig
from jumok.decoding.constrained import constrained_search
from jumok.decoding.encoder_graphs import encode
from jumok.decoding.hypotheses import Hypothesis, Observer, Specials
from jumok.decoding.patterns import Constraints
from jumok.layers.recorded import is_recorded
from jumok.models.encoder_decoder import EncoderDecoder, Encoding

Model = TypeVar("Model", bound=nn.Module)

DTYPES = {"float32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

_copies: "WeakKeyDictionary[nn.Module, nn.Module]" = WeakKeyDictionary()


@torch.no_grad()
def search_in_precision(
    model: EncoderDecoder,
    inputs: Sequence[Tensor],
    specials: Specials,
    config: SearchConfig,
    *,
    n_best: int | None = None,
    observe: Observer | None = None,
    check: Callable[[], None] | None = None,
    constraints: Constraints | None = None,
    more: Sequence[Sequence[Tensor]] = (),
) -> list[list[Hypothesis]]:
    """What `beam_search` finds for the inputs of the model's encoder, in the precision of the settings.

    With `constraints`, it is what `constrained_search` finds. Inputs without a finite score in half precision are
    searched again in the precision of the weights. `more` are further batches of inputs: without constraints, they wait
    for finished ones to make room.
    """
    quick, batches, rows = in_precision(model, precision_of(config, model)), [inputs, *more], len(inputs[0])

    def search_with(
        model: EncoderDecoder, batches: Sequence[Sequence[Tensor]], observe: Observer | None
    ) -> list[list[Hypothesis]]:
        decoder, encoding = model.decoder, Encoding.joined([encode(model.encoder, *batch) for batch in batches])
        if constraints is None:
            return beam_search(decoder, encoding, specials, config, observe, n_best=n_best, check=check, rows=rows)
        return constrained_search(decoder, encoding, specials, config, constraints, observe, n_best=n_best, check=check)

    outputs = search_with(quick, batches, observe)
    failed = [number for number, hypotheses in enumerate(outputs) if not hypotheses]
    if quick is model or not failed:
        return outputs
    if constraints is not None:  # which are those of all inputs
        return [first or again for first, again in zip(outputs, search_with(model, batches, None), strict=True)]
    for number, hypotheses in zip(failed, search_with(model, _only(batches, failed), None), strict=True):
        outputs[number] = hypotheses
    return outputs


def _only(batches: Sequence[Sequence[Tensor]], numbers: Sequence[int]) -> list[list[Tensor]]:
    """Some inputs, counted over all batches; batches without any are left out."""
    kept, start = [], 0
    for batch in batches:
        rows = [number - start for number in numbers if start <= number < start + len(batch[0])]
        if rows:
            kept.append([part[rows] for part in batch])
        start += len(batch[0])
    return kept


def precision_of(config: SearchConfig, model: nn.Module) -> torch.dtype:
    """The dtype of the weights during search: by default their own, but fp16 for float32 weights on a GPU."""
    weight = next(model.parameters())
    if config.precision in DTYPES:
        return DTYPES[config.precision]
    return torch.float16 if weight.is_cuda and weight.dtype == torch.float32 else weight.dtype


def in_precision(model: Model, dtype: torch.dtype) -> Model:
    """The model, or its copy in another precision, which is kept and given the weights as they are now.

    A recorded model runs in the precision of its weights, because nothing listens to the modules of a copy.
    """
    weight = next(model.parameters())
    if weight.dtype == dtype or is_recorded(model):
        return model
    copy = _copies.get(model)
    if copy is None or (copied := next(copy.parameters())).dtype != dtype or copied.device != weight.device:
        with torch.inference_mode(False):
            copy = _copies[model] = deepcopy(model).to(dtype).requires_grad_(False).eval()
            for layer in copy.modules():
                if isinstance(layer, nn.RNNBase):
                    layer.flatten_parameters()  # a copy's weights are scattered, and cuDNN would join them every time
    for mine, now in ((copy.parameters(), model.parameters()), (copy.buffers(), model.buffers())):
        if old := list(mine):
            torch._foreach_copy_(old, list(now))
    return copy  # type: ignore[return-value]
