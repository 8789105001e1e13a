"""A Transformer that copies writes names it has never seen, which one without copying cannot."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from jumok.models import EncoderDecoder, TransformerDecoderConfig, TransformerEncoderConfig, build_model

pytestmark = pytest.mark.long

PAD, BOS, EOS, WORDS, NAMES = 0, 1, 2, 3, 23
"""Ids 3 to 12 are words of the source, 13 to 22 their translations, and names follow."""
KNOWN, ALL, LENGTH = 100, 150, 5


def sentences(count: int, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Words with one name among them; the target has the words translated and all of it backwards."""
    source = torch.randint(WORDS, WORDS + 10, (count, LENGTH))
    target = source + 10
    place, name = torch.randint(LENGTH, (count, 1)), torch.randint(NAMES + first, NAMES + last, (count, 1))
    source, target = (text.scatter(1, place, name) for text in (source, target))
    return pad(source, (0, 1), value=EOS), pad(target.flip(1), (0, 1), value=EOS)


def trained(*, copy: bool, steps: int) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"width": 64, "heads": 4, "hidden": 128, "layers": 2, "dropout": 0.0, "positions": "rotary"}
    model = build_model(
        TransformerEncoderConfig(**sizes),
        TransformerDecoderConfig(**sizes, tied="all", copy=copy),
        source_vocabulary=NAMES + ALL,
        target_vocabulary=NAMES + ALL,
        shared_vocabulary=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        source, target = sentences(64, 0, KNOWN)
        logits = model(source, source != PAD, pad(target[:, :-1], (1, 0), value=BOS)).logits
        optimizer.zero_grad()
        cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def exact(model: EncoderDecoder, first: int, last: int) -> float:
    """How many sentences with names from `first` to `last` are translated without a mistake, decoding greedily."""
    source, target = sentences(500, first, last)
    state, ids = (
        model.decoder.start(model.encoder(source, source != PAD), capacity=LENGTH + 1),
        [torch.full((500, 1), BOS)],
    )
    for _ in range(LENGTH + 1):
        log_probs, state = model.decoder.step(state, ids[-1])
        ids.append(log_probs.argmax(-1))
    return (torch.cat(ids[1:], 1) == target).all(1).double().mean().item()


@pytest.mark.long(seconds=10)
def test_a_transformer_that_copies_writes_names_it_has_never_seen():
    scores = {copy: trained(copy=copy, steps=300) for copy in (False, True)}
    assert min(exact(model, 0, KNOWN) for model in scores.values()) >= 0.98
    assert exact(scores[False], KNOWN, ALL) == 0
    assert exact(scores[True], KNOWN, ALL) >= 0.9
