"""A server in a test: on a port of its own, in a thread of this process, asked over real sockets."""

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

JSON = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Live(NamedTuple):
    """A running server."""

    port: int
    service: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, message: Any, **headers: str) -> Answer:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.ask("POST", path, body, {**JSON, **headers})


def events(text: str) -> list[tuple[str, Any]]:
    """The server-sent events of a stream, each with its data."""
    blocks = (block.split("\n") for block in text.strip().split("\n\n"))
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


@contextmanager
def serving(
    models: Any,
    *,
    key: str | None = None,
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    task: Any = None,
    **options: Any,
) -> Iterator[Live]:
    """Serve `models`, given as name: folder, of `task`; other options are those of Limits, batches and connections."""
    import uvicorn

    from jumok.serve.app import create_app
    from jumok.serve.limits import Limits
    from jumok.serve.models import load_models
    from jumok.serve.server import listen, server_config
    from jumok.serve.service import Service

    batching = {name: options.pop(name) for name in ("batch_tokens", "window") if name in options}
    network = {name: options.pop(name) for name in ("connections", "head_seconds", "proxies") if name in options}
    limits = Limits(**options)
    service = Service.start(load_models(models, device="cpu", task=task), limits, **batching)
    app = create_app(service, key=key, origins=origins, hosts=hosts)
    server = uvicorn.Server(server_config(app, seconds=limits.seconds, **network))
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        until(lambda: server.started)
        try:
            yield Live(listening.getsockname()[1], service)
        finally:
            server.should_exit = True
            thread.join()


def until(ready: Any, seconds: float = 30, wait: Any = lambda: time.sleep(0.005)) -> None:
    """Wait until something holds, doing `wait` meanwhile."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it never came"
        wait()


class Blocker:
    """Work that keeps the server busy until it is let go."""

    weight = 1
    engine = "blocker"

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def size(self, item: Any) -> int:
        return 1

    def split(self, item: Any, size: int) -> list[tuple[Any, int]]:
        return [(item, size)]

    def join(self, item: Any, results: list[Any]) -> Any:
        return results[0]

    def __call__(self, items: list[Any], check: Any) -> list[Any]:
        self.begun.set()
        assert self.go_on.wait(30)
        return items


def results(futures: Iterable[Future[Any]]) -> list[Any]:
    """The results of futures, each within ten seconds."""
    return [future.result(timeout=10) for future in futures]


@contextmanager
def busy(live: Live) -> Iterator[Blocker]:
    """The server's one thread is taken; everything else waits."""
    blocker = Blocker()
    live.service.batcher.submit(blocker, [None])
    assert blocker.begun.wait(30)
    try:
        yield blocker
    finally:
        blocker.go_on.set()


@contextmanager
def visits(browser: Any, live: Live, model: str) -> Iterator[Any]:
    """A function that opens the page; at the end, there were no errors in it and no requests to other servers."""
    contexts, errors, elsewhere = [], [], []

    def route(request: Any) -> Any:
        if request.request.url.startswith((live.url, "blob:", "data:")):
            return request.continue_()
        elsewhere.append(request.request.url)
        return request.abort()

    def open_page(width: int = 1200, height: int = 900, model: str = model, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": width, "height": height}, "locale": "en-US", **options})
        contexts.append(context)
        context.route("**/*", route)
        page = context.new_page()
        page.on("console", lambda event: errors.append(event.text) if event.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_default_timeout(20_000)
        page.goto(live.url)
        page.wait_for_selector("#model option", state="attached")
        page.select_option("#model", model)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert elsewhere == []
