"""The limits of a request, which the command line declares and therefore reads without PyTorch and FastAPI."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from jumok.decoding.config import WIDEST
from jumok.errors import ArgumentError, ConfigError
from jumok.settings import PositiveInt, Settings

if TYPE_CHECKING:
    from jumok.data.terms import Terms

MOST_REQUIRED = 1000
"""Characters that a translation may be required to have; the search needs memory for each."""


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """The limits of a request."""

    body_bytes: PositiveInt = 1 << 20
    """Bytes of a request without an image."""
    image_bytes: PositiveInt = 5 << 20
    """Bytes of an image file."""
    texts: PositiveInt = 64
    """Texts of a request."""
    characters: PositiveInt = 5000
    """Characters of a text."""
    beam: Annotated[int, Ge(1), Le(WIDEST)] = 32
    """Hypotheses kept at each step."""
    queue: PositiveInt = 1024
    """Texts and images waiting; beyond it, the server answers 503."""
    seconds: Annotated[float, Ge(0.001)] = 30.0
    """Time for a request; beyond it, the server answers 504 and drops what still waits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts > self.queue:
            raise ConfigError(f"`queue={self.queue}` is below `texts={self.texts}`; raise `queue=` or lower `texts=`")

    @property
    def image_body_bytes(self) -> int:
        """Bytes of a request with an image, which base64 makes a third larger."""
        return self.body_bytes + 4 * (self.image_bytes // 3 + 1)

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise an ArgumentError for too many texts or too long ones."""
        if len(texts) > self.texts:
            raise ArgumentError(f"the request has {len(texts)} texts, but at most {self.texts} are allowed")
        for number, text in enumerate(texts, start=1):
            if len(text) > self.characters:
                raise ArgumentError(
                    f"text {number} has {len(text)} characters, but at most {self.characters} are allowed"
                )

    def check_required(self, prefix: str, terms: "Terms | None", texts: Sequence[str]) -> None:
        """Raise an ArgumentError if the prefix and the terms of a text are too long together."""
        for number, text in enumerate(texts, start=1):
            letters = len(prefix) + sum(map(len, terms.required(text) if terms else ()))
            if letters > MOST_REQUIRED:
                raise ArgumentError(
                    f"the prefix and the terms of text {number} have {letters} characters, but at most "
                    f"{MOST_REQUIRED} are allowed"
                )
