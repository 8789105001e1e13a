"""Recurrent models of JoeyNMT under our names: Luong's decoder, with general ("luong") or concat ("bahdanau") scores.

Its attentional state s̃ = tanh(W [c; s] + b) has a bias, and ours has none. So each direction of the encoder gets one
more unit, whose state is the same at every position. The attention weights sum to 1, so the context contains this
constant as well, and the weight with which it enters s̃ is the bias. The unit is saturated: training does not change it.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import DataError
from jumok.exchange.checkpoints import UNLIKE, refuse

SCORES = {"luong": "general", "bahdanau": "concat"}
STARTS = ("bridge", "zero")
"""Initial states of a decoder that tanh(W h + b) can be."""
SATURATED = 30.0
GATES = {"gru": (0.0, -SATURATED, SATURATED), "lstm": (SATURATED, -SATURATED, SATURATED, SATURATED)}
"""Biases of the gates of a constant unit in PyTorch's order: reset, update and new; input, forget, cell and output."""
CONSTANTS = {"gru": 1.0, "lstm": math.tanh(1.0)}
"""The state of that unit."""


def check_recurrent(folder: Path, model: Mapping[str, Any]) -> None:
    """Raise a DataError for settings without a counterpart here."""
    encoder, decoder = model["encoder"], model["decoder"]
    start, cells = decoder.get("init_hidden", "bridge"), [part.get("rnn_type", "gru") for part in (encoder, decoder)]
    if start not in STARTS:
        raise DataError(
            f'{folder}: the decoder has init_hidden = "{start}", but jumok initialises decoders with tanh(W h + b); '
            f"recurrent models of JoeyNMT with init_hidden = {' or '.join(STARTS)} can be imported"
        )
    refuse(folder, [f'rnn_type = "{cell}"' for cell in cells if cell not in GATES])
    refuse(folder, [f'attention = "{decoder.get("attention")}"'] * (decoder.get("attention", "bahdanau") not in SCORES))
    refuse(folder, ["bidirectional: False"] * (not encoder.get("bidirectional", True)))
    refuse(folder, ['activation other than "tanh"'] * (decoder.get("activation", "tanh") != "tanh"))


def recurrent_settings(model: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The sections [encoder] and [decoder]."""

    def side(part: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": "rnn",
            "cell": part.get("rnn_type", "gru"),
            "layers": int(part.get("num_layers", 1)),
            "embedding": int(part["embeddings"]["embedding_dim"]),
            "dropout": float(part.get("dropout", 0.0)),
        }

    encoder, decoder = model["encoder"], model["decoder"]
    attention = {
        "attention": SCORES[decoder.get("attention", "bahdanau")],
        "input_feeding": bool(decoder.get("input_feeding", True)),
    }
    return {
        "encoder": {**side(encoder), "width": 2 * (int(encoder["hidden_size"]) + 1)},
        "decoder": {**side(decoder), "width": int(decoder["hidden_size"]), **attention},
    }


def recurrent_layers(folder: Path, model: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of all layers but embeddings and output."""
    settings = recurrent_settings(model)
    for side in ("encoder", "decoder"):
        size, gates = int(model[side]["hidden_size"]), len(GATES[settings[side]["cell"]])
        if state[f"{side}.rnn.weight_hh_l0"].shape != (gates * size, size):
            raise DataError(f"{folder}: the weights of the {side} do not fit its hidden_size and rnn_type; {UNLIKE}")
    encoder, decoder = settings["encoder"], settings["decoder"]
    layers = dict(_encoder(encoder, state))
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        for layer in range(decoder["layers"]):
            layers[f"decoder.recurrence.rnn.{name}_l{layer}"] = state[f"decoder.rnn.{name}_l{layer}"]
    attention = "decoder.look.attention."
    layers[attention + "to_key.weight"] = _with_constants(state["decoder.attention.key_layer.weight"])
    if decoder["attention"] == "concat":
        layers[attention + "to_query.weight"] = state["decoder.attention.query_layer.weight"]
        layers[attention + "v"] = state["decoder.attention.energy_layer.weight"].flatten()
    weight, width = state["decoder.att_vector_layer.weight"], decoder["width"]
    query, context = weight[:, :width], weight[:, width:]
    bias = state["decoder.att_vector_layer.bias"] / CONSTANTS[encoder["cell"]]
    layers[attention + "to_state.weight"] = torch.cat([_with_constants(context, bias), query], 1)
    return layers | _first_state(encoder, decoder, state)


def _first_state(
    encoder: Mapping[str, Any], decoder: Mapping[str, Any], state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """s(0) = tanh(W h + b) is the same in all layers, and for both parts of an LSTM's state; or it is zero."""
    weight = state.get("decoder.bridge_layer.weight", torch.zeros(decoder["width"], encoder["width"] - 2))
    bias = state.get("decoder.bridge_layer.bias", torch.zeros(decoder["width"]))
    copies = decoder["layers"] * (2 if decoder["cell"] == "lstm" else 1)
    return {
        "decoder.to_first.weight": _with_constants(weight).repeat(copies, 1),
        "decoder.to_first.bias": bias.repeat(copies),
    }


def _encoder(settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Every layer in both directions, each with a constant unit."""
    gates = torch.tensor(GATES[settings["cell"]])
    for layer in range(settings["layers"]):
        for direction, end in (("forwards", ""), ("backwards", "_reverse")):
            inputs, recurrent, bias, more = (
                state[f"encoder.rnn.{name}_l{layer}{end}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            inputs = _with_constants(inputs) if layer else inputs
            place = f"encoder.{direction}.{layer}.rnn."
            yield place + "weight_ih_l0", _with_unit(inputs, len(gates))
            yield place + "weight_hh_l0", _with_unit(torch.nn.functional.pad(recurrent, (0, 1)), len(gates))
            yield place + "bias_ih_l0", _with_unit(bias[:, None], len(gates), gates).flatten()
            yield place + "bias_hh_l0", _with_unit(more[:, None], len(gates)).flatten()


def _with_unit(
    rows: Float[Tensor, "gates_and_units columns"], gates: int, last: Float[Tensor, " gates"] | None = None
) -> Float[Tensor, "gates_and_more_units columns"]:
    """A row more for each gate: `last`, or zeros."""
    of_gates = rows.float().view(gates, -1, rows.shape[1])
    new = of_gates.new_zeros(gates, 1, rows.shape[1]) if last is None else last[:, None, None]
    return torch.cat([of_gates, new], 1).flatten(0, 1)


def _with_constants(
    weight: Float[Tensor, "out both"], first: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "out both_and_two"]:
    """A column for the constant unit of each direction: `first` for that of the first, and zeros."""
    forwards, backwards = weight.float().chunk(2, 1)
    none = weight.new_zeros(len(weight), 1)
    return torch.cat([forwards, none if first is None else first[:, None], backwards, none], 1)
