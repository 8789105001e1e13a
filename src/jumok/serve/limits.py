"""What one request may ask for, so that no one can stop the server for everyone else."""

from dataclasses import dataclass, fields

from jumok.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most of everything."""

    body_bytes: int = 1 << 20
    """Bytes of a request."""
    texts: int = 64
    """Texts of a request."""
    characters: int = 5000
    """Characters of a text."""
    beam: int = 32
    """Hypotheses kept at each step."""
    queue: int = 1024
    """Texts that wait; beyond it requests are turned away with 503."""
    seconds: float = 30.0
    """Time for a request; beyond it the answer is 504, and what still waits is dropped."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ConfigError(f"{field.name} = {getattr(self, field.name)} must be greater than 0")
        if self.texts > self.queue:
            raise ConfigError(f"queue = {self.queue} has no room for one request of texts = {self.texts}")
