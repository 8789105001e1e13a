"""Outputs drawn at random from a decoder, token by token: for back-translation and minimum Bayes risk.

Sampling from the whole distribution makes better synthetic sources than search does (Edunov et al. 2018); a
temperature, the k likeliest tokens (Fan et al. 2018) or the nucleus (Holtzman et al. 2020) make likelier ones. Each
token comes from one uniform number u: it is the first whose cumulative probability exceeds u. The numbers of a line
depend on the seed and the line alone, so that neither batches nor their order change what is drawn.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.decoding.beam import repeats_ngram
from jumok.decoding.config import DecodingConfig
from jumok.decoding.hypotheses import Hypothesis, Specials
from jumok.decoding.patterns import FORBIDDEN, Constraints
from jumok.models.encoder_decoder import Decoder, Encoding


@torch.no_grad()
def sample_outputs(
    decoder: Decoder,
    encoding: Encoding,
    specials: Specials,
    config: DecodingConfig,
    lines: Sequence[tuple[int, int]],
    check: Callable[[], None] | None = None,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """`config.samples` outputs for every sentence, in the order of their drawing.

    `lines` are the numbers that identify each sentence: of its line, and of its part of it. A score is that of beam
    search, from the model's own probabilities. `check` is called after every step, and stops the drawing by raising an
    error. `constraints` are the prefixes of the sentences.
    """
    device, count, samples = encoding.states.device, len(lines), config.samples
    longest = torch.tensor([config.longest(length) for length in encoding.visible.sum(-1).tolist()], dtype=torch.long)
    if decoder.limit is not None:  # the last step only ends the output
        longest = longest.clamp(max=decoder.limit - 1)
    steps = int(longest.max()) + 1 if count else 0
    draws = torch.from_numpy(uniform_draws(config.seed, lines, samples, steps)).to(device)
    state, longest = decoder.start(encoding, capacity=max(steps, 1)), longest.to(device)
    ids = torch.full((count, samples, steps + 1), specials.pad, dtype=torch.long, device=device)
    ids[:, :, 0] = specials.bos
    totals = torch.zeros(count, samples, device=device)
    ended = torch.zeros(count, samples, dtype=torch.bool, device=device)
    states = None if constraints is None else constraints.start[:, None].expand(-1, samples, -1)
    for step in range(steps):
        before = ids[:, :, step] if step else ids[:, :1, 0]
        log_probs, state = decoder.step(state, before)
        if step == 0:  # from here on each sentence has all its samples
            first = torch.zeros(count, samples, dtype=torch.long, device=device)
            log_probs, state = log_probs.expand(-1, samples, -1), state.reorder(first)
        forbidden = _forbidden(log_probs, ids[:, :, 1 : step + 1], step, longest, specials, config)
        if constraints is not None and states is not None:
            forbidden |= constraints.left_after(states) >= FORBIDDEN
        tokens = draw_tokens(log_probs.masked_fill(forbidden, -torch.inf), draws[:, :, step], config)
        chosen = log_probs.gather(-1, tokens[..., None]).squeeze(-1)
        totals += chosen.masked_fill(ended, 0.0)
        ids[:, :, step + 1] = tokens.masked_fill(ended, specials.pad)
        if constraints is not None and states is not None:
            states = constraints.advance(states, tokens)
        ended |= tokens == specials.eos
        if check is not None:
            check()
        if step % 8 == 7 and bool(ended.all()):  # looking waits for a GPU
            break
    return _hypotheses(ids.tolist(), totals.tolist(), specials, config)


def uniform_draws(
    seed: int, lines: Sequence[tuple[int, int]], samples: int, steps: int
) -> Float[np.ndarray, "sentence samples steps"]:
    """Numbers in [0, 1) that depend on the seed, the line and the number of the sample alone."""
    draws = np.empty((len(lines), samples, steps), np.float64)
    for row, (line, part) in enumerate(lines):
        for sample in range(samples):
            key = np.random.SeedSequence([seed, line, part, sample])
            draws[row, sample] = np.random.Generator(np.random.Philox(key)).random(steps)
    return draws


def draw_tokens(
    log_probs: Float[Tensor, "sentence sample vocabulary"], draws: Tensor, config: DecodingConfig
) -> Int[Tensor, "sentence sample"]:
    """One token each from the distribution that temperature, top_k and top_p make of these log-probabilities."""
    probs = (log_probs.double() / config.temperature).softmax(-1)
    if not config.top_k and config.top_p == 1:
        return _inverse(probs, draws)
    kept, tokens = probs.sort(-1, descending=True)
    if config.top_k:
        kept[..., config.top_k :] = 0.0
        kept /= kept.sum(-1, keepdim=True)
    # A token is in the nucleus if those before it have not reached top_p yet.
    kept = kept.masked_fill(kept.cumsum(-1) - kept >= config.top_p, 0.0)
    return tokens.gather(-1, _inverse(kept, draws)[..., None]).squeeze(-1)


def _inverse(weights: Float[Tensor, "sentence sample vocabulary"], draws: Tensor) -> Int[Tensor, "sentence sample"]:
    """The first token whose cumulative weight exceeds the draw's share of all weight."""
    cumulative = weights.cumsum(-1)
    wanted = draws[..., None] * cumulative[..., -1:]
    return torch.searchsorted(cumulative, wanted, right=True).squeeze(-1).clamp(max=weights.shape[-1] - 1)


def _forbidden(
    log_probs: Float[Tensor, "sentence sample vocabulary"],
    ids: Int[Tensor, "sentence sample length"],
    step: int,
    longest: Int[Tensor, " sentence"],
    specials: Specials,
    config: DecodingConfig,
) -> Bool[Tensor, "sentence sample vocabulary"]:
    """The tokens that must not come next."""
    forbidden = torch.zeros_like(log_probs, dtype=torch.bool)
    if config.no_repeat:
        forbidden |= repeats_ngram(ids, config.no_repeat, log_probs.shape[-1])
    forbidden |= (step >= longest)[:, None, None]  # an output of the greatest length can only end
    forbidden[:, :, specials.eos] = step < config.min_length
    for never in (specials.pad, specials.bos, specials.unk):
        if never is not None:
            forbidden[:, :, never] = True
    if specials.first is not None and step == 0:
        forbidden.fill_(True)[:, :, specials.first] = False
    return forbidden


def _hypotheses(
    ids: list[list[list[int]]], totals: list[list[float]], specials: Specials, config: DecodingConfig
) -> list[list[Hypothesis]]:
    hypotheses = []
    for sentence, scores in zip(ids, totals, strict=True):
        outputs = [row[1 : row.index(specials.eos)] if specials.eos in row else row[1:] for row in sentence]
        pairs = zip(outputs, scores, strict=True)
        hypotheses.append([Hypothesis(row, score / (len(row) + 1) ** config.length_penalty) for row, score in pairs])
    return hypotheses
