"""Greedy and beam search over any decoder; gives back hypotheses."""

from jumok.decoding.beam import Hypothesis, Specials, beam_search
from jumok.decoding.config import DecodingConfig

__all__ = ["DecodingConfig", "Hypothesis", "Specials", "beam_search"]
