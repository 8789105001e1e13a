import re

import numpy as np
import pytest
import torch

from jumok.errors import ArgumentError
from jumok.layers import (
    AdditiveAttention,
    CoverageAttention,
    DecoderLayer,
    EncoderLayer,
    GraphAttention,
    GraphAttentionV2,
    KeyValueCache,
    LuongAttention,
    MultiHeadAttention,
    Recurrence,
)
from jumok.layers.embedding import TokenEmbedding
from jumok.layers.positions import AddedPositions, ConcatenatedPositions, LearnedPositions, RotaryPositions, sinusoids
from jumok.layers.transformer import FeedForward


@pytest.mark.parametrize(
    ("length", "start", "message"),
    [
        (9, 0, r"positions 0 to 8, but longest = 8 positions \(0 to 7\) were learned"),
        (1, 8, "positions 8 to 8, but longest = 8"),
        (2, -1, "positions -1 to 0, but longest = 8"),
    ],
)
def test_a_position_that_was_not_learned_is_refused_with_the_numbers(length, start, message):
    with pytest.raises(ArgumentError, match=message):
        LearnedPositions(width=4, longest=8)(torch.zeros(2, length, 4), start=start)


@pytest.mark.parametrize(
    "place",
    [
        AddedPositions(width=4),
        ConcatenatedPositions(width=6, position_width=2),
        LearnedPositions(width=4, longest=8),
        RotaryPositions(head_dim=4),
    ],
)
def test_positions_refuse_another_width_and_a_start_that_does_not_fit(place):
    with pytest.raises(ArgumentError, match=r"x is \[2, 3, 5\]; wanted \[..., time, 4\]"):
        place(torch.zeros(2, 3, 5))
    with pytest.raises(ArgumentError, match=r"start is \[3\] of torch.int64 for x \[2, 3, 4\]; wanted an int, \[2\]"):
        place(torch.zeros(2, 3, 4), start=torch.zeros(3, dtype=torch.long))
    with pytest.raises(ArgumentError, match=r"start is \[2\] of torch.float32"):
        place(torch.zeros(2, 3, 4), start=torch.zeros(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AddedPositions(width=0), "width = 0; wanted at least 1"),
        (lambda: LearnedPositions(width=4, longest=0), "longest = 0; wanted at least 1"),
        (lambda: RotaryPositions(head_dim=0), "head_dim = 0; wanted at least 1"),
        (lambda: ConcatenatedPositions(width=4, position_width=4), "position_width = 4 .* wanted 1 to width - 1 = 3"),
        (
            lambda: FeedForward(width=4, hidden=8, activation="tanh"),
            "activation = 'tanh'; wanted one of relu, gelu, silu, swiglu",
        ),
        (lambda: FeedForward(width=4, hidden=8, dropout=1.0), r"dropout = 1\.0; wanted at least 0 and below 1"),
        (lambda: TokenEmbedding(vocabulary=0, width=4), "vocabulary = 0; wanted at least 1"),
        (lambda: TokenEmbedding(vocabulary=5, width=4, padding=5), "padding = 5 is not an id of a vocabulary of 5"),
        (lambda: TokenEmbedding(vocabulary=5, width=4, freeze=True), "freeze = True without vectors"),
        (
            lambda: TokenEmbedding(vocabulary=5, width=4, vectors=torch.zeros(6, 4)),
            r"vectors is \[6, 4\] of torch.float32; wanted floats \[vocabulary, vector_width\] with vocabulary = 5",
        ),
        (lambda: TokenEmbedding(vocabulary=5, width=4, vectors=torch.zeros(5)), r"vectors is \[5\] of torch.float32"),
        (
            lambda: TokenEmbedding(vocabulary=5, width=4, vectors=torch.zeros(5, 4).long()),
            r"vectors is \[5, 4\] of torch.int64",
        ),
        (
            lambda: TokenEmbedding(vocabulary=2, width=2, vectors=torch.tensor([[1, 2], [3, torch.nan]])),
            r"vectors\[1\] holds NaN or infinity",
        ),
    ],
)
def test_a_layer_that_cannot_be_made_says_why(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


SIZES = {
    AdditiveAttention: {"query_width": 4, "key_width": 4, "hidden": 4},
    ConcatenatedPositions: {"width": 4, "position_width": 2},
    CoverageAttention: {"query_width": 4, "key_width": 4, "hidden": 4},
    DecoderLayer: {"width": 4, "heads": 2, "hidden": 4, "key_width": 4, "key_heads": 1},
    EncoderLayer: {"width": 4, "heads": 2, "hidden": 4, "key_heads": 1},
    FeedForward: {"width": 4, "hidden": 4},
    GraphAttention: {"in_width": 4, "out_width": 4, "heads": 2, "edge_width": 4},
    GraphAttentionV2: {"in_width": 4, "out_width": 4, "heads": 2, "edge_width": 4},
    LearnedPositions: {"width": 4, "longest": 4},
    LuongAttention: {"query_width": 4, "key_width": 4, "longest": 4},
    MultiHeadAttention: {"width": 4, "heads": 2, "key_width": 4, "value_width": 4, "key_heads": 1},
    AddedPositions: {"width": 4},
    Recurrence: {"inputs": 4, "width": 4, "layers": 1},
    RotaryPositions: {"head_dim": 4},
    TokenEmbedding: {"vocabulary": 4, "width": 4},
}


@pytest.mark.parametrize(
    ("layer", "name"), [(layer, name) for layer, sizes in SIZES.items() for name in sizes], ids=lambda it: str(it)[:60]
)
@pytest.mark.parametrize("wrong", ["4", 4.0, True, 0, -4, (4,)])
def test_a_size_that_is_not_a_positive_integer_is_refused_by_name(layer, name, wrong):
    others = {"cell": "gru"} if layer is Recurrence else {}
    wanted = "wanted at least 1" if wrong in (0, -4) else "wanted an integer, at least 1"
    with pytest.raises(ArgumentError, match=re.escape(f"{name} = {wrong!r}; {wanted}")):
        layer(**others, **{**SIZES[layer], name: wrong})


@pytest.mark.parametrize("layer", SIZES)
def test_sizes_of_numpy_are_sizes(layer):
    others = {"cell": "gru"} if layer is Recurrence else {}
    made, plain = (
        layer(**others, **{name: kind(size) for name, size in SIZES[layer].items()}) for kind in (np.int64, int)
    )
    shapes = [[(name, part.shape) for name, part in one.state_dict().items()] for one in (made, plain)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("layer", [FeedForward, GraphAttention, GraphAttentionV2, MultiHeadAttention, EncoderLayer])
@pytest.mark.parametrize("wrong", ["a", None, -0.1, 1, float("nan"), True])
def test_a_dropout_that_is_no_share_is_refused(layer, wrong):
    with pytest.raises(ArgumentError, match=re.escape(f"dropout = {wrong!r}; wanted at least 0 and below 1")):
        layer(**SIZES[layer], dropout=wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncoderLayer(width=4, heads=2, hidden=4, norm="mid"), "norm = 'mid'; wanted one of pre, post"),
        (lambda: KeyValueCache(capacity=-1), "capacity = -1; wanted at least 0"),
        (lambda: Recurrence(cell="gru", inputs=4, fed=-1, width=4), "fed = -1; wanted at least 0"),
        (lambda: RotaryPositions(head_dim=4, base=0), "base = 0; wanted a finite number greater than 0"),
        (lambda: TokenEmbedding(vocabulary=5, width=4, padding="0"), "padding = '0'; wanted an integer"),
        (lambda: sinusoids(torch.arange(3), -2), "width = -2; wanted at least 0"),
    ],
)
def test_what_else_a_layer_is_made_of_is_checked_where_it_is_given(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize("shape", [(3, 4), (1, 2, 3, 4)])
def test_multi_head_attention_refuses_other_axes_than_batch_time_and_width(shape):
    with pytest.raises(ArgumentError, match=re.escape(f"[batch, time, width], but the shape is {list(shape)}")):
        MultiHeadAttention(width=4, heads=2)(torch.zeros(shape))


def test_a_layer_without_numbers_gives_shapes():
    layer = MultiHeadAttention(width=4, heads=2).to("meta")
    assert layer(torch.zeros(2, 3, 4, device="meta")).values.shape == (2, 3, 4)


def test_settings_that_cannot_work_are_refused_when_the_layer_is_made():
    with pytest.raises(ArgumentError, match="half_window = -1; wanted at least 0"):
        LuongAttention(query_width=4, key_width=4, reach="local-m", half_window=-1)
    with pytest.raises(ArgumentError, match="half_window = 0; wanted at least 1"):
        LuongAttention(query_width=4, key_width=4, reach="local-p", half_window=0)
    with pytest.raises(ArgumentError, match=r"dropout = 1\.5; wanted at least 0 and below 1"):
        MultiHeadAttention(width=4, heads=2, dropout=1.5)
