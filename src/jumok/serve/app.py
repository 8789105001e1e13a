"""The application: routes, what stands before them, and how it says that something is wrong."""

import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

import jumok
from jumok.errors import JumokError
from jumok.serve.guard import KEY, Guarded, Observed, one_line, problem
from jumok.serve.hosts import KnownHosts
from jumok.serve.page import page_routes
from jumok.serve.problems import BROKEN, RequestError
from jumok.serve.routes import api_routes, own_routes
from jumok.serve.service import Limits, Service
from jumok.settings import nearest


def describe(app: FastAPI, limits: Limits, *, key: str | None) -> dict[str, Any]:
    """Write the limits into the description of every request, and that a key is asked for where one is."""
    described = app.openapi()  # made once, from the routes there are by now, and kept by the application
    if key is not None:
        scheme = {"type": "apiKey", "in": "header", "name": key}
        described["components"]["securitySchemes"] = {"key": scheme}
        described["security"] = [{"key": []}]
    for name, schema in described["components"]["schemas"].items():
        if name.endswith("Request"):
            for field, kinds in schema["properties"].items():
                for kind in kinds.get("anyOf", [kinds]):
                    _limit(field, kind, limits)
    return described


def _limit(field: str, kind: dict[str, Any], limits: Limits) -> None:
    if field in ("beam", "n_best") and kind.get("type") == "integer":
        kind["maximum"] = limits.beam
    if field in ("text", "source", "target") and kind.get("type") == "string":
        kind["maxLength"] = limits.characters
    if field == "text" and kind.get("type") == "array":
        kind["maxItems"] = limits.texts
        kind["items"]["maxLength"] = limits.characters


WANTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "greater_than_equal": "at least {ge}",
    "literal_error": "{expected}",
    "model_attributes_type": "an object, {{...}}",
}
"""What pydantic finds wrong, as what there should be."""

LONGEST = 60


def said_of(errors: Sequence[Any], fields: Collection[str]) -> str:
    """What is wrong first, of all that pydantic found; `fields` are those that the path knows."""
    unknown = next((error for error in errors if error["type"] == "extra_forbidden"), None)
    if unknown is not None:
        name = str(unknown["loc"][-1])
        return f"there is no field {_shown(name)}{nearest(name, fields)}"
    first = errors[0]
    place = max((_place(error) for error in errors if error["loc"][:2] == first["loc"][:2]), key=len)
    (error, *others) = [error for error in errors if _place(error) == place]
    field = ".".join(place) or "the body"
    if error["type"] == "missing":
        return f"{field} is missing"
    if any(other["type"] not in WANTED for other in (error, *others)):
        return f"{field}: {error['msg'].removeprefix('Value error, ')[:200]}"
    wanted = " or ".join(WANTED[one["type"]].format(**one.get("ctx", {})) for one in (error, *others))
    return f"{field} must be {wanted}, but it is {_shown(error['input'])}"


def said_of_body(error: BaseException | None) -> str:
    """Why bytes cannot be read as JSON."""
    if isinstance(error, UnicodeDecodeError):
        return f"the body is not UTF-8, as JSON is: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
    return f"the body is not JSON that can be read: {str(error).partition(';')[0]}"


def _place(error: Any) -> tuple[str, ...]:
    """Where in the body: names and numbers, without those that pydantic gives to the kinds a field may have."""
    parts = [str(part) for part in error["loc"][1:]]
    return tuple(part for part in parts if part.isdecimal() or (part.isidentifier() and part not in ("str", "int")))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def create_app(
    service: Service, *, key: str | None = None, origins: Sequence[str] = (), hosts: Sequence[str] = ()
) -> ASGIApp:
    """An ASGI application over a service, which it closes at its end; it answers to its own names and to `hosts`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    # The usual pages about an API come from elsewhere; ours works without a network.
    app = FastAPI(
        title="jumok",
        version=jumok.__version__,
        description="Translate, and see where the model looked.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    for router in (api_routes(service), own_routes(service), page_routes()):
        app.include_router(router)
    _say_what_is_wrong(app)
    limits = service.limits
    guarded: ASGIApp = Guarded(app, key=key, most_bytes=limits.body_bytes, seconds=limits.seconds)
    if origins:
        guarded = CORSMiddleware(
            guarded, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["Content-Type", KEY]
        )
    paths = describe(app, limits, key=KEY if key is not None else None)["paths"]
    return Observed(KnownHosts(guarded, hosts), service.metrics, ["/", "/openapi.json", *paths])


def _say_what_is_wrong(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(JumokError)
    async def wrong(_: Request, error: JumokError) -> JSONResponse:
        return JSONResponse({"error": one_line(str(error))}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse({"error": one_line(f"the body is not JSON: {first['ctx']['error']}")}, 400)
        asked = request.scope["endpoint"].__annotations__["asked"]
        return JSONResponse({"error": one_line(said_of(error.errors(), asked.model_fields))}, 422)

    @app.exception_handler(HTTPException)
    async def failed(_: Request, error: HTTPException) -> JSONResponse:
        said = said_of_body(error.__cause__) if error.status_code == 400 else str(error.detail)
        return JSONResponse({"error": one_line(said)}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": BROKEN}, 500)
