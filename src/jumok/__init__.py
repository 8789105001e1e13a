"""jumok (주목): one attention mechanism, from kernel regression to the Transformer and graph attention."""

from jumok.devices import prepare_cpu

TYPE_CHECKING = (
    False  # typing's own takes longer to load than all else here, and a program is deaf to Ctrl-C until then
)
if TYPE_CHECKING:
    from typing import Any

    from jumok.analysis.maps.attention_map import AttentionMap as AttentionMap
    from jumok.analysis.maps.record import record as record
    from jumok.attention import attend as attend
    from jumok.attention import explain as explain
    from jumok.regression.estimator import KernelRegressor as KernelRegressor
    from jumok.soft_database import SoftDatabase as SoftDatabase
    from jumok.tasks import load as load
    from jumok.tasks.alignment import Alignment as Alignment
    from jumok.tasks.alignment import align as align
    from jumok.tasks.captioner import Caption as Caption
    from jumok.tasks.captioner import Captioner as Captioner
    from jumok.tasks.evaluation import evaluate as evaluate
    from jumok.tasks.node_classification import NodeClassifier as NodeClassifier
    from jumok.tasks.run import Run as Run
    from jumok.tasks.run import train as train
    from jumok.tasks.translated_text import Translation as Translation
    from jumok.tasks.translator import Translator as Translator

__version__ = "0.1.0"

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
__all__ = [*_HOME]
_MODULES = {"analysis", "attention", "data", "decoding", "errors", "graphs", "images", "layers", "models"}
_MODULES |= {"regression", "tasks", "training"}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
