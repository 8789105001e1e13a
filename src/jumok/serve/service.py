"""What every route shares: the models, the queue before them, the limits and the counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fastapi import Request

from jumok.errors import ArgumentError, ConfigError
from jumok.serve.batching import Batcher
from jumok.serve.metrics import Metrics
from jumok.serve.models import Served, find_model
from jumok.serve.turns import Work
from jumok.serve.waiting import results
from jumok.serve.work import Asked, Translate
from jumok.tasks.translator import Translation


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most of everything."""

    body_bytes: int = 1 << 20
    """Bytes of a request."""
    texts: int = 64
    """Texts of a request."""
    characters: int = 5000
    """Characters of a text."""
    beam: int = 32
    """Hypotheses kept at each step."""
    queue: int = 1024
    """Texts that wait; beyond it requests are turned away with 503."""
    seconds: float = 30.0
    """Time for a request; beyond it the answer is 504, and what still waits is dropped."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ConfigError(f"{limit.name} = {getattr(self, limit.name)} must be greater than 0")
        if self.texts > self.queue:
            raise ConfigError(f"queue = {self.queue} has no room for one request of texts = {self.texts}")


@dataclass(frozen=True)
class Service:
    """One server."""

    models: Mapping[str, Served]
    batcher: Batcher
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def start(
        cls, models: Mapping[str, Served], limits: Limits, *, batch_tokens: int = 4096, window: float = 0.003
    ) -> "Service":
        """With a queue of its own; `close` ends it."""
        metrics = Metrics()
        batcher = Batcher(
            budget=batch_tokens,
            window=window,
            room=limits.queue,
            seconds=limits.seconds,
            on_batch=lambda size: metrics.batches.observe(size),
        )
        metrics.watch_queue(lambda: batcher.depth)
        return cls(models, batcher, limits, metrics)

    def close(self) -> None:
        """Finish what was accepted."""
        self.batcher.close()

    def model(self, name: str | None) -> Served:
        """The model asked for."""
        return find_model(self.models, name)

    def translate(self, model: str | None, beam: int | None, n_best: int) -> Translate:
        """The work asked for, within the limits; without a beam the model's own, or as wide as n-best needs."""
        served = self.model(model)
        wide = max(served.translator.trained.recipe.decoding.beam, n_best) if beam is None else beam
        if wide > self.limits.beam:
            name = "n_best" if beam is None else "beam"
            raise ArgumentError(f"{name} = {wide} is more than the {self.limits.beam} that are allowed here")
        if n_best > wide:
            raise ArgumentError(f"n_best = {n_best} is more than beam = {wide}")
        return Translate(served, wide, n_best)

    def check_texts(self, texts: Sequence[str]) -> None:
        """Refuse too many texts, and texts that are too long."""
        if len(texts) > self.limits.texts:
            raise ArgumentError(f"{len(texts)} texts are more than the {self.limits.texts} allowed in one request")
        for number, text in enumerate(texts, start=1):
            if len(text) > self.limits.characters:
                raise ArgumentError(
                    f"text {number} has {len(text)} characters, more than the {self.limits.characters} allowed"
                )

    async def results(self, request: Request, work: Work, items: Sequence[Any]) -> list[Any]:
        """What the models say, in their turn."""
        return await results(request, self.batcher, work, items, seconds=self.limits.seconds)

    async def translations(self, request: Request, work: Translate, texts: Sequence[str]) -> list[Translation]:
        """The translations of texts, counted."""
        self.check_texts(texts)
        found = await self.results(request, work, [Asked(text) for text in texts])
        self.metrics.count_tokens(work.model, found)
        return found
