"""The jobs that models compute in batches: translations, captions, attention maps and alignments."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.analysis.scores.word_probabilities import OutputProbabilities
from jumok.data import EOS, Pair
from jumok.data.terms import Terms
from jumok.data.word_links import Link
from jumok.decoding import BeamTree, Node
from jumok.decoding.constrained import FULL_BANKS
from jumok.images.files import Pixels
from jumok.serve.messages import BeamNode
from jumok.serve.models import ServedGenerator, ServedMapper, ServedModel, Source
from jumok.serve.queue import CancelCheck
from jumok.tasks.alternatives import MORE
from jumok.tasks.captioner import Caption, Captioner
from jumok.tasks.results import MapOptions, MappedOutput
from jumok.tasks.text_generator import TextGenerator
from jumok.tasks.translated_text import Translation, join_parts
from jumok.tasks.translator import EncodedText, Translator

MAP_COST = 512
"""The cost of a map that a task draws, large enough for small batches before the speed is known."""


class SearchWatcher:
    """Collects the beam search for one text: a tree for each part of it."""

    def __init__(self, model: ServedGenerator[Translator], on_change: Callable[[str], None] | None = None) -> None:
        self.model, self.on_change = model, on_change
        self.trees: dict[int, BeamTree] = {}
        self._shown = ""

    def begin(self, part: int) -> None:
        """Begin the search for a part, perhaps again: the pieces of a failed batch are computed one by one."""
        self.trees.pop(part, None)

    def grow(self, part: int, nodes: list[Node]) -> None:
        """Add a step of the search for a part; `on_change` gets the best output so far whenever it changes."""
        if nodes:
            self.trees.setdefault(part, BeamTree(EOS)).grow(nodes)
        if self.on_change is not None and (text := self.best_output()) != self._shown:
            self._shown = text
            self.on_change(text)

    def best_output(self) -> str:
        """The best output so far."""
        penalty = self.model.generator.decoding.length_penalty
        best = (self.trees[part].best(penalty)[0] for part in sorted(self.trees))
        return " ".join(map(self.model.generator.tokenizer.decode, best))

    def steps(self, translation: Translation) -> list[list[BeamNode]]:
        """The tree of a text that was translated in one part, with the ranks in the n-best list."""
        tree = self.trees.get(0, BeamTree(EOS))
        ranks = {
            output.pieces[0][1]: rank
            for rank, output in enumerate(translation.n_best or (translation,))
            if output.pieces
        }
        return [
            [self._node(tree, step, index, node, ranks) for index, node in enumerate(nodes)]
            for step, nodes in enumerate(tree.steps)
        ]

    def _node(self, tree: BeamTree, step: int, index: int, node: Node, ranks: dict[tuple[int, ...], int]) -> BeamNode:
        ids, ended = tree.ids(step, index), tree.is_end(node)
        return BeamNode(
            parent=node.parent if step else 0,
            token=self.model.generator.tokenizer.pieces[node.token],
            text=self.model.generator.tokenizer.decode(ids),
            log_prob=round(node.total, 5),
            score=round(tree.score(step, index, self.model.generator.decoding.length_penalty), 5),
            ended=ended,
            rank=ranks.get(tuple(ids)) if ended else None,
        )


class SourceText(NamedTuple):
    """A text to translate, tokenised with its tag, and what watches the search for it."""

    text: str
    encoded: EncodedText
    watcher: SearchWatcher | None = None


class SourcePiece(NamedTuple):
    """What is translated at once: a part of a text with the tag, or all of a text that has nothing to translate."""

    text: str
    parts: Sequence[EncodedText]
    """The part; none if there is nothing to translate."""
    watcher: SearchWatcher | None = None
    part_number: int = 0


@dataclass(frozen=True)
class TranslationJob:
    """Translation with these settings."""

    model: ServedGenerator[Translator]
    beam: int
    n_best: int = 1
    tag: str | None = None
    prefix: str = ""
    """The beginning of every translation."""
    terms: Terms | None = None
    """Terms that translations contain where their texts have them."""

    @property
    def weight(self) -> int:
        """Every hypothesis reads each token once, and writes about one for it; required text takes more of them."""
        return self.beam * (FULL_BANKS if self.prefix or self.terms else 1)

    @property
    def engine(self) -> Hashable:
        """The model, for any beam."""
        return TranslationJob, self.model.name

    def source(self, text: str, watcher: SearchWatcher | None = None) -> SourceText:
        """A text to translate, which is tokenised here and nowhere else."""
        generator = self.model.generator
        return SourceText(text, generator.encode(generator.tagged(text, self.tag)), watcher)

    def size(self, source: SourceText) -> int:
        """The number of tokens, the end among them."""
        return len(source.encoded.ids)

    def split(self, source: SourceText, size: int) -> list[tuple[SourcePiece, int]]:
        """The parts that the model reads at once, with the tag; a text that is short enough is its own part."""
        parts = self.model.generator.parts(source.encoded)
        if not parts:  # a text of spaces or tags alone
            return [(SourcePiece(source.encoded.text, (), source.watcher), size)]
        return [
            (SourcePiece(part.text, [part], source.watcher, number), len(part.ids)) for number, part in enumerate(parts)
        ]

    def join(self, source: SourceText, parts: list[Translation]) -> Translation:
        """The translation of the text."""
        return join_parts(source.text, parts)

    def __call__(self, batch: list[SourcePiece], check: CancelCheck) -> list[Translation]:
        """The translation of every part."""
        watched = {number: piece.watcher for number, piece in enumerate(batch) if piece.watcher is not None}
        for number, watcher in watched.items():
            watcher.begin(batch[number].part_number)

        def watch(number: int, _: int, nodes: list[Node]) -> None:
            if number in watched:
                watched[number].grow(batch[number].part_number, nodes)

        return self.model.generator.translate(
            [piece.text for piece in batch],
            encoded=[piece.parts for piece in batch],
            beam=self.beam,
            n_best=self.n_best,
            watch_steps=watch if watched else None,
            check=check,
            prefix=[self.prefix if piece.part_number == 0 else "" for piece in batch] if self.prefix else None,
            terms=self.terms,
        )


class UnsplitJob:
    """A job whose items are computed in one piece."""

    model: ServedModel

    @property
    def weight(self) -> int:
        """The cost of a token."""
        return 1

    @property
    def engine(self) -> Hashable:
        """The model and the kind of job."""
        return type(self), self.model.name

    def split(self, item: Any, size: int) -> Sequence[tuple[Any, int]]:
        """The item itself."""
        return [(item, size)]

    def join(self, item: Any, results: list[Any]) -> Any:
        """The only result."""
        (result,) = results
        return result


class BegunText(NamedTuple):
    """A text, and the beginning of its translation."""

    text: str
    prefix: str


@dataclass(frozen=True)
class AlternativesJob(UnsplitJob):
    """Different words after the beginning of a translation."""

    model: ServedGenerator[Translator]
    beam: int
    count: int
    tag: str | None = None

    @property
    def weight(self) -> int:
        """Every word is completed by a search of its own."""
        return self.beam * self.count * MORE

    def size(self, begun: BegunText) -> int:
        """The number of tokens."""
        return self.model.generator.size(self.model.generator.tagged(begun.text, self.tag)) + 1

    def __call__(self, batch: list[BegunText], check: CancelCheck) -> list[list[Translation]]:
        """The translations that go on with different words."""
        find = partial(self.model.generator.alternatives, count=self.count, tag=self.tag, beam=self.beam, check=check)
        return [find(text, prefix) for text, prefix in batch]


@dataclass(frozen=True)
class CaptionJob(UnsplitJob):
    """Captioning with these settings."""

    model: ServedGenerator[Captioner]
    beam: int
    n_best: int = 1

    @property
    def weight(self) -> int:
        """Every hypothesis attends to the regions of the image."""
        return self.beam

    def size(self, image: Pixels) -> int:
        """The number of regions."""
        return self.model.generator.size(image)

    def __call__(self, images: list[Pixels], check: CancelCheck) -> list[Caption]:
        """The caption of every image."""
        check()
        return self.model.generator.caption(images, beam=self.beam, n_best=self.n_best)


class ForcedOutput(NamedTuple):
    """A source, and the tokens that the model is made to write for it."""

    source: Source
    ids: tuple[int, ...]


class OutputAttention(NamedTuple):
    """The attention of an output and how probable it is."""

    attention: AttentionMap
    probabilities: OutputProbabilities


@dataclass(frozen=True)
class AttentionJob(UnsplitJob):
    """The attention of a model while it writes given tokens, and how probable they are."""

    model: ServedGenerator[TextGenerator[Any]]
    words: bool | None = None
    kind: MapKind = "cross"

    def size(self, output: ForcedOutput) -> int:
        """The number of tokens of both sides."""
        return self.model.generator.size(output.source) + len(output.ids)

    def __call__(self, batch: list[ForcedOutput], check: CancelCheck) -> list[OutputAttention]:
        """The map and the probabilities of every output."""
        generator, outputs = self.model.generator, []
        for source, ids in batch:
            check()
            attention = generator.map_of(source, ids, words=self.words, kind=self.kind)
            outputs.append(OutputAttention(attention, generator.probabilities_of(source, ids)))
        return outputs


@dataclass(frozen=True)
class MapJob(UnsplitJob):
    """The outputs of a model with their maps, which its task draws."""

    model: ServedMapper
    options: MapOptions

    @property
    def weight(self) -> int:
        """The same for every map: how much of a graph a node sees is known only when it is computed."""
        return MAP_COST

    def size(self, source: str) -> int:
        """One map."""
        return 1

    def __call__(self, sources: list[str], check: CancelCheck) -> list[MappedOutput]:
        """The output for every source."""
        outputs = []
        for source in sources:
            check()
            outputs.append(self.model.map(source, self.options))
        check()  # one that came too late says nothing about the speed of others
        return outputs


@dataclass(frozen=True)
class AlignmentJob(UnsplitJob):
    """Word alignment with the given layer and head."""

    model: ServedGenerator[Translator]
    layer: int | None = None
    head: int | None = None
    tag: str = ""
    """A tag of the model in front of every source."""

    def size(self, pair: Pair) -> int:
        """The number of tokens of both sides."""
        return self.model.generator.size(pair.source) + len(self.model.generator.tokenizer.encode(pair.target))

    def __call__(self, pairs: list[Pair], check: CancelCheck) -> list[set[Link]]:
        """The links of every pair."""
        check()
        return self.model.aligner_with(self.layer, self.head)._replace(tag=self.tag).align(pairs)
