"""Greedy and beam search over any decoder."""

from jumok.decoding.beam import BeamTree, Node, beam_search
from jumok.decoding.config import DecodingConfig
from jumok.decoding.specials import Hypothesis, Observer, Specials, Survivors

__all__ = ["BeamTree", "DecodingConfig", "Hypothesis", "Node", "Observer", "Specials", "Survivors", "beam_search"]
