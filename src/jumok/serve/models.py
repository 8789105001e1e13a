"""The models of a server: translators, captioners and those whose task draws maps; loaded once, known by name."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast

from jumok.analysis.alignment.aligner import Aligner
from jumok.analysis.maps.attention_map import MapKind, resolve_index
from jumok.devices import find_device
from jumok.errors import ArgumentError, ModelError
from jumok.images.files import Pixels
from jumok.serve.errors import UnknownModelError
from jumok.tasks import task_of
from jumok.tasks.alignment import default_aligner
from jumok.tasks.results import LANGUAGES_OF_MODEL, Languages, MapOptions, MappedOutput
from jumok.tasks.task import AnyTask, Predictor, parameters, read_trained
from jumok.tasks.text_generator import TextGenerator
from jumok.tasks.translator import Translator

EXAMPLES_FILE = "examples.txt"
"""A file of a model folder with texts to try, one per line."""
MAX_EXAMPLES = 8
MOST_PAIRS = 8
"""Pairs of languages whose tokenizers a model of several keeps."""

Source = str | Pixels
"""The input of a model: a text, or an image."""
Reads = Literal["text", "image", "node"]
G = TypeVar("G", bound=TextGenerator[Any])


class ServedModel:
    """A model with a name."""

    does: ClassVar[str] = ""
    """What it does with its input besides reading it, in messages."""

    def __init__(self, name: str, task: str, reads: Reads, predictor: Predictor, examples: Sequence[str]) -> None:
        self.name, self.task, self.reads, self.examples = name, task, reads, tuple(examples)
        self.parameters = parameters(predictor.trained.model)


M = TypeVar("M", bound=ServedModel)


class ServedMapper(ServedModel):
    """A model of a task that maps the attention to its inputs but generates no text, such as one of a graph."""

    def __init__(
        self, name: str, task: AnyTask, reads: Reads, predictor: Predictor, examples: Sequence[str] = ()
    ) -> None:
        super().__init__(name, task.name, reads, predictor, examples)
        self.mapping_task, self.predictor = task, predictor

    def check_options(self, options: MapOptions) -> None:
        """Raise an ArgumentError for an option that has no effect on its maps; it is named as in requests."""
        for option in fields(options):
            if getattr(options, option.name) != option.default and option.name not in self.mapping_task.map_options:
                field = {"tokens": "words", "languages": "from or to"}.get(option.name, option.name)
                what = f"the model {self.name}, which {self.mapping_task.does}"
                raise ArgumentError(f"{field} does not apply to {what}; leave it out")

    def map(self, source: str, options: MapOptions) -> MappedOutput:
        """The output for an input, with its one map."""
        output = self.mapping_task.map(self.predictor, source, options)
        if len(output.maps) != 1:
            raise ArgumentError(f"there is no single attention map: the model {self.name} made {len(output.maps)}")
        return output


class AttentionShape(NamedTuple):
    """The attention of a model: how many layers attend to the source, with how many heads, and its kinds."""

    layers: int
    heads: int
    kinds: tuple[MapKind, ...]


class ServedGenerator(ServedModel, Generic[G]):
    """A text generator with a name, and what the page and the API tell about it.

    Without its `attention`, the model runs once to find it.
    """

    does = " and writes text"

    def __init__(
        self,
        name: str,
        task: str,
        generator: G,
        examples: Sequence[str] = (),
        *,
        attention: AttentionShape | None = None,
    ) -> None:
        super().__init__(name, task, generator.reads, generator, examples)
        self.generator = generator
        self.attention = attention or AttentionShape(*generator.attention_shape(), generator.map_kinds())
        self.layers, self.heads, self.kinds = self.attention
        self._between, self._turn = dict[Languages, "ServedGenerator[G]"](), Lock()

    @cached_property
    def aligner(self) -> Aligner:
        """Word alignment with the attention head of a translator that aligns best; choosing it takes a moment."""
        return default_aligner(self.generator.trained)

    def aligner_with(self, layer: int | None, head: int | None) -> Aligner:
        """The aligner with the given layer and head; with a layer alone, the mean of its heads."""
        chosen = self.aligner.head
        if layer is None and head is None:
            return self.aligner
        layer = chosen.layer if layer is None else layer
        return self.aligner._replace(head=chosen._replace(layer=layer, head=head, informed=False, null=False))

    def between(self, languages: Languages) -> "ServedGenerator[G]":
        """The same model between two of its languages; the pairs that were asked for last are kept."""
        if languages == LANGUAGES_OF_MODEL:
            return self
        with self._turn:
            model = self._between.pop(languages, None) or self._set_to(languages)
            self._between[languages] = model
            if len(self._between) > MOST_PAIRS:
                del self._between[next(iter(self._between))]
        return model

    def _set_to(self, languages: Languages) -> "ServedGenerator[G]":
        if not isinstance(self.generator, Translator):
            raise ArgumentError(f"the model {self.name} has no languages to choose from; leave out from and to")
        chosen = cast(G, self.generator.between(*languages))
        # Its attention is the same, and not computed again: the model may be at work.
        return ServedGenerator(self.name, self.task, chosen, self.examples, attention=self.attention)

    def output_ids(self, target: str | Sequence[int]) -> tuple[int, ...]:
        """The tokens of an output, given as text or as token ids."""
        tokenizer = self.generator.tokenizer
        ids = tuple(tokenizer.encode(target)[1:-1] if isinstance(target, str) else target)
        if any(not 0 <= id < tokenizer.size for id in ids):
            raise ArgumentError(f"target_ids must be between 0 and {tokenizer.size - 1}")
        self.generator.check_target(ids)
        return ids

    def check_attention(self, kind: MapKind = "cross") -> None:
        """Raise an ArgumentError if the model has no attention of this kind."""
        if self.kinds and kind not in self.kinds:
            raise ArgumentError(f"the model {self.name} has no attention of kind {kind}, only {', '.join(self.kinds)}")
        if not self.kinds:
            raise ArgumentError(
                f"the model {self.name} has no attention: its decoder sees the whole source as one fixed vector"
            )

    def check_head(self, layer: int | None, head: int | None) -> None:
        """Raise an ArgumentError for a layer or head that the model does not have."""
        resolve_index(layer or 0, self.layers, "layer")
        resolve_index(head or 0, self.heads, "head")


def load_models(
    folders: Mapping[str, str | Path], *, device: str = "auto", task: AnyTask | None = None
) -> dict[str, ServedModel]:
    """Load model folders, given by name; the first model that reads texts, images or nodes is the default for these."""
    return {name: serve_model(name, Path(folder), device, own_task=task) for name, folder in folders.items()}


def serve_model(name: str, folder: Path, device: str = "auto", *, own_task: AnyTask | None = None) -> ServedModel:
    """Load a model folder to be served; `own_task` is its task if that is not one of jumok's."""

    def choose(tables: Mapping[str, Any]) -> AnyTask:
        task = own_task or task_of(tables)
        if not task.generates_text and task.map_reads is None:
            commands = " or ".join(task.usage(str(folder)))
            raise ModelError(f"{folder} {task.does}, which jumok serve does not support; use {commands}")
        return task

    task, trained = read_trained(folder, choose, find_device(device))
    predictor, examples = task.predictor(trained, folder), _own_examples(folder)
    if task.generates_text or task.map_reads is None:
        return ServedGenerator(name, task.name, predictor, examples or predictor.examples(MAX_EXAMPLES))
    examples = examples or task.map_examples(predictor, MAX_EXAMPLES)
    return ServedMapper(name, task, task.map_reads, predictor, examples)


def find_model(models: Mapping[str, ServedModel], name: str | None, reads: Reads, kind: type[M]) -> M:
    """The model of that name; for None, the first one of this kind that reads texts, images or nodes."""
    if name is None:
        for model in models.values():
            if isinstance(model, kind) and model.reads == reads:
                return model
        raise UnknownModelError(f"this server has no model that reads {reads}s{kind.does}; it has: {', '.join(models)}")
    if name not in models:
        raise UnknownModelError(f"there is no model {name[:80]!r}; there are: {', '.join(models)}")
    model = models[name]
    if model.reads != reads:
        raise ArgumentError(f"the model {name} reads {model.reads}s, not {reads}s; choose another model")
    if not isinstance(model, kind):
        raise ArgumentError(f"the model {name} reads {reads}s, but writes no text; choose another model")
    return model


def _own_examples(folder: Path) -> list[str]:
    """The lines of the folder's own file, if it has one."""
    path = folder / EXAMPLES_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [line.strip() for line in lines if line.strip()][:MAX_EXAMPLES]
