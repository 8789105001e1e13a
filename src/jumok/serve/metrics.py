"""What the server counts, for Prometheus."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jumok.serve.models import Served
from jumok.tasks.translator import Translation

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "jumok_requests", "Requests, by path and status.", ["path", "status"], registry=self.registry
        )
        self.errors = Counter("jumok_errors", "Requests answered with 4xx or 5xx.", ["path"], registry=self.registry)
        self.latency = Histogram(
            "jumok_request_seconds", "Time to answer.", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram("jumok_batch_items", "Items of a batch.", buckets=TEXTS, registry=self.registry)
        self.tokens = Counter("jumok_tokens", "Tokens read and written.", ["model", "side"], registry=self.registry)
        self.queue = Gauge("jumok_queue_depth", "Items that wait.", registry=self.registry)

    def watch_queue(self, depth: Callable[[], float]) -> None:
        """Ask for the depth of the queue whenever someone looks."""
        self.queue.set_function(depth)

    def count(self, path: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self.requests.labels(path, str(status)).inc()
        self.latency.labels(path).observe(seconds)
        if status >= 400:
            self.errors.labels(path).inc()

    def count_tokens(self, model: Served, translations: Iterable[Translation]) -> None:
        """These were translated."""
        pieces = [piece for translation in translations for piece in translation.pieces]
        self.tokens.labels(model.name, "source").inc(sum(model.count(part) for part, _ in pieces))
        self.tokens.labels(model.name, "target").inc(sum(len(ids) for _, ids in pieces))

    def text(self) -> bytes:
        """All of it, in the Prometheus text format."""
        return generate_latest(self.registry)
