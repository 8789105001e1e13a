"""The OpenAPI description, with the limits of this server in it: what is too much can be seen before it is sent."""

from typing import Any

from fastapi import FastAPI

from jumok.serve.limits import Limits


def describe_limits(app: FastAPI, limits: Limits) -> dict[str, Any]:
    """Write the limits into the description of every request; the routes are all there by now."""
    described = app.openapi()  # made once, and kept by the application
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
