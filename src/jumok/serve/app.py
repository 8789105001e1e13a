"""The web application: the routes, the page, the middleware around them, and one-line errors."""

import json
import mimetypes
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import jumok
from jumok.errors import JumokError
from jumok.serve.auth import KEY_HEADER, require_key
from jumok.serve.errors import INTERNAL_ERROR, RequestError, error_response, one_line
from jumok.serve.guard import BodyMiddleware, HostMiddleware, ResponseMiddleware
from jumok.serve.limits import Limits
from jumok.serve.routes import IMAGE_PATHS, attention_routes, server_routes, translation_routes
from jumok.serve.service import Service
from jumok.settings import nearest

WEB_FOLDERS: list[str | tuple[str, str]] = [("jumok.serve", "web"), ("jumok.analysis.draw", "web")]
MAX_SHOWN = 60
"""Characters of a wrong value in an error message."""


def create_app(
    service: Service, *, key: str | None = None, origins: Sequence[str] = (), hosts: Sequence[str] = ()
) -> ASGIApp:
    """The ASGI application of a service, which it closes at shutdown."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    # Swagger UI and ReDoc load their scripts from another server; ours has to work offline.
    app = FastAPI(
        title="jumok",
        version=jumok.__version__,
        description="Translation, image captions and classes of nodes with visible attention.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # served by server_routes, with the key
        lifespan=lifespan,
    )
    security = require_key(key)
    for routes in (translation_routes, attention_routes, server_routes):
        app.include_router(routes(service, security))
    _add_page(app)
    _add_error_handlers(app)
    _add_limits(app, service.limits)
    return _with_middleware(app, service, origins, hosts)


def _with_middleware(app: FastAPI, service: Service, origins: Sequence[str], hosts: Sequence[str]) -> ASGIApp:
    limits, paths = service.limits, ["/", "/openapi.json", *app.openapi()["paths"]]
    larger = dict.fromkeys(IMAGE_PATHS, limits.image_body_bytes) if service.reads_images else {}
    guarded: ASGIApp = BodyMiddleware(app, max_bytes=limits.body_bytes, larger=larger, seconds=limits.seconds)
    if origins:
        guarded = CORSMiddleware(
            guarded, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["Content-Type", KEY_HEADER]
        )
    return ResponseMiddleware(HostMiddleware(guarded, hosts), service.metrics, paths)


def _add_page(app: FastAPI) -> None:
    mimetypes.add_type("text/javascript", ".js")  # some Windows machines have another, which browsers refuse
    app.mount("/web", StaticFiles(packages=WEB_FOLDERS))
    index = str(files("jumok.serve") / "web" / "index.html")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(index)


def _add_error_handlers(app: FastAPI) -> None:
    def response(message: str, status: int, headers: Any = None) -> JSONResponse:
        return JSONResponse({"error": one_line(message)}, status, headers=headers)

    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(JumokError)
    async def jumok_error(_: Request, error: JumokError) -> JSONResponse:
        return response(str(error), 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = error.errors()
        if errors[0]["type"] == "json_invalid":
            return response(f"the body is not JSON: {errors[0]['ctx']['error']}", 400)
        body = request.scope["endpoint"].__annotations__["body"]
        fields = {field.alias or name: field for name, field in body.model_fields.items()}
        return response(validation_message(errors, fields), 422)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        path, status = request.url.path, error.status_code
        if status == 400:
            return response(f"the body is not JSON: {error.__cause__}", status, error.headers)
        if status == 404:
            paths = ", ".join(app.openapi()["paths"])
            return response(f"there is no path {_shown(path)}; the paths are / and {paths}", status, error.headers)
        if status == 405:
            allowed = " or ".join(sorted((error.headers or {}).get("Allow", "GET").split(", ")))
            return response(f"{path} takes {allowed}, not {request.method[:MAX_SHOWN]}", status, error.headers)
        return response(str(error.detail), status, error.headers)

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> JSONResponse:
        return response(INTERNAL_ERROR, 500)


def validation_message(errors: Sequence[Any], fields: Collection[str]) -> str:
    """One line for what pydantic found wrong with a body that has these fields."""
    unknown = next((str(error["loc"][-1]) for error in errors if error["type"] == "extra_forbidden"), None)
    if unknown is not None:
        return f"there is no field {_shown(unknown)}{nearest(unknown, fields)}"
    error = max(errors, key=lambda error: len(_field(error, fields)))  # of a text or a list of texts, the deeper error
    field = ".".join(_field(error, fields)) or "the body"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if error["type"] == "missing":
        return f"{field} is missing"
    if error["type"] == "value_error":
        return message if field == "the body" else f"{field}: {message}"
    return f"{field} {message}, but it is {_shown(error['input'])}"


def _field(error: Any, fields: Collection[str]) -> list[str]:
    """The path to a wrong value, without the names that pydantic gives to the types of a union."""
    return [str(part) for part in error["loc"][1:] if isinstance(part, int) or part in fields]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _add_limits(app: FastAPI, limits: Limits) -> None:
    """Add the limits of this server to the OpenAPI description, which FastAPI keeps."""
    for name, schema in app.openapi()["components"]["schemas"].items():
        if name.endswith("Request"):
            for field, types in schema["properties"].items():
                for schema_type in types.get("anyOf", [types]):
                    _limit(field, schema_type, limits)


def _limit(field: str, schema: dict[str, Any], limits: Limits) -> None:
    kind = schema.get("type")
    if field in ("beam", "n_best", "count") and kind == "integer":
        schema["maximum"] = limits.beam
    if field in ("text", "source", "target", "prefix", "node") and kind == "string":
        schema["maxLength"] = limits.characters
    if field == "text" and kind == "array":
        schema["maxItems"] = limits.texts
        schema["items"]["maxLength"] = limits.characters
