"""What every decoder must fulfil: its steps, and the hypotheses of a beam, equal the whole target at once."""

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.models.encoder_decoder import Decoder, Encoding, Prediction


def check_steps(model: Decoder, source: Encoding, target: Int[Tensor, "batch target"]) -> Prediction:
    """Predict a target step by step, and compare probabilities and attention with those of all positions at once."""
    whole = model(source, target)
    log_probabilities = whole.logits.log_softmax(-1)
    state = model.start(source, capacity=target.shape[1])
    for place, tokens in enumerate(target.split(1, dim=1)):
        step, _ = model.step(state, tokens)
        hidden, state = model.advance(state, tokens)
        torch.testing.assert_close(step[:, 0].double(), log_probabilities[:, place])
        for attention, all_at_once in zip(hidden.attention, whole.attention, strict=True):
            torch.testing.assert_close(attention()[:, :, 0], all_at_once()[:, :, place])
    return whole


def check_beam(model: Decoder, source: Encoding, vocabulary: range) -> None:
    """Reorder the beams of three sentences and drop two sentences; compare each hypothesis with itself alone."""
    state, rows = model.start(source, capacity=4), torch.arange(3)
    prefixes = torch.tensor([[[1]]] * 3)
    _, state = model.step(state, prefixes[..., 0])
    for parents, kept in (([[0, 0, 0]] * 3, [0, 1, 2]), ([[2, 0], [1, 1], [0, 2]], [2, 0]), ([[1, 0, 1]] * 2, [1])):
        parents, kept = torch.tensor(parents), torch.tensor(kept)
        state = state.reorder(parents).keep(kept)
        prefixes = prefixes[torch.arange(len(parents))[:, None], parents][kept]
        rows, tokens = rows[kept], torch.randint(vocabulary.start, vocabulary.stop, prefixes.shape[:2])
        prefixes = torch.cat([prefixes, tokens[..., None]], -1)
        step, state = model.step(state, tokens)
        alone = source.select(rows.repeat_interleave(prefixes.shape[1]))
        log_probabilities = model(alone, prefixes.flatten(0, 1)).logits[:, -1].log_softmax(-1)
        torch.testing.assert_close(step.flatten(0, 1).double(), log_probabilities)
