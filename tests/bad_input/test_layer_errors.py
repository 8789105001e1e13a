import pytest
import torch

from jumok.errors import ArgumentError
from jumok.layers.embedding import TokenEmbedding
from jumok.layers.feed_forward import FeedForward
from jumok.layers.positions import AddedPositions, ConcatenatedPositions, LearnedPositions, RotaryPositions


@pytest.mark.parametrize(
    ("length", "start", "message"),
    [
        (9, 0, r"positions 0 to 8, but longest = 8 positions \(0 to 7\) were learned"),
        (1, 8, "positions 8 to 8, but longest = 8"),
        (2, -1, "positions -1 to 0, but longest = 8"),
        (2, torch.tensor([0, 7]), "positions 0 to 8, but longest = 8"),
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
            'activation = "tanh"; wanted one of relu, gelu, silu, swiglu',
        ),
        (lambda: FeedForward(width=4, hidden=8, dropout=1.0), r"dropout = 1\.0; wanted at least 0 and below 1"),
        (lambda: TokenEmbedding(vocabulary=0, width=4), "vocabulary = 0 and width = 4"),
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
            r"vectors\[1\] is NaN or infinite in places",
        ),
    ],
)
def test_a_layer_that_cannot_be_made_says_why(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_feed_forward_refuses_another_width():
    with pytest.raises(ArgumentError, match=r"x is \[2, 5\]; wanted \[..., width\] with width = 4"):
        FeedForward(width=4, hidden=8)(torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[0, 1], [5, 9]]), r"ids\[1, 0\] = 5, but the vocabulary has 5 tokens, 0 to 4"),
        (torch.tensor([0, -1]), r"ids\[1\] = -1, but the vocabulary has 5 tokens"),
        (torch.tensor(7), r"ids\[\] = 7, but"),
        (torch.tensor([0.0]), "ids holds torch.float32; wanted torch.int64 or torch.int32"),
    ],
)
def test_an_id_outside_the_vocabulary_is_named_with_its_place(ids, message):
    with pytest.raises(ArgumentError, match=message):
        TokenEmbedding(vocabulary=5, width=4)(ids)
