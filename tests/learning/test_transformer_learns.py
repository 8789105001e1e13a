"""A Transformer from nothing to reversing digits, in seconds."""

import pytest
import torch
from torch.nn.functional import cross_entropy, pad

from jumok.models import EncoderDecoder, TransformerDecoderConfig, TransformerEncoderConfig, build_model

pytestmark = pytest.mark.long

PAD, BOS, EOS, FIRST, LONGEST = 0, 1, 2, 3, 5


def digits(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Strings of 1 to 5 digits, what of them is visible, and each reversed; both with an end after them."""
    visible = torch.arange(LONGEST) < torch.randint(1, LONGEST + 1, (count, 1))
    source = torch.randint(FIRST, FIRST + 10, (count, LONGEST)).masked_fill(~visible, PAD)
    lengths = visible.sum(1, keepdim=True)
    backwards = (lengths - 1 - torch.arange(LONGEST)).clamp(min=0)
    reversed_ = source.gather(1, backwards).masked_fill(~visible, PAD)
    source, target = (pad(digits, (0, 1), value=PAD).scatter(1, lengths, EOS) for digits in (source, reversed_))
    return source, source != PAD, target


def train(model: EncoderDecoder, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    model.train()
    for _ in range(steps):
        source, visible, target = digits(64)
        target_in = torch.cat([torch.full((len(target), 1), BOS), target[:, :-1]], 1)
        counts = target != PAD
        hidden = model.decoder.hidden(model.encoder(source, visible), target_in)
        selected = hidden.select(counts.flatten().nonzero().flatten())
        loss = cross_entropy(model.decoder.logits(selected), target[counts])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def greedy(model: EncoderDecoder, source: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    model.eval()
    state = model.decoder.start(model.encoder(source, visible), capacity=LONGEST + 1)
    ids = [torch.full((len(source), 1), BOS)]
    ended = torch.zeros(len(source), 1, dtype=torch.bool)
    for _ in range(LONGEST + 1):
        log_probs, state = model.decoder.step(state, ids[-1])
        ids.append(log_probs.argmax(-1).masked_fill(ended, PAD))
        ended |= ids[-1] == EOS
    return torch.cat(ids[1:], 1)


@pytest.mark.parametrize(
    ("settings", "tied", "steps"),
    [
        ({"positions": "added"}, "all", 240),
        ({"positions": "concatenated"}, "embeddings", 240),
        ({"positions": "rotary"}, "none", 240),
        ({"positions": "added", "norm": "post"}, "all", 240),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_a_small_transformer_learns_to_reverse_digits(settings, tied, steps):
    torch.manual_seed(0)
    sizes = {"width": 64, "heads": 4, "hidden": 128, "layers": 2, "dropout": 0.0}
    model = build_model(
        TransformerEncoderConfig(**sizes, **settings),
        TransformerDecoderConfig(**sizes, **settings, tied=tied),
        source_vocabulary=FIRST + 10,
        target_vocabulary=FIRST + 10,
        shared_vocabulary=True,
    )
    train(model, steps=steps)
    source, visible, target = digits(1000)
    exact = (greedy(model, source, visible) == target).all(1).double().mean()
    assert exact >= 0.99, f"{exact:.1%} of unseen strings reversed"
