"""The OpenAPI description, with the limits of this server in it: what is too much can be seen before it is sent."""

from typing import Any

from fastapi import FastAPI

from jumok.serve.limits import Limits


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
