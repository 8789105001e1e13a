"""The settings of recurrent decoders that align each output with one source item: the transducer and hard attention."""

from dataclasses import dataclass
from typing import ClassVar

from jumok.models.rnn.encoder import Cell, RnnConfig


@dataclass(frozen=True, kw_only=True)
class AlignedDecoderConfig(RnnConfig):
    """The settings that the two share; no weights are tied."""

    section: ClassVar[str] = "decoder"

    cell: Cell = "lstm"
    """Recurrent cell: plain "rnn", "gru" or "lstm"."""
    context: bool = False
    """Also attend to the whole source, with scaled dot products, when predicting the next token."""

    copy = False  # a setting only where the source is text
    tied: ClassVar[str] = "none"
    ties_source: ClassVar[bool] = False
    ties_output: ClassVar[bool] = False
