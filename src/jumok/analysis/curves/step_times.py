"""Time of a training step and of a decoding step by sequence length."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from jumok.analysis.draw.chart import Axis, Curve, LineChart, Point
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import EncoderDecoder

SPECIALS = 4
"""The first ids are no words."""


@dataclass(frozen=True)
class StepTime:
    """The fastest of several runs, in seconds; slower ones were delayed by other work of the machine."""

    length: int
    """Tokens in every source and every target."""
    training: float
    """One forward and backward pass over a batch."""
    decoding: float
    """One token of one sentence, averaged over as many tokens as the source has."""


def step_times(
    model: EncoderDecoder, lengths: Sequence[int], *, tokens: int = 2048, repeats: int = 5, seed: int = 0
) -> Iterator[StepTime]:
    """Measure each length on random tokens; a batch has about `tokens` target tokens at every length."""
    if not lengths or min(lengths) < 1:
        raise ArgumentError(f"lengths are numbers of tokens, at least 1, but they are {list(lengths)}")
    if min(tokens, repeats) < 1:
        raise ArgumentError(f"tokens = {tokens} and repeats = {repeats}; both must be at least 1")
    limits = [limit for limit in (model.encoder.limit, model.decoder.limit) if limit is not None]
    for length in lengths:
        if length <= min(limits, default=length):
            draws = torch.Generator().manual_seed(seed)
            rows = max(1, tokens // length)
            training = _fastest(model, _training(model, rows, length, draws), repeats)
            yield StepTime(length, training, _fastest(model, _decoding(model, length, draws), repeats) / length)


def _training(model: EncoderDecoder, rows: int, length: int, draws: torch.Generator) -> Callable[[], None]:
    source, target_in, target_out = (
        _random(model, vocabulary, rows, length, draws)
        for vocabulary in (model.encoder.vocabulary, model.decoder.vocabulary, model.decoder.vocabulary)
    )
    visible = torch.ones_like(source, dtype=torch.bool)

    def run() -> None:
        model.train()
        logits = model(source, visible, target_in).logits
        F.cross_entropy(logits.flatten(0, 1).float(), target_out.flatten()).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    return run


def _decoding(model: EncoderDecoder, length: int, draws: torch.Generator) -> Callable[[], None]:
    source = _random(model, model.encoder.vocabulary, 1, length, draws)
    tokens = _random(model, model.decoder.vocabulary, 1, length, draws)
    model.eval()
    with torch.no_grad():
        encoding = model.encoder(source, torch.ones_like(source, dtype=torch.bool))

    @torch.no_grad()
    def run() -> None:
        model.eval()
        state = model.decoder.start(encoding, capacity=length)
        for place in range(length):
            _, state = model.decoder.step(state, tokens[:, place : place + 1])

    return run


def _random(
    model: EncoderDecoder, vocabulary: int, rows: int, length: int, draws: torch.Generator
) -> Int[Tensor, "rows length"]:
    ids = torch.randint(min(SPECIALS, vocabulary - 1), vocabulary, (rows, length), generator=draws)
    return ids.to(next(model.parameters()).device)


def _fastest(model: EncoderDecoder, run: Callable[[], None], repeats: int) -> float:
    was_training, device = model.training, next(model.parameters()).device
    now = _clock(device)
    try:
        run()  # the first run allocates and chooses kernels
        taken = []
        for _ in range(repeats):
            started = now()
            run()
            taken.append(now() - started)
    finally:
        model.train(was_training)
    return min(taken)


def _clock(device: torch.device) -> Callable[[], float]:
    if device.type == "cuda":

        def now() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return now
    # One thread's own time does not count what other programs take from it.
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def speed_curves(times: dict[str, list[StepTime]], *, tokens: int, where: str) -> list[LineChart]:
    """Return the charts of training and of decoding."""
    lengths = sorted({time.length for points in times.values() for time in points})
    across = Axis(
        "tokens in the source and in the target", [(float(length), str(length)) for length in lengths], log=True
    )
    above = [Curve(name, [_point(time.length, time.training) for time in points]) for name, points in times.items()]
    below = [Curve(name, [_point(time.length, time.decoding) for time in points]) for name, points in times.items()]
    title = f"Training: {tokens:,} target tokens in sentences of one length, {where}"
    spoken = f"Decoding: one sentence, token by token, {where}"
    return [
        LineChart(above, across, Axis("ms for a batch", log=True), title),
        LineChart(below, across, Axis("ms for a token", log=True), spoken),
    ]


def _point(length: int, seconds: float) -> Point:
    value = 1000 * seconds
    return Point(length, value, value, value, f"{length} tokens, {value:.3g} ms")
