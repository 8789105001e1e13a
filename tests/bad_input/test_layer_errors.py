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
from support.refusals import refuses


@pytest.mark.parametrize(("length", "start"), [(9, 0), (1, 8), (2, -1)])
def test_a_position_that_was_not_learned_is_refused_with_the_numbers(length, start):
    with refuses(ArgumentError, f"{start} to {start + length - 1}", "longest = 8"):
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
    with refuses(ArgumentError, "x is [2, 3, 5]", "4"):
        place(torch.zeros(2, 3, 5))
    with refuses(ArgumentError, "start is [3]", "x [2, 3, 4]", "[2]"):
        place(torch.zeros(2, 3, 4), start=torch.zeros(3, dtype=torch.long))
    with refuses(ArgumentError, "start is [2]", "torch.float32"):
        place(torch.zeros(2, 3, 4), start=torch.zeros(2))


def embedding(**settings):
    return TokenEmbedding(vocabulary=5, width=4, **settings)


def luong(**settings):
    return LuongAttention(query_width=4, key_width=4, **settings)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: ConcatenatedPositions(width=4, position_width=4), "position_width = 4 … 3"),
        (lambda: FeedForward(width=4, hidden=8, activation="tanh"), "activation = 'tanh' … relu, gelu, silu, swiglu"),
        (lambda: embedding(padding=5), "padding = 5 … vocabulary of 5"),
        (lambda: embedding(padding="0"), "padding = '0' … integer"),
        (lambda: embedding(freeze=True), "freeze = True … vectors"),
        (lambda: embedding(vectors=torch.zeros(6, 4)), "vectors is [6, 4] … vocabulary = 5"),
        (lambda: embedding(vectors=torch.zeros(5)), "vectors is [5]"),
        (lambda: embedding(vectors=torch.zeros(5, 4).long()), "vectors is [5, 4] … torch.int64"),
        (lambda: embedding(vectors=torch.tensor([[1.0, 2]] * 4 + [[3, torch.nan]])), "vectors[4] … NaN"),
        (lambda: EncoderLayer(width=4, heads=2, hidden=4, norm="mid"), "norm = 'mid' … pre, post"),
        (lambda: KeyValueCache(capacity=-1), "capacity = -1 … 0"),
        (lambda: Recurrence(cell="gru", inputs=4, fed=-1, width=4), "fed = -1 … 0"),
        (lambda: RotaryPositions(head_dim=4, base=0), "base = 0 … finite … 0"),
        (lambda: sinusoids(torch.arange(3), -2), "width = -2 … 0"),
        (lambda: luong(reach="local-m", half_window=-1), "half_window = -1 … 0"),
        (lambda: luong(reach="local-p", half_window=0), "half_window = 0 … 1"),
    ],
)
def test_a_layer_that_cannot_be_made_says_why(make, facts):
    with refuses(ArgumentError, facts):
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


@pytest.mark.parametrize("layer", SIZES, ids=lambda layer: layer.__name__)
def test_a_size_that_is_not_a_positive_integer_is_refused_by_name(layer):
    others = {"cell": "gru"} if layer is Recurrence else {}
    for name in SIZES[layer]:
        for wrong in ("4", 4.0, True, 0, -4, (4,)):
            with refuses(ArgumentError, f"{name} = {wrong!r}", "1"):
                layer(**others, **{**SIZES[layer], name: wrong})


@pytest.mark.parametrize("layer", [FeedForward, GraphAttention, GraphAttentionV2, MultiHeadAttention, EncoderLayer])
def test_a_dropout_that_is_no_share_is_refused(layer):
    for wrong in ("a", None, -0.1, 1, float("nan"), True):
        with refuses(ArgumentError, f"dropout = {wrong!r}", "0", "1"):
            layer(**SIZES[layer], dropout=wrong)


@pytest.mark.parametrize("shape", [(3, 4), (1, 2, 3, 4)])
def test_multi_head_attention_refuses_other_axes_than_batch_time_and_width(shape):
    with refuses(ArgumentError, "[batch, time, width]", list(shape)):
        MultiHeadAttention(width=4, heads=2)(torch.zeros(shape))


def test_a_layer_without_numbers_gives_shapes():
    layer = MultiHeadAttention(width=4, heads=2).to("meta")
    assert layer(torch.zeros(2, 3, 4, device="meta")).values.shape == (2, 3, 4)


def test_a_size_that_is_not_a_positive_integer_is_told_what_is_wanted():
    with pytest.raises(ArgumentError, match=r"^width = 4.0 must be an integer of at least 1$"):
        AddedPositions(width=4.0)
