"""The models of a server: translators and captioners, loaded once, known by name."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from jumok.analysis.alignment.aligner import Aligner
from jumok.analysis.maps.attention_map import MapKind, resolve_index
from jumok.devices import find_device
from jumok.errors import ArgumentError, ModelError
from jumok.images.files import Pixels
from jumok.serve.errors import UnknownModelError
from jumok.tasks import task_of
from jumok.tasks.alignment import default_aligner
from jumok.tasks.results import LANGUAGES_OF_MODEL, Languages
from jumok.tasks.task import AnyTask, parameters, read_trained
from jumok.tasks.text_generator import TextGenerator
from jumok.tasks.translator import Translator

EXAMPLES_FILE = "examples.txt"
"""A file of a model folder with texts to try, one per line."""
MAX_EXAMPLES = 8
MOST_PAIRS = 8
"""Pairs of languages whose tokenizers a model of several keeps."""

Source = str | Pixels
"""The input of a model: a text, or an image."""
Reads = Literal["text", "image"]
G = TypeVar("G", bound=TextGenerator[Any])


class AttentionShape(NamedTuple):
    """The attention of a model: how many layers attend to the source, with how many heads, and its kinds."""

    layers: int
    heads: int
    kinds: tuple[MapKind, ...]


class ServedModel(Generic[G]):
    """A text generator with a name, and what the page and the API tell about it.

    Without its `attention`, the model runs once to find it.
    """

    def __init__(
        self,
        name: str,
        task: str,
        generator: G,
        examples: Sequence[str] = (),
        *,
        attention: AttentionShape | None = None,
    ) -> None:
        self.name, self.task, self.generator, self.examples = name, task, generator, tuple(examples)
        self.attention = attention or AttentionShape(*generator.attention_shape(), generator.map_kinds())
        self.layers, self.heads, self.kinds = self.attention
        self._between, self._turn = dict[Languages, "ServedModel[G]"](), Lock()

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return parameters(self.generator.trained.model)

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

    def between(self, languages: Languages) -> "ServedModel[G]":
        """The same model between two of its languages; the pairs that were asked for last are kept."""
        if languages == LANGUAGES_OF_MODEL:
            return self
        with self._turn:
            model = self._between.pop(languages, None) or self._set_to(languages)
            self._between[languages] = model
            if len(self._between) > MOST_PAIRS:
                del self._between[next(iter(self._between))]
        return model

    def _set_to(self, languages: Languages) -> "ServedModel[G]":
        if not isinstance(self.generator, Translator):
            raise ArgumentError(f"the model {self.name} has no languages to choose from; leave out from and to")
        chosen = cast(G, self.generator.between(*languages))
        # Its attention is the same, and not computed again: the model may be at work.
        return ServedModel(self.name, self.task, chosen, self.examples, attention=self.attention)

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
) -> dict[str, ServedModel[Any]]:
    """Load model folders, given by name; the first model that reads texts, or images, is the default for these."""
    return {name: serve_model(name, Path(folder), device, own_task=task) for name, folder in folders.items()}


def serve_model(name: str, folder: Path, device: str = "auto", *, own_task: AnyTask | None = None) -> ServedModel[Any]:
    """Load a model folder to be served; `own_task` is its task if that is not one of jumok's."""

    def choose(tables: Mapping[str, Any]) -> AnyTask:
        task = own_task or task_of(tables)
        if not task.generates_text:
            commands = " or ".join(task.usage(str(folder)))
            raise ModelError(f"{folder} {task.does}, which jumok serve does not support; use {commands}")
        return task

    task, trained = read_trained(folder, choose, find_device(device))
    generator: TextGenerator[Any] = task.predictor(trained, folder)
    return ServedModel(name, task.name, generator, _own_examples(folder) or generator.examples(MAX_EXAMPLES))


def find_model(models: Mapping[str, ServedModel[Any]], name: str | None, reads: Reads) -> ServedModel[Any]:
    """The model of that name; for None, the first one that reads texts, or images."""
    if name is None:
        name = next((model.name for model in models.values() if model.generator.reads == reads), None)
        if name is None:
            raise UnknownModelError(f"this server has no model that reads {reads}s; it has: {', '.join(models)}")
    if name not in models:
        raise UnknownModelError(f"there is no model {name[:80]!r}; there are: {', '.join(models)}")
    model = models[name]
    if model.generator.reads != reads:
        raise ArgumentError(f"the model {name} reads {model.generator.reads}s, not {reads}s; choose another model")
    return model


def _own_examples(folder: Path) -> list[str]:
    """The lines of the folder's own file, if it has one."""
    path = folder / EXAMPLES_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [line.strip() for line in lines if line.strip()][:MAX_EXAMPLES]
