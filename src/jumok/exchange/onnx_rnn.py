"""The equations of recurrent encoders and decoders as ONNX graphs (Bahdanau et al. 2015, Luong et al. 2015)."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from jumok.exchange.onnx_graph import OnnxGraph
from jumok.exchange.onnx_transformer import embed, never_written
from jumok.layers import CoverageAttention, Recurrence
from jumok.models.rnn.attention import BahdanauStep, FixedContext, LuongStep
from jumok.models.rnn.decoder import RnnDecoder
from jumok.models.rnn.encoder import RnnEncoder

OPERATORS = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
GATES = {"rnn": [0], "gru": [1, 0, 2], "lstm": [0, 3, 1, 2]}
"""Where PyTorch has the gates that ONNX wants in turn: z r h of a GRU, i o f c of an LSTM."""


def rnn_encoder(g: OnnxGraph, encoder: RnnEncoder, source: str, visible: str) -> tuple[str, str]:
    """The states of a source, and the last one of each direction."""
    lengths = g("ReduceSum", g("Cast", visible, to=g.library.TensorProto.INT32), g.integers(1), keepdims=0)
    x, ends = g("Transpose", embed(g, encoder.embedding, source), perm=[1, 0, 2]), list[str]()
    for number, forwards in enumerate(encoder.forwards):
        directions = [(forwards, "forward")]
        if encoder.backwards is not None:
            directions.append((encoder.backwards[number], "reverse"))
        outputs = [_recurrence(g, cast(Recurrence, layer), x, lengths, direction) for layer, direction in directions]
        x, ends = _joined(g, [states for states, _ in outputs]), [last for _, last in outputs]
    return g("Transpose", x, perm=[1, 0, 2]), _joined(g, ends)


def _recurrence(g: OnnxGraph, layer: Recurrence, x: str, lengths: str, direction: str) -> tuple[str, str]:
    """All states of a recurrence, zeros after the end, and its last one."""
    weight, recurrent, bias, recurrent_bias = (_gates(part, layer.cell) for part in layer.rnn.all_weights[0])
    both = torch.cat([bias, recurrent_bias])[None]
    options = {"linear_before_reset": 1} if layer.cell == "gru" else {}
    states, last = g.several(
        OPERATORS[layer.cell], 2, x, g.weight(weight[None].clone()), g.weight(recurrent[None].clone()), g.weight(both),
        lengths, direction=direction, hidden_size=layer.width, **options,
    )  # fmt: skip
    return g.drop_axes(states, 1), g.drop_axes(last, 0)


def _gates(part: Tensor, cell: str) -> Tensor:
    gates = part.detach().chunk(len(GATES[cell]))
    return torch.cat([gates[number] for number in GATES[cell]])


def _joined(g: OnnxGraph, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else g("Concat", *parts, axis=-1)


class RnnStep:
    """One step of a recurrent decoder: the source as memory; recurrent states, fed states and coverage as state."""

    def __init__(self, decoder: RnnDecoder) -> None:
        self.decoder, self.vocabulary, self.never = decoder, decoder.vocabulary, never_written(decoder.vocabulary)
        recurrence, mechanism = decoder.recurrence, decoder.look
        self.memory = ("context",) if isinstance(mechanism, FixedContext) else ("bias", "source_states", "source_keys")
        self.recurrent = [
            [f"{part}_{layer}" for part in ("h", "c")[: recurrence.parts]] for layer in range(recurrence.layers)
        ]
        fed = ["fed"] if isinstance(mechanism, LuongStep) and mechanism.input_feeding else []
        covered = ["coverage"] if isinstance(mechanism, BahdanauStep) and decoder.config.coverage else []
        self.states = (*chain(*self.recurrent), *fed, *covered)

    def axes(self, part: str, *, after: bool = False) -> tuple[str | int, ...]:
        """The axes of a part of the memory or the state."""
        if part in ("bias", "coverage"):
            return ("batch", "source")
        if part in ("source_states", "source_keys"):
            return ("batch", "source", f"{part} width")
        return ("batch", "encoder width") if part == "context" else ("batch", self.decoder.config.width)

    def prepare(self, g: OnnxGraph, source: Any) -> dict[str, str]:
        """The memory, and s(0) = tanh(W summary)."""
        decoder, mechanism = self.decoder, self.decoder.look
        parts: dict[str, str] = {"context": source.summary}
        if isinstance(mechanism, BahdanauStep | LuongStep):
            to_key = getattr(mechanism.attention, "to_key", None)
            keys = source.states if to_key is None else g.linear(source.states, to_key)
            parts = {"bias": source.bias, "source_states": source.states, "source_keys": keys}
        first = g("Tanh", g.linear(source.summary, decoder.to_first))
        names = list(chain(*self.recurrent))
        pieces = g.several("Split", len(names), first, axis=-1, num_outputs=len(names))
        parts |= dict(zip(names, pieces, strict=True))
        if "fed" in self.states:
            parts["fed"] = g.scale(pieces[-1], 0.0)
        if "coverage" in self.states:
            parts["coverage"] = g.scale(source.bias, 0.0)
        return parts

    def step(self, g: OnnxGraph, token: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """The logits of the next token, and the state after it."""
        decoder, mechanism = self.decoder, self.decoder.look
        word, after = embed(g, decoder.embedding, token), dict[str, str]()
        if isinstance(mechanism, LuongStep):
            states = self._cells(g, _joined(g, [word, *([parts["fed"]] if "fed" in parts else [])]), parts, after)
            query = g.linear(states, mechanism.attention.to_query) if mechanism.attention.score == "concat" else states
            context, _ = self._attended(g, query, parts, getattr(mechanism.attention, "v", None))
            output = g("Tanh", g.linear(g("Concat", context, states, axis=-1), mechanism.attention.to_state))
            if "fed" in parts:
                after["fed"] = output
        else:
            context = self._context(g, mechanism, parts, after)
            states = self._cells(g, g("Concat", word, context, axis=-1), parts, after)
            features = g("Concat", states, word, context, axis=-1)
            output = g("Tanh", g.linear(features, cast(nn.Linear, decoder.to_readout)))
        return g.linear(output, decoder.output), after

    def _context(self, g: OnnxGraph, mechanism: nn.Module, parts: Mapping[str, str], after: dict[str, str]) -> str:
        """c of Bahdanau's attention from the state before, or the fixed one."""
        if not isinstance(mechanism, BahdanauStep):
            return parts["context"]
        attention = mechanism.attention
        query, coverage = g.linear(parts[self.recurrent[-1][0]], attention.to_query), parts.get("coverage")
        keys = parts["source_keys"]
        if coverage is not None:
            vector = g.weight(cast(CoverageAttention, attention).w)
            keys = g("Add", keys, g("Mul", g.add_axes(coverage, 2), vector))
        context, weights = self._attended(g, query, {**parts, "source_keys": keys}, attention.v)
        if coverage is not None:
            after["coverage"] = g("Add", coverage, weights)
        return context

    def _attended(self, g: OnnxGraph, query: str, parts: Mapping[str, str], v: Tensor | None) -> tuple[str, str]:
        """Σ αᵢ hᵢ and α, with scores v · tanh(q + k), or q · k without v."""
        query, keys = g.add_axes(query, 1), parts["source_keys"]
        if v is None:
            scores = g("ReduceSum", g("Mul", query, keys), g.integers(2), keepdims=0)
        else:
            scores = g.drop_axes(g("MatMul", g("Tanh", g("Add", query, keys)), g.weight(v[:, None])), 2)
        weights = g("Softmax", g("Add", scores, parts["bias"]), axis=-1)
        return g.drop_axes(g("MatMul", g.add_axes(weights, 1), parts["source_states"]), 1), weights

    def _cells(self, g: OnnxGraph, x: str, parts: Mapping[str, str], after: dict[str, str]) -> str:
        """The states of all layers go to `after`; returns that of the top layer."""
        recurrence = self.decoder.recurrence
        for names, (weight, recurrent, bias, recurrent_bias) in zip(
            self.recurrent, recurrence.rnn.all_weights, strict=True
        ):
            before = [parts[name] for name in names]
            from_input = g("Gemm", x, g.weight(weight), g.weight(bias), transB=1)
            from_state = g("Gemm", before[0], g.weight(recurrent), g.weight(recurrent_bias), transB=1)
            new = CELLS[recurrence.cell](g, from_input, from_state, before)
            after |= dict(zip(names, new, strict=True))
            x = new[0]
        return x


def _rnn(g: OnnxGraph, from_input: str, from_state: str, before: list[str]) -> list[str]:
    """h = tanh(W x + U h)."""
    return [g("Tanh", g("Add", from_input, from_state))]


def _gru(g: OnnxGraph, from_input: str, from_state: str, before: list[str]) -> list[str]:
    """h = (1 − z) n + z h, with n = tanh(W x + r · U h)."""
    inputs, states = (g.several("Split", 3, part, axis=-1, num_outputs=3) for part in (from_input, from_state))
    reset, update = (g("Sigmoid", g("Add", *gate)) for gate in zip(inputs[:2], states[:2], strict=True))
    new = g("Tanh", g("Add", inputs[2], g("Mul", reset, states[2])))
    return [g("Add", new, g("Mul", update, g("Sub", before[0], new)))]


def _lstm(g: OnnxGraph, from_input: str, from_state: str, before: list[str]) -> list[str]:
    """c = f · c + i · g, h = o · tanh(c)."""
    into, forget, new, out = g.several("Split", 4, g("Add", from_input, from_state), axis=-1, num_outputs=4)
    kept, added = g("Mul", g("Sigmoid", forget), before[1]), g("Mul", g("Sigmoid", into), g("Tanh", new))
    cell = g("Add", kept, added)
    return [g("Mul", g("Sigmoid", out), g("Tanh", cell)), cell]


CELLS = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}
