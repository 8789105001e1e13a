"""jumok (주목): one attention mechanism, from kernel regression to the Transformer and graph attention."""

from jumok.devices import prepare_cpu

TYPE_CHECKING = (
    False  # typing's own takes longer to load than all else here, and a program is deaf to Ctrl-C until then
)
if TYPE_CHECKING:
    from typing import Any

    from jumok.analysis.maps.attention_map import AttentionMap
    from jumok.analysis.maps.record import record
    from jumok.attention import attend, explain
    from jumok.regression.estimator import KernelRegressor
    from jumok.soft_database import SoftDatabase
    from jumok.tasks import load
    from jumok.tasks.alignment import Alignment, align
    from jumok.tasks.captioner import Caption, Captioner
    from jumok.tasks.evaluation import evaluate
    from jumok.tasks.node_classification import NodeClassifier
    from jumok.tasks.run import Run, train
    from jumok.tasks.translated_text import Translation
    from jumok.tasks.translator import Translator

__version__ = "0.1.0"
__all__ = [
    "Alignment",
    "AttentionMap",
    "Caption",
    "Captioner",
    "KernelRegressor",
    "NodeClassifier",
    "Run",
    "SoftDatabase",
    "Translation",
    "Translator",
    "align",
    "attend",
    "evaluate",
    "explain",
    "load",
    "record",
    "train",
]

prepare_cpu()

# Imported when first asked for: PyTorch takes a second, and `jumok --help` should not wait for it.
_HOME = {
    "Alignment": "jumok.tasks.alignment",
    "AttentionMap": "jumok.analysis.maps.attention_map",
    "Caption": "jumok.tasks.captioner",
    "Captioner": "jumok.tasks.captioner",
    "KernelRegressor": "jumok.regression.estimator",
    "NodeClassifier": "jumok.tasks.node_classification",
    "Run": "jumok.tasks.run",
    "SoftDatabase": "jumok.soft_database",
    "Translation": "jumok.tasks.translated_text",
    "Translator": "jumok.tasks.translator",
    "align": "jumok.tasks.alignment",
    "attend": "jumok.attention",
    "evaluate": "jumok.tasks.evaluation",
    "explain": "jumok.attention",
    "load": "jumok.tasks",
    "record": "jumok.analysis.maps.record",
    "train": "jumok.tasks.run",
}
_MODULES = {"analysis", "attention", "data", "decoding", "errors", "graphs", "images", "layers", "models"}
_MODULES |= {"regression", "tasks", "training"}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
