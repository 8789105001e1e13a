"""What the server's models do, each a function of a list: translate texts, look where translations looked, align."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jumok.analysis.maps.attention_map import AttentionMap, resolve_index
from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import Pair
from jumok.data.word_links import Link
from jumok.decoding import Node
from jumok.errors import ArgumentError
from jumok.serve.models import Served
from jumok.serve.tree import Watched
from jumok.serve.turns import Check
from jumok.tasks.translator import Translation, join_parts


class Asked(NamedTuple):
    """A text to translate, or a part of one, and who watches the search for it."""

    text: str
    watched: Watched | None = None
    part: int = 0


@dataclass(frozen=True)
class Translate:
    """Translate with these settings; texts of one batch share them."""

    model: Served
    beam: int
    n_best: int = 1

    @property
    def weight(self) -> int:
        """Every token is read once, and about one is written for it, by every hypothesis."""
        return self.beam

    @property
    def engine(self) -> Hashable:
        """The model, whatever the beam."""
        return Translate, self.model.name

    def size(self, asked: Asked) -> int:
        """Its tokens."""
        return self.model.count(asked.text) + 1

    def split(self, asked: Asked) -> list[Asked]:
        """Its parts, as many as the model needs to read it; of an empty text itself."""
        parts = self.model.translator.parts(asked.text) or [asked.text]
        return [Asked(text, asked.watched, number) for number, text in enumerate(parts)]

    def join(self, asked: Asked, parts: list[Translation]) -> Translation:
        """The translation of the text."""
        return join_parts(asked.text, parts)

    def __call__(self, batch: list[Asked], check: Check) -> list[Translation]:
        """The translation of every part."""
        watched = {number: asked.watched for number, asked in enumerate(batch) if asked.watched is not None}
        for number, watching in watched.items():
            watching.begin(batch[number].part)

        def watch(number: int, _: int, nodes: list[Node]) -> None:
            if number in watched:
                watched[number].grow(batch[number].part, nodes)

        return self.model.translator.translate(
            [asked.text for asked in batch],
            beam=self.beam,
            n_best=self.n_best,
            watch=watch if watched else None,
            check=check,
        )


class Whole:
    """Work whose items are done in one piece, by the pair of a source and what is said of it."""

    model: Served
    weight = 1

    @property
    def engine(self) -> Hashable:
        """The model, and what it is asked for."""
        return type(self), self.model.name

    def split(self, item: Any) -> Sequence[Any]:
        """The item itself."""
        return [item]

    def join(self, item: Any, results: list[Any]) -> Any:
        """The one result."""
        (result,) = results
        return result


class Forced(NamedTuple):
    """A source, and the ids of what is said of it."""

    source: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Look(Whole):
    """The attention of a model while it says what it is told to say."""

    model: Served
    words: bool = True

    def size(self, pair: Forced) -> int:
        """The tokens of both."""
        return self.model.count(pair.source) + len(pair.ids)

    def __call__(self, batch: list[Forced], check: Check) -> list[AttentionMap]:
        """The map of every pair."""
        trained, maps = self.model.translator.trained, []
        for pair in batch:
            check()
            maps.append(map_of_translation(trained.model, trained.tokenizers, pair.source, pair.ids, words=self.words))
        return maps


@dataclass(frozen=True)
class Align(Whole):
    """The links between the words of texts and their translations, by the layer and head asked for."""

    model: Served
    layer: int | None = None
    head: int | None = None

    def size(self, pair: Pair) -> int:
        """The tokens of both."""
        target = self.model.translator.trained.tokenizers.target
        return self.model.count(pair.source) + len(target.encode(pair.target))

    def __call__(self, pairs: list[Pair], check: Check) -> list[set[Link]]:
        """The links of every pair."""
        check()
        return self.model.aligner_with(self.layer, self.head).align(pairs)


def checked_head(model: Served, layer: int | None, head: int | None) -> None:
    """Refuse a layer or head that the model does not have."""
    resolve_index(layer or 0, model.layers, "layer")
    resolve_index(head or 0, model.heads, "head")


def checked_pair(model: Served, source: str, target: str | list[int]) -> Forced:
    """A pair that the model can be asked about, its target a text or the ids of its tokens."""
    if not model.layers:
        raise ArgumentError(f"the model {model.name} has no attention to show: its decoder sees only a fixed context")
    if not model.count(source):
        raise ArgumentError("there is no attention map of an empty text")
    model.translator.check_source(source)
    tokenizer = model.translator.trained.tokenizers.target
    ids = tokenizer.encode(target)[1:-1] if isinstance(target, str) else target
    if any(not 0 <= id < tokenizer.size for id in ids):
        raise ArgumentError(f"target_ids must lie between 0 and {tokenizer.size - 1}")
    model.translator.check_target(ids)
    return Forced(source, tuple(ids))
