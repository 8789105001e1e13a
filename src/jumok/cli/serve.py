"""`jumok serve`: a web page and a REST API for trained models."""

from importlib.util import find_spec
from socket import socket
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import Device, TaskFile, model_or_bundled, named_paths, own_task, setting_option
from jumok.cli.output import say
from jumok.errors import ArgumentError, MissingExtraError
from jumok.serve.limits import Limits


def serve(
    models: Annotated[
        list[str] | None,
        Argument(
            help="Folders of translators, captioners and graph models, or NAME=FOLDER. Defaults to the bundled "
            "translator."
        ),
    ] = None,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")] = 8000,
    api_key: Annotated[
        str | None, Option(envvar="JUMOK_API_KEY", help="Require this key in the header X-API-Key.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, Option(help="Website whose pages may call this server; repeatable.")
    ] = None,
    allow_host: Annotated[list[str] | None, Option(help="Host name of this server; repeatable.")] = None,
    trust_proxy: Annotated[
        list[str] | None,
        Option(help="Address of a reverse proxy that sets X-Forwarded-For; repeatable."),
    ] = None,
    task: TaskFile = None,
    device: Device = "auto",
    batch_tokens: Annotated[int, Option(min=1, help="Maximum number of source tokens in a batch.")] = 4096,
    window: Annotated[
        float, Option(min=0, help="Milliseconds to wait for more requests before starting a batch.")
    ] = 3.0,
    max_bytes: Annotated[
        int, setting_option(Limits, "body_bytes", "Maximum size of a request without an image, in bytes.")
    ] = Limits.body_bytes,
    max_image_bytes: Annotated[
        int, setting_option(Limits, "image_bytes", "Maximum size of an image file, in bytes.")
    ] = Limits.image_bytes,
    max_texts: Annotated[int, setting_option(Limits, "texts", "Maximum number of texts in a request.")] = Limits.texts,
    max_characters: Annotated[
        int, setting_option(Limits, "characters", "Maximum length of a text, in characters.")
    ] = Limits.characters,
    max_beam: Annotated[int, setting_option(Limits, "beam", "Maximum beam size.")] = Limits.beam,
    max_queue: Annotated[
        int,
        setting_option(
            Limits, "queue", "Maximum number of texts and images that wait; above it, the server answers 503."
        ),
    ] = Limits.queue,
    max_seconds: Annotated[
        float,
        setting_option(Limits, "seconds", "Maximum time for a request, in seconds; after it, the server answers 504."),
    ] = Limits.seconds,
    max_connections: Annotated[
        int, Option(min=1, help="Maximum number of open connections; the limit on open files may lower it.")
    ] = 1000,
) -> None:
    """Serve a web page that translates text, describes images or classifies nodes, and a REST API."""
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "the server")
    if api_key == "":
        raise ArgumentError("the API key is empty; give one, or leave out --api-key and JUMOK_API_KEY")
    hosts = [library.guard.checked_host(name) for name in allow_host or ()]
    proxies = [library.guard.checked_proxy(address) for address in trust_proxy or ()]
    limits = Limits(
        body_bytes=max_bytes,
        image_bytes=max_image_bytes,
        texts=max_texts,
        characters=max_characters,
        beam=max_beam,
        queue=max_queue,
        seconds=max_seconds,
    )
    folders = dict(named_paths(models or [str(model_or_bundled(None))]))
    own = own_task(task, models=len(folders))
    with library.server.listen(host, port) as listening:
        loaded = library.serve_models.load_models(folders, device=device, task=own)
        service = library.service.Service.start(loaded, limits, batch_tokens=batch_tokens, window=window / 1000)
        app = library.serve_app.create_app(service, key=api_key, origins=allow_origin or (), hosts=[host, *hosts])
        config = library.server.server_config(app, seconds=max_seconds, connections=max_connections, proxies=proxies)
        library.server.run(config, listening, ready=lambda: _greet(listening, list(loaded), api_key))


def _greet(listening: socket, names: list[str], key: str | None) -> None:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"serving {', '.join(names)} at http://{shown}:{port} (press Ctrl-C to stop)")
    if host not in ("127.0.0.1", "::1") and not key:
        say("everyone who can reach this machine can use the server; --api-key requires a key")
