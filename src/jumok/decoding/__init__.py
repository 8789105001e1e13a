"""Greedy and beam search over any decoder."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumok.decoding.beam import BeamTree, Node, beam_search
    from jumok.decoding.config import DecodingConfig
    from jumok.decoding.hypotheses import Hypothesis, Observer, Specials, Survivors

__all__ = ["BeamTree", "DecodingConfig", "Hypothesis", "Node", "Observer", "Specials", "Survivors", "beam_search"]

# Imported when first asked for: the settings of decoding, which the command line declares, need no PyTorch.
_HOME = dict.fromkeys(["BeamTree", "Node", "beam_search"], "beam") | {"DecodingConfig": "config"}
_HOME |= dict.fromkeys(["Hypothesis", "Observer", "Specials", "Survivors"], "hypotheses")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
