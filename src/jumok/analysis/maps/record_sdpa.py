"""Record the attention of models that call PyTorch's scaled_dot_product_attention, such as Hugging Face's.

The layers of such a model are the innermost modules whose class is named after attention (LlamaAttention,
BertSelfAttention, …). While one of them runs, calls of scaled_dot_product_attention in the recording thread are seen
and answered as always; the weights are computed beside them from the same queries, keys and masks.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import Parameter, Signature
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Role = Literal["encoder", "decoder", "cross", "attention"]
ANY = Parameter.POSITIONAL_OR_KEYWORD
SDPA_ARGUMENTS = Signature(
    [
        *(Parameter(name, ANY) for name in ("query", "key", "value")),
        Parameter("attn_mask", ANY, default=None),
        Parameter("dropout_p", ANY, default=0.0),
        Parameter("is_causal", ANY, default=False),
        Parameter("scale", ANY, default=None),
        Parameter("enable_gqa", ANY, default=False),
    ]
)


def sdpa_weights(
    query: Float[Tensor, "*batch query dim"],
    key: Float[Tensor, "... key dim"],
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch query key"]:
    """softmax(Q Kᵀ · scale + mask), before dropout: the weights with which scaled_dot_product_attention mixes values.

    A query that sees no key has zeros. The softmax is taken in float32 at least.
    """
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    accurate = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(accurate) @ key.to(accurate).mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:  # PyTorch aligns the triangle with the first key
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~causal, float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask.to(accurate)
    blind = (scores == float("-inf")).all(-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)


def sdpa_layers(model: nn.Module, others: Sequence[nn.Module]) -> dict[nn.Module, Role]:
    """The innermost modules named after attention, which may call scaled_dot_product_attention, with their kinds.

    `others` are attention layers that are recorded in another way; a module around or inside one of them is none.
    """
    taken = {inner for layer in others for inner in layer.modules()}
    layers: dict[nn.Module, Role] = {}
    for name, module in model.named_modules():
        if _named_after_attention(module) and module not in taken:
            inside = [part for part in module.modules() if part is not module]
            if not any(_named_after_attention(part) or part in taken for part in inside):
                layers[module] = _role(name, module)
    return layers


def _named_after_attention(module: nn.Module) -> bool:
    origin = type(module).__module__.partition(".")[0]
    return "attention" in type(module).__name__.lower() and origin not in ("torch", "jumok")


def _role(name: str, module: nn.Module) -> Role:
    """The kind of a layer, from its name in the model and what it says of itself."""
    path, own = name.lower(), type(module).__name__.lower()
    if "cross" in path + own or "encdec" in path + own or "encoder_att" in path:
        return "cross"
    if getattr(module, "is_decoder", False) or getattr(module, "is_causal", False) or "decoder" in path:
        return "decoder"
    return "encoder" if "encoder" in path or hasattr(module, "is_causal") else "attention"


@contextmanager
def seen_calls(
    layers: Sequence[nn.Module], keep: Callable[[nn.Module, Float[Tensor, "batch head query key"]], None]
) -> Iterator[None]:
    """Call `keep` with the weights of every scaled_dot_product_attention that one of `layers` calls in this thread.

    Nothing is patched: the calls are seen by a function mode of this thread only, and hooks that tell which layer runs
    are removed at the end.
    """
    running: list[nn.Module] = []
    owner = threading.get_ident()

    def enter(module: nn.Module, _: Any) -> None:
        if threading.get_ident() == owner:
            running.append(module)

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        if threading.get_ident() == owner and running and running[-1] is module:
            running.pop()

    with ExitStack() as undo:
        for layer in layers:
            undo.callback(layer.register_forward_pre_hook(enter).remove)
            undo.callback(layer.register_forward_hook(leave, always_call=True).remove)
        undo.enter_context(_CallRecorder(running, keep))
        yield


class _CallRecorder(TorchFunctionMode):
    """Answers every function as always, and computes the weights beside scaled_dot_product_attention."""

    def __init__(self, running: list[nn.Module], keep: Callable[[nn.Module, Tensor], None]) -> None:
        super().__init__()
        self.running, self.keep = running, keep

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention and self.running:
            arguments = dict(SDPA_ARGUMENTS.bind(*args, **(kwargs or {})).arguments)
            arguments.pop("value")
            arguments.pop("dropout_p", None)
            weights = sdpa_weights(
                arguments.pop("query"), arguments.pop("key"), arguments.pop("attn_mask", None), **arguments
            )
            self.keep(self.running[-1], weights[:, None] if weights.dim() == 3 else weights)
        return answer
