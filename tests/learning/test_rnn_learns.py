"""Recurrent models from nothing to reversing digits, in seconds; and where a fixed context is not enough."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig

pytestmark = pytest.mark.long

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCABULARY = FIRST + 10


def strings(count: int, shortest: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Digits, where they are visible, and the same digits backwards with an end after them."""
    lengths = torch.randint(shortest, longest + 1, (count, 1))
    visible = torch.arange(longest) < lengths
    source = torch.randint(FIRST, VOCABULARY, (count, longest)).where(visible, PAD)
    backwards = source.gather(1, (lengths - 1 - torch.arange(longest)).clamp(min=0)).where(visible, PAD)
    ended = torch.nn.functional.pad(backwards, (0, 1), value=PAD).scatter(1, lengths, EOS)
    return source, visible, ended


def model(cell: str = "gru", **settings) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"cell": cell, "embedding": 32, "width": 64, "dropout": 0.0}
    encoder = RnnEncoder(RnnEncoderConfig(**sizes), vocabulary=VOCABULARY)
    decoder = RnnDecoder(RnnDecoderConfig(**sizes, **settings), vocabulary=VOCABULARY, encoder_width=64)
    return EncoderDecoder(encoder, decoder)


def train(seq2seq: EncoderDecoder, *, steps: int, shortest: int, longest: int, rate: float = 0.01) -> None:
    optimizer = torch.optim.Adam(seq2seq.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        source, visible, target = strings(64, shortest, longest)
        target_in, counts = torch.nn.functional.pad(target[:, :-1], (1, 0), value=BOS), target != PAD
        hidden = seq2seq.decoder.hidden(seq2seq.encoder(source, visible), target_in)
        selected = hidden.select(counts.flatten().nonzero().flatten())
        loss = cross_entropy(seq2seq.decoder.logits(selected), target[counts])
        if selected.penalty is not None:
            loss = loss + selected.penalty.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(seq2seq.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def exact_match(seq2seq: EncoderDecoder, *, shortest: int, longest: int) -> float:
    """How many unseen strings are reversed without a mistake, decoding greedily."""
    source, visible, target = strings(500, shortest, longest)
    seq2seq.eval()
    state = seq2seq.decoder.start(seq2seq.encoder(source, visible), capacity=longest + 1)
    token, right = torch.full((500, 1), BOS), torch.ones(500, dtype=torch.bool)
    for place in range(longest + 1):
        scores, state = seq2seq.decoder.step(state, token)
        token = scores.argmax(-1)
        right &= (token[:, 0] == target[:, place]) | (target[:, place] == PAD)
    return right.double().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "steps", "longest"),
    [
        ({"attention": "none"}, 600, 3),
        ({"attention": "additive", "cell": "lstm"}, 250, 6),
        ({"attention": "additive", "coverage": True, "copy": True}, 200, 6),
        ({"attention": "dot"}, 400, 5),
        ({"attention": "general", "input_feeding": True}, 400, 5),
        ({"attention": "general", "reach": "local-p", "half_window": 4}, 600, 8),
        ({"attention": "location", "reach": "local-m", "half_window": 7}, 300, 8),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_a_small_recurrent_model_learns_to_reverse_digits(settings, steps, longest):
    seq2seq = model(**settings)
    train(seq2seq, steps=steps, shortest=1, longest=longest)
    assert exact_match(seq2seq, shortest=1, longest=longest) >= 0.97


@pytest.mark.long(seconds=15)
def test_attention_reverses_what_is_too_long_for_a_fixed_context_trained_as_long():
    budget = {"steps": 250, "shortest": 11, "longest": 12}
    scores = {}
    for attention in ("none", "additive"):
        seq2seq = model(attention=attention)
        train(seq2seq, **budget)
        scores[attention] = exact_match(seq2seq, shortest=11, longest=12)
    assert scores["additive"] >= 0.95, scores
    assert scores["none"] <= 0.3, scores
