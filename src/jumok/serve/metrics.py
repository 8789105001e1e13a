"""Prometheus metrics of the server."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "jumok_requests", "Requests by path and status.", ["path", "status"], registry=self.registry
        )
        self.errors = Counter("jumok_errors", "Responses with status 4xx or 5xx.", ["path"], registry=self.registry)
        self.latency = Histogram(
            "jumok_request_seconds", "Time to respond.", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram("jumok_batch_items", "Items per batch.", buckets=ITEMS, registry=self.registry)
        self.tokens = Counter("jumok_tokens", "Tokens read and written.", ["model", "side"], registry=self.registry)
        self.queue = Gauge("jumok_queue_depth", "Items waiting.", registry=self.registry)

    def watch_queue(self, depth: Callable[[], float]) -> None:
        """Read the depth of the queue whenever the metrics are read."""
        self.queue.set_function(depth)

    def count_response(self, path: str, status: int, seconds: float) -> None:
        """Count one response."""
        self.requests.labels(path, str(status)).inc()
        self.latency.labels(path).observe(seconds)
        if status >= 400:
            self.errors.labels(path).inc()

    def count_tokens(self, model: str, *, source: int, target: int) -> None:
        """Count the tokens that a model has read and written."""
        self.tokens.labels(model, "source").inc(source)
        self.tokens.labels(model, "target").inc(target)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)
