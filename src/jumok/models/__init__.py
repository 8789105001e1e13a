"""Whole models, one per file: kernel regression and the soft database. Each is imported when first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumok.models.kernel_regression import KernelRegressor
    from jumok.models.soft_database import Answer, SoftDatabase

__all__ = ["Answer", "KernelRegressor", "SoftDatabase"]

_HOME = {"Answer": "soft_database", "KernelRegressor": "kernel_regression", "SoftDatabase": "soft_database"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
