"""What `jumok evaluate` and `jumok look` ask of a task, and what they get: scores with tables, and attention maps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.data.pairs import Columns
from jumok.errors import ArgumentError
from jumok.files import atomic_write
from jumok.progress import Watch, unwatched

Languages = tuple[str | None, str | None]
LANGUAGES_OF_MODEL: Languages = (None, None)
"""The languages of source and target that the model is set to."""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of a command; those that a task does not use are refused."""

    def check_used(self, used: frozenset[str], model: object, does: str) -> None:
        """Raise an ArgumentError for an option that is given but has no effect on a model."""
        for option in fields(self):
            if getattr(self, option.name) != option.default and option.name not in used:
                raise ArgumentError(f"`{option.name}=` does not apply to {model}, which {does}; leave it out")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(CommandOptions):
    """What to test a model on, and how."""

    source: str | None = None
    """Test sentences, or pairs with their references; for a captioner, a folder of images."""
    reference: str | None = None
    columns: Columns | None = None
    features: tuple[int | str, ...] = ()
    """Columns whose cells are features."""
    only: tuple[int, str] | None = None
    """Use only the rows of a TSV with this text in this column."""
    tag: str | None = None
    """The tag in front of every source."""
    languages: Languages = LANGUAGES_OF_MODEL
    """Those of source and target, for a model of several."""
    metrics: tuple[str, ...] = ()
    """Defaults to the scores that are usual for the task."""
    tokenize: str | None = None
    """sacrebleu's tokenizer for BLEU; defaults to 13a."""
    lowercase: bool = False
    # The settings of DecodingConfig; None for the model's own.
    samples: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    mbr: bool | None = None
    beam: int | None = None
    length_penalty: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    no_repeat: int | None = None
    max_source: int | None = None
    engine: str | None = None
    precision: str | None = None
    # What to do with the outputs.
    terms: str | None = None
    """File of terms whose occurrences are counted."""
    by_length: bool = False
    """Also score ranges of source lengths."""
    compare: tuple[tuple[str, Path], ...] = ()
    """Names and paths of other systems: model folders or files of outputs."""
    report: Path | None = None
    """The page that will be written about the result, by its `write_report`."""
    kind: MapKind = "cross"
    """The attention that the page shows."""
    save: Path | None = None
    """The file that gets the outputs, one per line."""


class Table(NamedTuple):
    """A table that a command prints."""

    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    """A line below the table."""


@dataclass(frozen=True)
class EvaluationResult:
    """The scores of a model on test data."""

    values: Mapping[str, Any]
    """The numbers, for JSON."""
    tables: Sequence[Table]
    page: Callable[[Watch], str] | None = None
    """Makes an HTML page about the result."""

    def write_report(self, path: str | Path, *, watch: Watch = unwatched) -> None:
        """Write an HTML page: curves, attention, good and bad cases."""
        if self.page is None:
            raise ArgumentError("jumok writes reports about translation models only")
        page = self.page(watch)
        with atomic_write(path) as file:
            file.write(page.encode(errors="replace"))


@dataclass(frozen=True, kw_only=True)
class MapOptions(CommandOptions):
    """Which attention to show."""

    target: str | None = None
    """The output to show instead of the model's own."""
    kind: MapKind = "cross"
    """Attention to the source, or self-attention of the encoder or decoder."""
    layer: tuple[int, ...] = ()
    head: tuple[int, ...] = ()
    """Layers and heads, counted from 0; none for all."""
    tokens: bool | None = None
    """Show tokens instead of words; None for what suits the tokenizer."""
    grid: bool = False
    """Draw every layer and head separately."""
    beam: int | None = None
    max_source: int | None = None
    tag: str | None = None
    """The tag in front of the source."""
    languages: Languages = LANGUAGES_OF_MODEL
    """Those of source and target, for a model of several."""


class Classification(NamedTuple):
    """The class that a model predicts."""

    probabilities: dict[str, float]
    """The probability of every class, most probable first."""
    label: str | None = None
    """The true class, if it is known."""

    @property
    def predicted(self) -> str:
        """The most probable class."""
        return next(iter(self.probabilities))


@dataclass(frozen=True)
class MappedOutput:
    """An output of a model and its attention maps: one, or one for each part of a text that was split."""

    facts: dict[str, Any]
    """The input, the output as "text", and the score if the model chose the output."""
    maps: list[AttentionMap]
    warnings: tuple[str, ...] = ()
    classification: Classification | None = None
    """Where the model classifies its input."""

    def select(self, layers: Sequence[int], heads: Sequence[int]) -> "MappedOutput":
        """The same with these layers and heads of the maps; an empty list keeps all."""
        layer, head = list(layers) or None, list(heads) or None
        return replace(self, maps=[shown.select(layer=layer, head=head) for shown in self.maps])

    def as_plain(self) -> dict[str, Any]:
        """The values for JSON: `attention` is the map, or `parts` are the maps of several parts."""
        maps = [shown.as_plain() for shown in self.maps]
        return self.facts | ({"attention": maps[0]} if len(maps) == 1 else {"parts": maps})


def write_outputs(path: Path | None, outputs: Sequence[str]) -> None:
    """Write outputs to a file, one per line; nothing if no file is named."""
    if path is not None:
        with atomic_write(path) as file:
            file.write("".join(f"{output}\n" for output in outputs).encode())
