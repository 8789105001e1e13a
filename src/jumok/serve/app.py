"""The application: routes, what stands before them, and how it says that something is wrong."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

import jumok
from jumok.errors import JumokError
from jumok.serve.description import describe
from jumok.serve.guard import KEY, Guarded, Observed, one_line, problem
from jumok.serve.hosts import KnownHosts
from jumok.serve.invalid import said_of, said_of_body
from jumok.serve.page import page_routes
from jumok.serve.problems import BROKEN, RequestError
from jumok.serve.routes import api_routes, own_routes
from jumok.serve.service import Service


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
