"""Greedy and beam search over any decoder."""

from jumok.decoding.beam import BeamTree, Hypothesis, Node, Observer, Specials, Survivors, beam_search
from jumok.decoding.config import DecodingConfig

__all__ = ["BeamTree", "DecodingConfig", "Hypothesis", "Node", "Observer", "Specials", "Survivors", "beam_search"]
