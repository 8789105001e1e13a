"""`jumok serve`: a web page and a REST interface over trained models."""

from typing import Annotated, Any

from typer import Argument, Option

from jumok.cli.arguments import model_or_bundled, named_paths
from jumok.cli.output import say
from jumok.decoding.config import WIDEST
from jumok.errors import ArgumentError


def serve(
    models: Annotated[
        list[str] | None,
        Argument(help="Model folders, or NAME=FOLDER, the first to answer when none is named; else the bundled one."),
    ] = None,
    host: Annotated[str, Option(help="Address to listen at; 0.0.0.0 for every one this machine has.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    api_key: Annotated[
        str | None, Option(envvar="JUMOK_API_KEY", help="Ask for this key in the header X-API-Key.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, Option(help="A web site whose pages may call this server; can be given several times.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, Option(help="A name by which browsers reach this server; can be given several times.")
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        Option(help="Address of a reverse proxy whose X-Forwarded-For names the client; can be given several times."),
    ] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    batch_tokens: Annotated[int, Option(min=1, help="Source tokens translated at once.")] = 4096,
    window: Annotated[float, Option(min=0, help="Milliseconds an idle server waits for requests to meet.")] = 3.0,
    max_bytes: Annotated[int, Option(min=1, help="Most bytes of a request.")] = 1 << 20,
    max_texts: Annotated[int, Option(min=1, help="Most texts of a request.")] = 64,
    max_characters: Annotated[int, Option(min=1, help="Most characters of a text.")] = 5000,
    max_beam: Annotated[int, Option(min=1, max=WIDEST, help="Widest beam.")] = 32,
    max_queue: Annotated[int, Option(min=1, help="Texts that may wait; beyond it the answer is 503.")] = 1024,
    max_seconds: Annotated[float, Option(min=0.001, help="Time for a request; beyond it the answer is 504.")] = 30.0,
    max_connections: Annotated[
        int, Option(min=1, help="Connections at once, as far as the limit of open files allows.")
    ] = 1000,
) -> None:
    """Serve a page on which to translate and see where the model looked, and a REST interface at /api."""
    _check_extra()
    if api_key == "":
        raise ArgumentError("the API key is empty; give one, or leave --api-key and JUMOK_API_KEY out")
    from jumok.serve.app import create_app
    from jumok.serve.hosts import checked_address, checked_name
    from jumok.serve.models import load_models
    from jumok.serve.run import configured, listen, run
    from jumok.serve.service import Limits, Service

    hosts = [checked_name(name) for name in allow_host or ()]
    proxies = [checked_address(address) for address in trust_proxy or ()]
    limits = Limits(
        body_bytes=max_bytes,
        texts=max_texts,
        characters=max_characters,
        beam=max_beam,
        queue=max_queue,
        seconds=max_seconds,
    )
    folders = {one.name: one.path for one in named_paths(models or [str(model_or_bundled(None))])}
    with listen(host, port) as listening:
        loaded = load_models(folders, device=device)
        service = Service.start(loaded, limits, batch_tokens=batch_tokens, window=window / 1000)
        app = create_app(service, key=api_key, origins=allow_origin or (), hosts=[host, *hosts])
        config = configured(app, seconds=max_seconds, connections=max_connections, proxies=proxies)
        run(config, listening, ready=lambda: _greet(listening, list(loaded), api_key))


def _greet(listening: Any, names: list[str], key: str | None) -> None:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"serving {', '.join(names)} at http://{shown}:{port} (Ctrl-C ends)")
    if host not in ("127.0.0.1", "::1") and not key:
        say("everyone who can reach this machine can use it; --api-key asks for a key")


def _check_extra() -> None:
    from importlib.util import find_spec

    from jumok.errors import MissingExtraError

    for package in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "the server")
