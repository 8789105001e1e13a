"""Record attention while a model runs: chosen layers say where they looked, all others stay as fast as they were.

A layer of jumok runs its fused kernel also when it is recorded; its weights are rebuilt from queries and keys.
PyTorch's own layers give weights only on their slow path, so those that are recorded take it, and only those.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.errors import ArgumentError
from jumok.layers import AdditiveAttention, CoverageAttention, LuongAttention, MultiHeadAttention
from jumok.layers.transformer import DecoderLayer, EncoderLayer

Kind = Literal["encoder", "decoder", "cross", "attention"]
"""Self-attention of an encoder or a decoder, a decoder's look at its source, or an attention layer by itself."""

Weights = Float[Tensor, "batch head query key"]
OURS = (MultiHeadAttention, AdditiveAttention, LuongAttention)
TORCH_ARGUMENTS = signature(nn.MultiheadAttention.forward)


class Place(NamedTuple):
    """An attention layer of a model: what it does there, its number among those that do, and its name."""

    kind: Kind
    layer: int
    name: str
    module: nn.Module


@dataclass
class Recording:
    """The weights of every recorded layer, call by call, still differentiable where gradients were on."""

    places: tuple[Place, ...]
    calls: dict[str, list[list[Weights]]] = field(default_factory=dict)
    """By the name of a layer: for each run of the model, the weights of each call [batch, head, query, key]."""

    def weights(self, layer: int | None = None, kind: Kind | None = None) -> Weights:
        """The weights [batch, head, query, key] of one layer in the last run of the model.

        A recurrent decoder looks once for every place of the target; these looks are put together.
        """
        place = self._place(layer, kind)
        runs = [run for run in self.calls.get(place.name, []) if run]
        if not runs:
            raise ArgumentError(f"nothing was recorded of {place.name}: it did not run")
        try:
            return torch.cat(runs[-1], 2)
        except RuntimeError:
            raise ArgumentError(
                f"{place.name} ran {len(runs[-1])} times over sources of several lengths, which are not one matrix; "
                f"take them one by one: recording.calls[{place.name!r}]"
            ) from None

    def map(
        self,
        source: Sequence[str],
        target: Sequence[str] | None = None,
        *,
        layer: int | Sequence[int] | None = None,
        kind: Kind | None = None,
        sentence: int = 0,
    ) -> AttentionMap:
        """The map of one sentence of the batch, over the words given; padding after them is cut off.

        `source` are the words looked at, `target` the words that look, which default to `source`. The map has all
        recorded layers of the kind.
        """
        target = source if target is None else target
        kind = self._kind(kind)
        every = [place.layer for place in self.places if place.kind == kind]
        layers = every if layer is None else [layer] if isinstance(layer, int) else list(layer)
        stacked = torch.stack([self.weights(one, kind)[sentence] for one in layers]).detach().float().cpu()
        queries, keys = stacked.shape[2:]
        if len(target) > queries or len(source) > keys:
            raise ArgumentError(
                f"there are {len(target)} target and {len(source)} source words, but only {queries} × {keys} weights"
            )
        cut = stacked[:, :, : len(target), : len(source)]
        return AttentionMap(tuple(source), tuple(target), cut, layer_names=tuple(f"{kind} {one}" for one in layers))

    def add(self, name: str, weights: Tensor) -> None:
        """Keep the weights of one call."""
        self.calls.setdefault(name, [[]])[-1].append(weights)

    def begin_run(self) -> None:
        """What follows belongs to another run of the model."""
        for runs in self.calls.values():
            if runs[-1]:
                runs.append([])

    def _kind(self, kind: Kind | None) -> Kind:
        kinds = list(dict.fromkeys(place.kind for place in self.places))
        if kind is None and len(kinds) > 1:
            raise ArgumentError(
                f"several kinds of attention were recorded; say which: kind = one of {', '.join(kinds)}"
            )
        if kind is not None and kind not in kinds:
            raise ArgumentError(f"kind = {kind!r} was not recorded; there are {', '.join(kinds)}")
        return kinds[0] if kind is None else kind

    def _place(self, layer: int | None, kind: Kind | None) -> Place:
        kind = self._kind(kind)
        found = [place for place in self.places if place.kind == kind and layer in (None, place.layer)]
        if len(found) == 1:
            return found[0]
        numbers = ", ".join(str(place.layer) for place in self.places if place.kind == kind)
        raise ArgumentError(f"layer = {layer} of kind {kind!r}; wanted one of those recorded: {numbers}")


@contextmanager
def record(
    model: nn.Module, layers: Sequence[int] | None = None, kinds: Sequence[Kind] | None = None
) -> Iterator[Recording]:
    """Within this, chosen attention layers of `model` keep their weights; afterwards it is as it was.

    `layers` are numbers counted from 0 (-1 is the last) and default to all; `kinds` are some of "encoder", "decoder",
    "cross" and "attention". The model may be one of jumok's or hold torch.nn.MultiheadAttention, by itself or inside
    torch's Transformer layers.
    """
    places = _chosen(attention_layers(model), layers, kinds)
    recording = Recording(places)
    with ExitStack() as undo:
        undo.callback(model.register_forward_pre_hook(lambda *_: recording.begin_run()).remove)
        for place in places:
            _listen(place, recording, undo)
        _without_nested_tensors(model, places, undo)
        yield recording


def attention_layers(model: nn.Module) -> tuple[Place, ...]:
    """Every attention layer that can be recorded, in the order of the model."""
    names = {module: name for name, module in model.named_modules()}
    roles: dict[nn.Module, Kind] = {}
    for module in model.modules():
        roles |= _roles(module)
    counts: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
    places = []
    for module in model.modules():
        if isinstance(module, (*OURS, nn.MultiheadAttention)):
            kind = roles.get(module, "attention")
            places.append(Place(kind, counts[kind], names[module] or type(module).__name__, module))
            counts[kind] += 1
    return tuple(places)


def _roles(parent: nn.Module) -> dict[nn.Module, Kind]:
    """What the attention layers of a Transformer layer or a recurrent decoder are for."""
    if isinstance(parent, EncoderLayer):
        return {parent.own: "encoder"}
    if isinstance(parent, DecoderLayer):
        return {parent.own: "decoder", parent.cross: "cross"}
    if isinstance(parent, nn.TransformerEncoderLayer):
        return {parent.self_attn: "encoder"}
    if isinstance(parent, nn.TransformerDecoderLayer):
        return {parent.self_attn: "decoder", parent.multihead_attn: "cross"}
    return {child: "cross" for child in parent.children() if isinstance(child, AdditiveAttention | LuongAttention)}


def _chosen(places: tuple[Place, ...], layers: Sequence[int] | None, kinds: Sequence[Kind] | None) -> tuple[Place, ...]:
    if not places:
        raise ArgumentError("this model has no attention layers that can be recorded")
    there = list(dict.fromkeys(place.kind for place in places))
    if isinstance(kinds, str):
        raise ArgumentError(f"kinds must be a list, but it is {kinds!r}; write [{kinds!r}]")
    for kind in kinds or ():
        if kind not in there:
            raise ArgumentError(f"kinds asks for {kind!r}; this model has {', '.join(there)}")
    of_kind = {kind: [place for place in places if place.kind == kind] for kind in kinds or there}
    if layers is None:
        return tuple(place for found in of_kind.values() for place in found)
    most = max(map(len, of_kind.values()))
    for layer in layers:
        if not -most <= layer < most:
            raise ArgumentError(f"layers asks for number {layer}, but there are {most}, counted from 0")
    return tuple(
        place
        for found in of_kind.values()
        for place in found
        if place.layer in layers or place.layer - len(found) in layers
    )


def _listen(place: Place, recording: Recording, undo: ExitStack) -> None:
    module = place.module
    if isinstance(module, nn.MultiheadAttention):
        before, after = _torch_hooks(lambda weights: recording.add(place.name, weights))
        undo.callback(module.register_forward_pre_hook(before, with_kwargs=True, prepend=True).remove)
        undo.callback(module.register_forward_hook(after).remove)
    elif isinstance(module, MultiHeadAttention | CoverageAttention):
        attend = module.attend
        undo.callback(delattr, module, "attend")
        module.attend = _heard(attend, recording, place.name)  # type: ignore[method-assign]
    else:
        handle = module.register_forward_hook(lambda _, __, out: recording.add(place.name, _matrix(out.weights)))
        undo.callback(handle.remove)


def _heard(attend: Callable[..., Any], recording: Recording, name: str) -> Callable[..., Any]:
    def heard(*args: Any, **kwargs: Any) -> Any:
        attended = attend(*args, **kwargs)
        recording.add(name, _matrix(attended.weights))
        return attended

    return heard


def _matrix(weights: Any) -> Weights:
    """[batch, head, query, key]; a layer without heads has one."""
    built: Tensor = weights if isinstance(weights, Tensor) else weights()
    return built[:, None] if built.dim() == 3 else built


def _torch_hooks(keep: Callable[[Weights], None]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Ask nn.MultiheadAttention for the weights of every head, and give its caller what the caller asked for."""
    asked: list[tuple[bool, bool]] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        given = TORCH_ARGUMENTS.bind(module, *args, **kwargs)
        given.apply_defaults()
        given.arguments.pop("self")
        asked.append((given.arguments["need_weights"], given.arguments["average_attn_weights"]))
        return (), {**given.arguments, "need_weights": True, "average_attn_weights": False}

    def after(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> Any:
        values, weights = output
        keep(weights if weights.dim() == 4 else weights[None])
        need_weights, average = asked.pop()
        if not need_weights:
            return values, None
        return values, weights.mean(-3) if average else weights

    return before, after


def _without_nested_tensors(model: nn.Module, places: Sequence[Place], undo: ExitStack) -> None:
    """A stack with a recorded layer keeps padding as it is: nested tensors go through fused layers only."""
    recorded = {place.module for place in places}
    for stack in model.modules():
        if isinstance(stack, nn.TransformerEncoder) and recorded & set(stack.modules()):
            undo.callback(setattr, stack, "use_nested_tensor", stack.use_nested_tensor)
            stack.use_nested_tensor = False
