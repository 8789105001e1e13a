"""The models of a server: translators and captioners, loaded once, known by name."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import nn

from jumok.analysis.alignment.aligner import Aligner
from jumok.analysis.alignment.head_choice import choose_head, default_head, guided_head
from jumok.analysis.alignment.word_attention import AlignmentHead, alignment_heads
from jumok.analysis.draw.scene import image_url
from jumok.analysis.maps.attention_map import AttentionMap, resolve_index
from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import BOS, EOS, DataConfig, Pair, Tokenizer, corpus_pairs
from jumok.data.corpora.built_in import corpus_values
from jumok.decoding.config import DecodingConfig
from jumok.errors import ArgumentError, ModelError
from jumok.images.files import Pixels
from jumok.images.scenes import scene
from jumok.serve.errors import UnknownModelError
from jumok.tasks import NODE_CLASSIFICATION, load, task_in
from jumok.tasks.captioning import Captioner
from jumok.tasks.translation import Trained
from jumok.tasks.translator import Translator

EXAMPLES_FILE = "examples.txt"
"""A file of a model folder with texts to try, one per line."""
MAX_EXAMPLES, MAX_EXAMPLE_LENGTH = 8, 50
EXAMPLE_SIDE = 160
"""Pixels of an example image."""
SAMPLE = 200
"""Pairs of a built-in corpus for examples, and for choosing the attention head that aligns."""
NUMBER, WORD, LIST = re.compile(r"\d+"), re.compile(r"[^\W\d]+(?: [^\W\d]+)*"), re.compile(r"(a, ?)+")

Task = Literal["translation", "captioning"]
Source = str | Pixels
"""The input of a model: a text, or an image."""


class ServedModel(ABC):
    """A model with a name, and what the page and the API tell about it."""

    task: ClassVar[Task]
    model: nn.Module
    decoding: DecodingConfig
    tokenizer: Tokenizer
    """The tokenizer of the output."""
    languages: tuple[str | None, str | None]
    """The languages of source and target, if known."""
    corpus: str
    """The built-in corpus that the model was trained on, "" for other data."""
    layers: int
    """Decoder layers that attend to the source; 0 for a model without attention."""
    heads: int

    def __init__(self, name: str, examples: Sequence[str] = ()) -> None:
        self.name, self.examples = name, tuple(examples)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    @abstractmethod
    def max_output(self) -> int:
        """The most tokens that the model writes."""

    @abstractmethod
    def size(self, source: Any) -> int:
        """The number of tokens of a text, or of regions of an image."""

    @abstractmethod
    def check_source(self, source: Any) -> None:
        """Raise an ArgumentError if the source has no attention map."""

    @abstractmethod
    def attention_map(self, source: Any, ids: Sequence[int], *, words: bool) -> AttentionMap:
        """The attention of the model while it writes the given tokens."""

    def output_ids(self, target: str | Sequence[int]) -> tuple[int, ...]:
        """The tokens of an output, given as text or as token ids."""
        ids = tuple(self.tokenizer.encode(target)[1:-1] if isinstance(target, str) else target)
        if any(not 0 <= id < self.tokenizer.size for id in ids):
            raise ArgumentError(f"target_ids must be between 0 and {self.tokenizer.size - 1}")
        if len(ids) > self.max_output:
            raise ArgumentError(
                f"the target has {len(ids)} tokens, but the model writes at most {self.max_output}; use a shorter one"
            )
        return ids

    def check_attention(self) -> None:
        """Raise an ArgumentError if the model has no attention."""
        if not self.layers:
            raise ArgumentError(
                f"the model {self.name} has no attention: its decoder sees the whole source as one fixed vector"
            )

    def check_head(self, layer: int | None, head: int | None) -> None:
        """Raise an ArgumentError for a layer or head that the model does not have."""
        resolve_index(layer or 0, self.layers, "layer")
        resolve_index(head or 0, self.heads, "head")


class ServedTranslator(ServedModel):
    """A translator on the server."""

    task = "translation"

    def __init__(self, name: str, translator: Translator, examples: Sequence[str] = ()) -> None:
        super().__init__(name, examples)
        self.translator = translator
        self.model, recipe, tokenizers = translator.trained
        self.decoding, self.tokenizer, self.corpus = recipe.decoding, tokenizers.target, recipe.data.corpus
        self.languages = _languages(recipe.data)
        ids = torch.tensor([[EOS]], device=_device(self.model))
        self.layers, self.heads = _attention_shape(self.model, ids, torch.ones_like(ids, dtype=torch.bool))

    @property
    def max_output(self) -> int:
        """The most tokens that the model writes."""
        return _max_output(self.translator.trained.model.decoder.limit, self.decoding)

    @cached_property
    def aligner(self) -> Aligner:
        """Word alignment with the attention head that aligns best; choosing it takes a moment."""
        trained = self.translator.trained
        return Aligner(
            trained.model,
            trained.tokenizers,
            guided_head(trained.model, trained.recipe.training.guide) or _chosen_head(trained),
        )

    def aligner_with(self, layer: int | None, head: int | None) -> Aligner:
        """The aligner with the given layer and head; with a layer alone, the mean of its heads."""
        chosen = self.aligner.head
        if layer is None and head is None:
            return self.aligner
        layer = chosen.layer if layer is None else layer
        return self.aligner._replace(head=chosen._replace(layer=layer, head=head, informed=False, null=False))

    def size(self, source: str) -> int:
        """The number of tokens of a text."""
        return len(self.translator.trained.tokenizers.source.encode(source)) - 2

    def check_source(self, source: str) -> None:
        """Raise an ArgumentError for an empty text, and for one that the model does not read at once."""
        if not self.size(source):
            raise ArgumentError("there is no attention map of an empty text")
        self.translator.check_source(source)

    def attention_map(self, source: str, ids: Sequence[int], *, words: bool) -> AttentionMap:
        """The attention of the model while it writes the given tokens."""
        trained = self.translator.trained
        return map_of_translation(trained.model, trained.tokenizers, source, ids, words=words)


class ServedCaptioner(ServedModel):
    """An image captioner on the server."""

    task = "captioning"

    def __init__(self, name: str, captioner: Captioner, examples: Sequence[str] = ()) -> None:
        super().__init__(name, examples)
        self.captioner = captioner
        self.model, recipe, self.tokenizer = captioner.trained
        self.decoding, self.corpus = recipe.decoding, "scenes" if recipe.images.scenes else ""
        self.languages = None, recipe.images.scenes or None
        side = recipe.images.size
        image = torch.zeros(1, 3, side, side, dtype=torch.uint8, device=_device(self.model))
        self.layers, self.heads = _attention_shape(self.model, image)

    @property
    def max_output(self) -> int:
        """The most tokens that the model writes."""
        return _max_output(self.captioner.trained.model.decoder.limit, self.decoding)

    def size(self, source: Pixels) -> int:
        """The number of regions of the image."""
        rows, columns = self.captioner.trained.model.encoder.grid
        return rows * columns

    def check_source(self, source: Pixels) -> None:
        """Every image has an attention map."""

    def attention_map(self, source: Pixels, ids: Sequence[int], *, words: bool) -> AttentionMap:
        """The attention of the model while it writes the given tokens."""
        return self.captioner.map_of(source, ids, self.tokenizer.decode(ids), words=words)


Kind = TypeVar("Kind", bound=ServedModel)


def load_models(folders: Mapping[str, str | Path], *, device: str = "auto") -> dict[str, ServedModel]:
    """Load model folders, given by name; the first model of a kind is the default."""
    return {name: serve_model(name, Path(folder), device) for name, folder in folders.items()}


def serve_model(name: str, folder: Path, device: str = "auto") -> ServedModel:
    """Load a model folder to be served."""
    model = _load(folder, device)
    if isinstance(model, Translator):
        return ServedTranslator(name, model, _text_examples(folder, model.trained.recipe.data))
    return ServedCaptioner(name, model, _image_examples() if model.trained.recipe.images.scenes else ())


def find_model(models: Mapping[str, ServedModel], name: str | None, kind: type[Kind]) -> Kind:
    """The model of that name; the first one of the kind for None."""
    if name is None:
        name = next((one.name for one in models.values() if isinstance(one, kind)), None)
        if name is None:
            raise UnknownModelError(f"this server has no model for {kind.task}; it has: {', '.join(models)}")
    if name not in models:
        raise UnknownModelError(f"there is no model {name[:80]!r}; there are: {', '.join(models)}")
    model = models[name]
    if not isinstance(model, kind):
        raise ArgumentError(f"the model {name} is for {model.task}, not for {kind.task}; choose another model")
    return model


def _load(folder: Path, device: str) -> Translator | Captioner:
    if task_in(folder) is NODE_CLASSIFICATION:
        raise ModelError(
            f"{folder} is a graph network, which jumok serve does not support; use jumok evaluate {folder} or "
            f"jumok look {folder} --node 0"
        )
    model: Translator | Captioner = load(folder, device=device)
    return model


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _max_output(limit: int | None, decoding: DecodingConfig) -> int:
    """A decoder with learnt positions needs one of its `limit` for the start of the output."""
    return decoding.max_length if limit is None else min(decoding.max_length, limit - 1)


@torch.no_grad()
def _attention_shape(model: nn.Module, *source: torch.Tensor) -> tuple[int, int]:
    """The number of layers that attend to the source, and of heads in each; zeros without attention."""
    attention = model(*source, torch.tensor([[BOS]], device=source[0].device)).attention
    return len(attention), attention[0]().shape[1] if attention else 0


def _languages(data: DataConfig) -> tuple[str | None, str | None]:
    """By the locales of a built-in corpus, or by file names such as train.ko."""
    if not data.corpus:
        return _file_language(data.source), _file_language(data.target)
    source, target = data.locales
    by_corpus = {"cldr": (source, target), "phrases": (source, target), "dates": (source, None)}
    return by_corpus.get(data.corpus, (None, None))


def _file_language(path: str) -> str | None:
    ending = Path(path.removesuffix(".gz").removesuffix(".xz")).suffix[1:]
    return ending if 2 <= len(ending) <= 3 and ending.isalpha() and ending != "txt" else None


def _chosen_head(trained: Trained) -> AlignmentHead:
    """The head that aligns best on the built-in corpus of the model, as `jumok align` chooses it, or the usual one."""
    heads, data = alignment_heads(trained.model), trained.recipe.data
    if not data.corpus:
        return default_head(heads, recurrent=trained.recipe.decoder.kind == "rnn")
    source, target = data.locales
    sample = corpus_pairs(data.corpus, SAMPLE, split="valid", source=source, target=target, longest=data.longest)
    return choose_head(trained.model, trained.tokenizers, list[Pair](sample), heads)


def _text_examples(folder: Path, data: DataConfig) -> list[str]:
    """The lines of the folder's own file; otherwise test sentences of the built-in corpus it was trained on."""
    path = folder / EXAMPLES_FILE
    if path.is_file():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][:MAX_EXAMPLES]
    return _corpus_examples(data)


def _corpus_examples(data: DataConfig) -> list[str]:
    """Short test sentences: one of every kind of value in the corpus, then others of different patterns."""
    if not data.corpus:
        return []
    source, target = data.locales
    values = corpus_values(data.corpus, SAMPLE, split="test", source=source, target=target, longest=data.longest)
    short = [(value.kind, pair.source) for value, pair in values if len(pair.source) < MAX_EXAMPLE_LENGTH]
    of_kinds = dict(reversed(short)).values()  # the first of each kind
    of_patterns = {_pattern(text): text for _, text in reversed(short)}.values()
    return list(dict.fromkeys([*of_kinds, *of_patterns]))[:MAX_EXAMPLES]


def _pattern(text: str) -> str:
    """Words, numbers and punctuation in their order; all lists have one pattern."""
    return LIST.sub("a, ", WORD.sub("a", NUMBER.sub("0", text)))


def _image_examples() -> list[str]:
    """Test images of the built-in scenes, as data URLs."""
    return [image_url(scene(number, split="test").picture(EXAMPLE_SIDE)) for number in range(MAX_EXAMPLES)]
