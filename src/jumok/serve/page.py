"""The page and its files, read once from the package and served from memory: a path outside of it does not exist."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDERS = ("jumok.analysis.draw", "jumok.serve")


class File(NamedTuple):
    """A file of the page."""

    content: bytes
    type: str
    tag: str


def page_routes() -> APIRouter:
    """`/` and `/web/NAME`."""
    found = _files()
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return _answer(found["index.html"], request)

    @router.api_route("/web/{name}", methods=["GET", "HEAD"])
    async def file(name: str, request: Request) -> Response:
        if name not in found:
            raise HTTPException(404, f"there is no file {name[:80]!r}")
        return _answer(found[name], request)

    return router


def _answer(file: File, request: Request) -> Response:
    """The file, or that it has not changed since it was last asked for."""
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.type, headers=headers)


def _files() -> dict[str, File]:
    found = {}
    for package in FOLDERS:
        folder = files(package) / "web"
        for path in folder.iterdir() if folder.is_dir() else ():
            ending = "." + path.name.rpartition(".")[2]
            if ending in TYPES:
                content = path.read_bytes()
                found[path.name] = File(content, TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found
