"""What translators and captioners share: they write text for a source by beam search, and map its attention."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from jumok.analysis.maps.attention_map import MAP_KINDS, AttentionMap, MapKind, checked_kind
from jumok.analysis.scores.metrics import References, score_outputs
from jumok.analysis.scores.word_probabilities import OutputProbabilities
from jumok.data import BOS, EOS, PAD, UNK
from jumok.data.tokenizer import Tokenizer
from jumok.decoding import Specials
from jumok.decoding.config import SearchConfig
from jumok.errors import ArgumentError, NoOutputError
from jumok.models.encoder_decoder import EncoderDecoder, HeadWeights
from jumok.tasks.recipes import CaptionRecipe, TranslationRecipe
from jumok.tasks.task import Trained
from jumok.training.config import TrainingConfig

SPECIALS = Specials(pad=PAD, bos=BOS, eos=EOS, unk=UNK)

Output = TypeVar("Output", bound=Any)


@runtime_checkable
class TrainedGenerator(Trained, Protocol):
    """A trained encoder-decoder that writes text."""

    @property
    def model(self) -> EncoderDecoder: ...

    @property
    def recipe(self) -> TranslationRecipe | CaptionRecipe: ...


T = TypeVar("T", bound=TrainedGenerator)


class TextGenerator(ABC, Generic[T]):
    """One loaded model that writes text for sources of one kind."""

    reads: ClassVar[Literal["text", "image"]]

    def __init__(self, trained: T) -> None:
        self.trained = trained
        self.trained.model.eval()

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the output."""

    @property
    def decoding(self) -> SearchConfig:
        """The model's own settings of beam search."""
        return self.trained.recipe.decoding

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.trained.model.parameters()).device

    @property
    def longest(self) -> int | None:
        """Most tokens of a source that the model was trained on; None where a source has no length."""
        return None

    @property
    def max_output(self) -> int:
        """The most tokens that the model writes; the start of the output takes one of a decoder's learned positions."""
        limit = self.trained.model.decoder.limit
        return self.decoding.max_length if limit is None else min(self.decoding.max_length, limit - 1)

    @property
    def tags(self) -> list[str]:
        """The tags of languages or domains that the model knows; only models of texts have any."""
        return []

    @property
    def language_choices(self) -> tuple[list[str], list[str]]:
        """The languages of source and target to choose from; only multilingual models have any."""
        return [], []

    @abstractmethod
    def size(self, source: Any) -> int:
        """The number of tokens of a text, or of regions of an image."""

    @abstractmethod
    def check_source(self, source: Any) -> None:
        """Raise an ArgumentError for a source that has no attention map."""

    def check_target(self, ids: Sequence[int]) -> None:
        """Raise an ArgumentError for an output longer than any that the model writes."""
        if len(ids) > self.max_output:
            raise ArgumentError(
                f"the target has {len(ids)} tokens, but the model writes at most {self.max_output}; use a shorter one"
            )

    @property
    def is_character_level(self) -> bool:
        """Whether maps are between tokens unless words are asked for, because texts are cut into letters."""
        return False

    @abstractmethod
    def map_of(
        self, source: Any, ids: Sequence[int], *, words: bool | None = None, kind: MapKind = "cross"
    ) -> AttentionMap:
        """The attention of the model while it writes the given tokens: to the source, or self-attention."""

    @abstractmethod
    def probabilities_of(self, source: Any, ids: Sequence[int]) -> OutputProbabilities:
        """The probability of every word and token of an output, and of its end."""

    @abstractmethod
    def smallest_source(self) -> tuple[Tensor, ...]:
        """The inputs of the encoder for a source of the smallest size."""

    @torch.no_grad()
    def attention_shape(self) -> tuple[int, int]:
        """The number of layers that attend to the source, and of heads in each; zeros without attention."""
        start = torch.tensor([[BOS]], device=self.device)
        attention = self.trained.model(*self.smallest_source(), start).attention
        return len(attention), attention[0]().shape[1] if attention else 0

    @torch.no_grad()
    def layers_of(self, kind: MapKind) -> tuple[HeadWeights, ...]:
        """The attention of every layer for a source of the smallest size; an ArgumentError if the model has none."""
        model, start, source = self.trained.model, torch.tensor([[BOS]], device=self.device), self.smallest_source()
        if checked_kind(kind) == "encoder":
            return model.encoder.self_attention(*source)
        attention = model.decoder.source_attention if kind == "cross" else model.decoder.self_attention
        return attention(model.encoder(*source), start)

    def map_kinds(self) -> tuple[MapKind, ...]:
        """The kinds of attention that the model has."""
        return tuple(kind for kind in MAP_KINDS if self._has(kind))

    def _has(self, kind: MapKind) -> bool:
        try:
            self.layers_of(kind)
        except ArgumentError:
            return False
        return True

    # For the page of the server

    @property
    @abstractmethod
    def languages(self) -> tuple[str | None, str | None]:
        """The languages of source and target, if known."""

    @property
    @abstractmethod
    def corpus(self) -> str:
        """The built-in corpus that the model was trained on, "" for other data."""

    @abstractmethod
    def examples(self, count: int) -> list[str]:
        """Sources to try: texts, or images as data URLs; none for a model that was not trained on a built-in corpus."""


def best_outputs(ranked: Iterable[Output], n_best: int) -> Output:
    """The first of several translations or captions, best first; with `n_best` above 1, it holds those that differ."""
    by_text: dict[str, Output] = {}
    for output in ranked:
        by_text.setdefault(output.text, output)  # the same words can be cut into tokens in several ways
    best = tuple(by_text.values())[:n_best]
    return replace(best[0], n_best=best) if n_best > 1 else best[0]


def with_metric(
    losses: dict[str, float],
    config: TrainingConfig,
    outputs: Callable[[], Sequence[str]],
    references: Sequence[References],
) -> dict[str, float]:
    """The scores of a validation: its loss, and the recipe's metric; NaN for a model too broken to write anything."""
    if config.metric == "loss":
        return losses
    if not math.isfinite(losses["loss"]):
        return losses | {config.metric: math.nan}
    try:
        written = outputs()
    except NoOutputError:
        return losses | {config.metric: math.nan}
    (score,) = score_outputs(written, references, [config.metric], resamples=1)
    return losses | {config.metric: score.value}
