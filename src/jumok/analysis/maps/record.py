"""Record the attention weights of chosen layers while a model runs; all other layers keep their speed.

A recorded layer of jumok still runs its fused kernel; its weights are recomputed from queries and keys. PyTorch's own
layers return weights only on their slow path, so only the recorded ones take it. Layers of other libraries are
recorded where they call scaled_dot_product_attention.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.analysis.maps.record_sdpa import sdpa_layers, seen_calls
from jumok.errors import ArgumentError
from jumok.layers import AdditiveAttention, CoverageAttention, LuongAttention, MultiHeadAttention
from jumok.layers.transformer import DecoderLayer, EncoderLayer

LayerKind = Literal["encoder", "decoder", "cross", "attention"]
"""Self-attention of an encoder or a decoder, attention of a decoder to the source, or a single attention layer."""

LayerWeights = Float[Tensor, "batch head query key"]
OURS = (MultiHeadAttention, AdditiveAttention, LuongAttention)
RETURNS_WEIGHTS = (*OURS, nn.MultiheadAttention)
"""Layers that return their weights; others are recorded where they call scaled_dot_product_attention."""
ASK_FOR_SDPA = (
    " in the thread that records, or did not call scaled_dot_product_attention; load Hugging Face models with "
    'attn_implementation="sdpa"'
)
ONE_PASS = (
    "; the model ran step by step, as `generate` does; inside of record, run it once over the whole output: "
    "model(input_ids=…, decoder_input_ids=…)"
)
TORCH_ARGUMENTS = signature(nn.MultiheadAttention.forward)


class AttentionLayer(NamedTuple):
    """An attention layer of a model: its kind, its number among the layers of this kind, and its module."""

    kind: LayerKind
    number: int
    name: str
    module: nn.Module


@dataclass(repr=False)
class Recording:
    """The weights of every recorded layer, call by call; differentiable if gradients were enabled."""

    layers: tuple[AttentionLayer, ...]
    calls: dict[str, list[list[LayerWeights]]] = field(default_factory=dict)
    """By the name of a layer, for each run of the model, the weights of each call."""

    def __repr__(self) -> str:
        """The recorded layers, without their weights."""
        names = ", ".join(layer.name for layer in self.layers)
        return f"{type(self).__name__}({names}; {max(map(len, self.calls.values()), default=0)} runs)"

    def _repr_html_(self) -> str:
        """The last run as the output of a notebook cell."""
        from jumok.analysis.draw.notebook import recording_html  # only here, as in AttentionMap

        return recording_html(self)

    def weights(self, layer: int | None = None, kind: LayerKind | None = None) -> LayerWeights:
        """Return the weights of one layer in the last run of the model.

        A recurrent decoder attends once per target position; the weights of all positions are stacked.
        """
        recorded = self._layer(layer, kind)
        runs = [run for run in self.calls.get(recorded.name, []) if run]
        if not runs:
            raise ArgumentError(
                f"{recorded.name} has no recorded weights, because it did not run"
                + ("" if isinstance(recorded.module, RETURNS_WEIGHTS) else ASK_FOR_SDPA)
            )
        try:
            return torch.cat(runs[-1], 2)
        except RuntimeError:
            raise ArgumentError(
                f"{recorded.name} ran {len(runs[-1])} times over sources of different lengths, so the calls do not "
                f"form one matrix; read each call: recording.calls[{recorded.name!r}]"
            ) from None

    def map(
        self,
        source: Sequence[str],
        target: Sequence[str] | None = None,
        *,
        layer: int | Sequence[int] | None = None,
        kind: LayerKind | None = None,
        sentence: int = 0,
    ) -> AttentionMap:
        """Return the map of one sentence of the batch between the given words.

        `target` defaults to `source`, and `layer` to all recorded layers of the kind. Every position has a word but
        those of padding at the end; an ArgumentError if the positions without one are not padding.
        """
        target = source if target is None else target
        kind = self._kind(kind)
        every = [recorded.number for recorded in self.layers if recorded.kind == kind]
        numbers = every if layer is None else [layer] if isinstance(layer, int) else list(layer)
        of_layers = [self.weights(number, kind) for number in numbers]
        stacked = torch.stack([weights[sentence] for weights in of_layers]).detach().float().cpu()
        queries, keys = stacked.shape[2:]
        if len(target) > queries or len(source) > keys:
            raise ArgumentError(
                f"there are {len(target)} target and {len(source)} source words, but only {queries} × {keys} weights"
                + (ONE_PASS if queries == 1 < len(target) else "")
            )
        if _leaves_out_words(stacked, len(target), len(source), alone=len(of_layers[0]) == 1):
            raise ArgumentError(
                f"there are {len(target)} target and {len(source)} source words, but {queries} × {keys} weights; name "
                "every position that is not padding, such as the end of the sentence"
            )
        return _cut_map(stacked, source, target, kind, numbers)

    def first_positions(self, kind: LayerKind, most: int) -> AttentionMap:
        """Return the map of the first sentence between its positions, at most `most` on each side."""
        numbers = [recorded.number for recorded in self.layers if recorded.kind == kind]
        rows = [self.weights(number, kind)[0, :, :most, :most] for number in numbers]
        stacked = torch.stack(rows).detach().float().cpu()
        target, source = ([str(number) for number in range(size)] for size in stacked.shape[2:])
        return _cut_map(stacked, source, target, kind, numbers)

    def kinds(self) -> tuple[LayerKind, ...]:
        """Return the kinds of the recorded layers."""
        return tuple(dict.fromkeys(layer.kind for layer in self.layers))

    def add(self, name: str, weights: Tensor) -> None:
        """Keep the weights of one call."""
        self.calls.setdefault(name, [[]])[-1].append(weights)

    def begin_run(self) -> None:
        """Start the next run of the model."""
        for runs in self.calls.values():
            if runs[-1]:
                runs.append([])

    def _kind(self, kind: LayerKind | None) -> LayerKind:
        returning = all(isinstance(layer.module, RETURNS_WEIGHTS) for layer in self.layers)
        if not returning and not any(run for runs in self.calls.values() for run in runs):
            raise ArgumentError(f"no attention call was seen, because the model did not run{ASK_FOR_SDPA}")
        kinds = self.kinds()
        if kind is None and len(kinds) > 1:
            raise ArgumentError(f"several kinds of attention were recorded; set kind to one of {', '.join(kinds)}")
        if kind is not None and kind not in kinds:
            raise ArgumentError(f"kind = {kind!r} was not recorded; choose from {', '.join(kinds)}")
        return kinds[0] if kind is None else kind

    def _layer(self, number: int | None, kind: LayerKind | None) -> AttentionLayer:
        kind = self._kind(kind)
        of_kind = [layer for layer in self.layers if layer.kind == kind]
        matching = [layer for layer in of_kind if number in (None, layer.number)]
        if len(matching) == 1:
            return matching[0]
        numbers = ", ".join(str(layer.number) for layer in of_kind)
        raise ArgumentError(f"layer = {number} of kind {kind!r} must be one of the recorded layers: {numbers}")


def _leaves_out_words(
    weights: Float[Tensor, "layer head query key"], targets: int, sources: int, *, alone: bool
) -> bool:
    """Whether positions after the given numbers of words are surely not padding, to which nothing attends.

    A sentence that is alone in its batch has no padding but where no query at all attends.
    """
    queries, keys = weights.shape[2:]
    if bool((weights[:, :, :targets, sources:] > 0).any()):
        return True
    padded = sources < keys and not bool((weights[:, :, :, sources:] > 0).any())
    return alone and not padded and (targets, sources) != (queries, keys)


def _cut_map(
    weights: Float[Tensor, "layer head query key"],
    source: Sequence[str],
    target: Sequence[str],
    kind: LayerKind,
    numbers: Sequence[int],
) -> AttentionMap:
    names = tuple(f"{kind} {number}" for number in numbers)
    shown: MapKind = "cross" if kind == "attention" else kind
    cut = weights[:, :, : len(target), : len(source)]
    return AttentionMap(tuple(source), tuple(target), cut, layer_names=names, kind=shown)


@contextmanager
def record(
    model: nn.Module, layers: Sequence[int] | None = None, kinds: Sequence[LayerKind] | None = None
) -> Iterator[Recording]:
    """Record the weights of chosen attention layers within a `with` block; afterwards the model is unchanged.

    `layers` are counted from 0 (-1 is the last) and default to all; `kinds` are some of "encoder", "decoder", "cross"
    and "attention". The model can be one of jumok's, contain torch.nn.MultiheadAttention, alone or inside torch's
    Transformer layers, or have modules named after attention that call scaled_dot_product_attention, as the models of
    Hugging Face do; the outputs of those do not change by a bit.
    """
    chosen = _chosen(attention_layers(model), layers, kinds)
    recording = Recording(chosen)
    with ExitStack() as undo:
        undo.callback(model.register_forward_pre_hook(lambda *_: recording.begin_run()).remove)
        for layer in chosen:
            if isinstance(layer.module, RETURNS_WEIGHTS):
                _listen(layer, recording, undo)
        names = {layer.module: layer.name for layer in chosen if not isinstance(layer.module, RETURNS_WEIGHTS)}
        if names:  # only then, because PyTorch's own layers leave their fast path while function modes are active
            undo.enter_context(seen_calls(list(names), lambda layer, weights: recording.add(names[layer], weights)))
        _without_nested_tensors(model, chosen, undo)
        yield recording


def attention_layers(model: nn.Module) -> tuple[AttentionLayer, ...]:
    """Return every attention layer that can be recorded, in the order of the model."""
    names = {module: name for name, module in model.named_modules()}
    roles: dict[nn.Module, LayerKind] = {}
    for module in model.modules():
        roles |= _roles(module)
    returning = [module for module in model.modules() if isinstance(module, RETURNS_WEIGHTS)]
    roles |= sdpa_layers(model, returning)
    counts: dict[LayerKind, int] = dict.fromkeys(get_args(LayerKind), 0)
    layers = []
    for module in model.modules():
        if isinstance(module, RETURNS_WEIGHTS) or module in roles:
            kind = roles.get(module, "attention")
            layers.append(AttentionLayer(kind, counts[kind], names[module] or type(module).__name__, module))
            counts[kind] += 1
    return tuple(layers)


def _roles(parent: nn.Module) -> dict[nn.Module, LayerKind]:
    """Return the kinds of the attention layers inside a Transformer layer or a recurrent decoder."""
    if isinstance(parent, EncoderLayer):
        return {parent.own: "encoder"}
    if isinstance(parent, DecoderLayer):
        return {parent.own: "decoder", parent.cross: "cross"}
    if isinstance(parent, nn.TransformerEncoderLayer):
        return {parent.self_attn: "encoder"}
    if isinstance(parent, nn.TransformerDecoderLayer):
        return {parent.self_attn: "decoder", parent.multihead_attn: "cross"}
    return {child: "cross" for child in parent.children() if isinstance(child, AdditiveAttention | LuongAttention)}


def _chosen(
    available: tuple[AttentionLayer, ...], numbers: Sequence[int] | None, kinds: Sequence[LayerKind] | None
) -> tuple[AttentionLayer, ...]:
    if not available:
        raise ArgumentError("this model has no attention layers that can be recorded")
    if isinstance(kinds, str):
        raise ArgumentError(f"kinds must be a list, but it is {kinds!r}; write [{kinds!r}]")
    known = list(dict.fromkeys(layer.kind for layer in available))
    for kind in kinds or ():
        if kind not in known:
            raise ArgumentError(f"kinds contains {kind!r}, but this model has {', '.join(known)}")
    of_kind = [[layer for layer in available if layer.kind == kind] for kind in kinds or known]
    if numbers is None:
        return tuple(layer for layers in of_kind for layer in layers)
    most = max(map(len, of_kind))
    for number in numbers:
        if not -most <= number < most:
            raise ArgumentError(f"layers contains {number}, but there are {most}, counted from 0")
    return tuple(
        layer
        for layers in of_kind
        for layer in layers
        if layer.number in numbers or layer.number - len(layers) in numbers
    )


def _listen(layer: AttentionLayer, recording: Recording, undo: ExitStack) -> None:
    module = layer.module
    if isinstance(module, nn.MultiheadAttention):
        before, after = _torch_hooks(lambda weights: recording.add(layer.name, weights))
        undo.callback(module.register_forward_pre_hook(before, with_kwargs=True, prepend=True).remove)
        undo.callback(module.register_forward_hook(after).remove)
    elif isinstance(module, MultiHeadAttention | CoverageAttention):
        name = "_attend" if isinstance(module, MultiHeadAttention) else "attend"  # all calls of the layer end here
        undo.callback(_restore, module, name, module.__dict__.get(name))
        setattr(module, name, _recorded(getattr(module, name), recording, layer.name))
    else:
        handle = module.register_forward_hook(lambda _, __, out: recording.add(layer.name, _matrix(out.weights)))
        undo.callback(handle.remove)


def _restore(module: nn.Module, name: str, outer: Any) -> None:
    """Give a module its own method back, or that of a recording around this one."""
    setattr(module, name, outer) if outer is not None else delattr(module, name)


def _recorded(attend: Callable[..., Any], recording: Recording, name: str) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Any:
        attended = attend(*args, **kwargs)
        recording.add(name, _matrix(attended.weights))
        return attended

    return recorded


def _matrix(weights: Any) -> LayerWeights:
    """Return [batch, head, query, key], with one head for a layer without heads."""
    built: Tensor = weights if isinstance(weights, Tensor) else weights()
    return built[:, None] if built.dim() == 3 else built


def _torch_hooks(keep: Callable[[LayerWeights], None]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make nn.MultiheadAttention return the weights of every head, and its caller receive what it requested."""
    requested: list[tuple[bool, bool]] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        call = TORCH_ARGUMENTS.bind(module, *args, **kwargs)
        call.apply_defaults()
        call.arguments.pop("self")
        requested.append((call.arguments["need_weights"], call.arguments["average_attn_weights"]))
        return (), {**call.arguments, "need_weights": True, "average_attn_weights": False}

    def after(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> Any:
        values, weights = output
        keep(weights if weights.dim() == 4 else weights[None])
        need_weights, average = requested.pop()
        if not need_weights:
            return values, None
        return values, weights.mean(-3) if average else weights

    return before, after


def _without_nested_tensors(model: nn.Module, layers: Sequence[AttentionLayer], undo: ExitStack) -> None:
    """Turn off nested tensors in stacks with a recorded layer, because only fused layers accept them."""
    recorded = {layer.module for layer in layers}
    for stack in model.modules():
        if isinstance(stack, nn.TransformerEncoder) and recorded & set(stack.modules()):
            undo.callback(setattr, stack, "use_nested_tensor", stack.use_nested_tensor)
            stack.use_nested_tensor = False
