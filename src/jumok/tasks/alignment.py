"""Word alignment with trained models: which layer and head to align with, and the links of sentence pairs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from jumok.analysis.alignment.aligner import Aligner, Extraction, Join, TwoWayAligner, aligned, turned
from jumok.analysis.alignment.error_rate import Gold, read_gold
from jumok.analysis.alignment.head_choice import (
    SAMPLE,
    choose_by_agreement,
    choose_head,
    default_head,
    guided_head,
    links_by_head,
)
from jumok.analysis.alignment.statistical import ROUNDS, THRESHOLD, align_text
from jumok.analysis.alignment.word_attention import AlignmentHead, alignment_heads
from jumok.analysis.alignment.word_pairs import LONGEST, is_long
from jumok.analysis.maps.attention_map import resolve_index
from jumok.data import Pair, corpus_pairs
from jumok.data.word_links import Link
from jumok.errors import ArgumentError, DataError
from jumok.files import is_same_file
from jumok.progress import Watch, unwatched
from jumok.settings import nearest
from jumok.tasks.results import LANGUAGES_OF_MODEL, Languages
from jumok.tasks.translation import TRANSLATION, TranslationTask
from jumok.tasks.translator import TrainedTranslator

Development = tuple[Sequence[Pair], Sequence[Gold]]
"""Sentence pairs with gold links, on which to choose a layer and a head."""

NAMES = {"char": "characters", "word": "words"}
"""What the tokens of a tokenizer are."""


class Alignment(NamedTuple):
    """The word alignment of a sentence pair."""

    source: list[str]
    target: list[str]
    """The words of both sides; the tokens of the model if `of_tokens`."""
    links: set[Link]
    """Numbers of a source word and of a target word that correspond, counted from 0."""
    of_tokens: bool = False


class AlignmentOptions(NamedTuple):
    """How to align; a layer, head or shift of None is chosen on the data."""

    links: str = "argmax"
    threshold: float | None = None
    layer: int | None = None
    head: int | None = None
    shift: bool | None = None
    symmetrise: str = "grow-diag"
    tokens: bool | None = None
    """Align tokens instead of words; None aligns tokens if the tokenizer is character-level."""
    languages: Languages = LANGUAGES_OF_MODEL
    """The languages of source and target, for a multilingual model."""
    tag: str | None = None
    """A tag of the model in front of every source; one of opposite direction gets none."""

    @property
    def extraction(self) -> tuple[Extraction, float]:
        """The method and the threshold that turn the weights of one direction into links."""
        return cast(Extraction, self.links), 0.2 if self.threshold is None else self.threshold


def align(
    pairs: Iterable[tuple[str, str]],
    model: str | Path | None = None,
    *,
    reverse: str | Path | None = None,
    dev: Development | None = None,
    device: str = "auto",
    task: TranslationTask | None = None,
    say: Callable[[str], None] = lambda message: None,
    watch: Watch = unwatched,
    **options: Any,
) -> Iterator[Alignment]:
    """The word alignment of every pair of a text and its translation, in their order.

    The links come from the attention of the model in the folder `model`, and of one of the opposite direction,
    `reverse`. Without a model, they are learned from the pairs alone, all of them together. Options are the fields of
    `AlignmentOptions`; layer and head are chosen on a sample of the pairs by default, or on `dev`, pairs with gold
    links. `say` gets messages such as that choice.
    """
    check_options(model, {"reverse": reverse, "dev": dev, "task": task, **options})
    how = AlignmentOptions(**{name: value for name, value in options.items() if value is not None})
    texts = [_as_pair(pair, number) for number, pair in enumerate(pairs, start=1)]
    if model is None:
        links = _align_text(texts, THRESHOLD if how.threshold is None else how.threshold, say)
        units = ((pair.source.split(), pair.target.split(), False) for pair in texts)
    else:
        where: dict[str, Any] = {"device": device, "task": task or TRANSLATION, "say": say, "watch": watch}
        aligner = make_aligner(model, reverse, how, texts, dev=dev, **where)
        links = aligned(aligner, texts)
        units = ((*aligner.units(pair), aligner.tokens) for pair in texts)
    both = zip(units, watch(links, "aligning", len(texts)), strict=True)
    return (Alignment(source, target, pair_links, of_tokens) for (source, target, of_tokens), pair_links in both)


def _as_pair(pair: Any, number: int) -> Pair:
    if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
        raise ArgumentError(f"pair {number} is {repr(pair)[:60]}; each pair must be a text and its translation")
    return Pair(*pair)


def check_options(model: str | Path | None, options: Mapping[str, Any]) -> None:
    """Refuse options of `align` that are unknown, have no effect or contradict each other."""
    known = (*AlignmentOptions._fields, "reverse", "dev", "task")
    if unknown := next((name for name in options if name not in known), None):
        raise ArgumentError(f"{unknown[:60]} is not an option of align{nearest(unknown, known)}")
    given = {name: value for name, value in options.items() if value not in (None, LANGUAGES_OF_MODEL)}
    if given.get("tokens") is False:  # words are the default
        del given["tokens"]
    for name, values in (("links", Extraction), ("symmetrise", Join)):
        if name in given and given[name] not in get_args(values):
            raise ArgumentError(f"`{name}={given[name]}` is not one of {', '.join(get_args(values))}")
    if model is None:
        if unused := next((name for name in given if name != "threshold"), None):
            raise ArgumentError(f"`{unused}=` needs a model; give its folder as `model=`, or leave `{unused}=` out")
        return
    by_product = given.get("symmetrise") == "product"
    if "symmetrise" in given and "reverse" not in given:
        raise ArgumentError("`symmetrise=` combines two directions; name a model of the other one: `reverse=FOLDER`")
    if "links" in given and by_product:
        raise ArgumentError("`links=` applies to one direction, but `symmetrise=product` joins both; leave it out")
    if "threshold" in given and given.get("links") != "threshold" and not by_product:
        raise ArgumentError("`threshold=` applies only to `links=threshold` and `symmetrise=product`; leave it out")
    if "reverse" in given and is_same_file(Path(model), Path(given["reverse"])):
        raise ArgumentError(
            f"`reverse={given['reverse']}` is the model itself, of the same direction; name one that was trained on "
            "the same text with source and target exchanged, or leave `reverse=` out"
        )


def _align_text(pairs: Sequence[Pair], threshold: float, say: Callable[[str], None]) -> Iterator[set[Link]]:
    if long := [number for number, pair in enumerate(pairs, start=1) if is_long(pair)]:
        lines = f"line {long[0]} has" if len(long) == 1 else f"line {long[0]} and {len(long) - 1:,} more have"
        say(f"{lines} more than {LONGEST} words on a side and no links; split them to align them")
    yield from align_text(pairs, threshold=threshold, tell=lambda done: say(f"round {done} of {sum(ROUNDS)}"))


def make_aligner(
    model: str | Path,
    reverse: str | Path | None,
    options: AlignmentOptions,
    pairs: Sequence[Pair],
    *,
    dev: Development | None = None,
    device: str = "auto",
    task: TranslationTask = TRANSLATION,
    say: Callable[[str], None] = lambda message: None,
    watch: Watch = unwatched,
) -> Aligner | TwoWayAligner:
    """An aligner for these pairs; layers and heads that are not given are chosen on a sample of them, or on `dev`.

    Both models are those of `task`.
    """
    translator = task.load(model, device=device).between(*options.languages)
    forward, tag = translator.trained, "" if options.tag is None else translator.tag_named(options.tag)
    if options.tokens is None:
        options = options._replace(tokens=forward.tokenizers.is_character_level)
    if options.tokens:
        say(f"links are between tokens ({_kinds_of_tokens(forward)}); `tokens=False` gives links between words")
    if reverse is None:
        head = _choose(forward, options, _sample(pairs), dev, watch, tag)
        say(f"aligning with {head}")
        return _aligner(forward, head, options, tag)
    other = task.load(reverse, device=device)
    if other.trained.tokenizers.source.languages:
        other = other.between(*options.languages[::-1])
    backward = other.trained
    if options.tokens and not _cut_alike(forward, backward):
        raise ArgumentError(f"{model} and {reverse} cut texts into different tokens; align words: `tokens=False`")
    heads = _choose_both(forward, backward, options, _sample(pairs), dev, watch, tag)
    for folder, head in zip((model, reverse), heads, strict=True):
        say(f"aligning with {head} of {folder}")
    threshold = 0.5 if options.threshold is None else options.threshold
    directions = _aligner(forward, heads[0], options, tag), _aligner(backward, heads[1], options, "")
    return TwoWayAligner(*directions, cast(Join, options.symmetrise), threshold)


def default_aligner(trained: TrainedTranslator) -> Aligner:
    """An aligner with the guided head, else with the one that aligns best on the model's built-in corpus, if any."""
    guided = guided_head(trained.model, trained.recipe.training.guide)
    head, tokens = guided or _corpus_head(trained), trained.tokenizers.is_character_level
    return Aligner(trained.model, trained.tokenizers, head, tokens=tokens)


def _corpus_head(trained: TrainedTranslator) -> AlignmentHead:
    """The head that `jumok align` chooses on the built-in corpus of the model; the usual one for other data."""
    heads, data = alignment_heads(trained.model), trained.recipe.data
    if not data.corpus:
        return default_head(heads, recurrent=trained.recipe.decoder.kind != "transformer")
    sample = corpus_pairs(
        data.corpus, SAMPLE, split="valid", source=data.locales[0], target=data.locales[1], longest=data.longest
    )
    tokens = trained.tokenizers.is_character_level
    return choose_head(trained.model, trained.tokenizers, list[Pair](sample), heads, tokens=tokens)


def candidates(trained: TrainedTranslator, options: AlignmentOptions) -> list[AlignmentHead]:
    """The heads of a model that fit the options; of a model trained with guided alignment, the guided one."""
    layer, head, shift = options.layer, options.head, options.shift
    guided = guided_head(trained.model, trained.recipe.training.guide) if layer is None and head is None else None
    if guided is not None:
        return [guided if shift is None else guided._replace(shift=shift)]
    every = alignment_heads(trained.model)
    layers, heads = (1 + max(part or 0 for part in column) for column in list(zip(*every, strict=True))[:2])
    layer = None if layer is None else resolve_index(layer, layers, "layer")
    head = None if head is None else resolve_index(head, heads, "head")
    return [
        candidate
        for candidate in every
        if layer in (None, candidate.layer) and head in (None, candidate.head) and shift in (None, candidate.shift)
    ]


def read_gold_links(path: str, pairs: Sequence[Pair]) -> list[Gold]:
    """Gold links from a file, one line for each pair."""
    gold = read_gold(path, pairs=len(pairs))
    if len(gold) != len(pairs):
        raise DataError(f"{path} has links for {len(gold)} pairs, but there are {len(pairs)} pairs")
    return gold


def _choose(
    trained: TrainedTranslator,
    options: AlignmentOptions,
    pairs: Sequence[Pair],
    dev: Development | None,
    watch: Watch,
    tag: str,
) -> AlignmentHead:
    sample, gold = (pairs, None) if dev is None else dev
    method, threshold = options.extraction
    return choose_head(
        trained.model,
        trained.tokenizers,
        sample,
        candidates(trained, options),
        gold=gold,
        method=method,
        threshold=threshold,
        tokens=bool(options.tokens),
        tag=tag,
        watch=watch,
    )


def _choose_both(
    forward: TrainedTranslator,
    backward: TrainedTranslator,
    options: AlignmentOptions,
    pairs: Sequence[Pair],
    dev: Development | None,
    watch: Watch,
    tag: str,
) -> tuple[AlignmentHead, AlignmentHead]:
    if dev is not None:
        back = _choose(backward, options, pairs, _reversed(dev), watch, "")
        return _choose(forward, options, pairs, dev, watch, tag), back
    heads, back_heads = candidates(forward, options), candidates(backward, options)
    if len(heads) == len(back_heads) == 1:
        return heads[0], back_heads[0]
    links, back_links = (
        links_by_head(
            trained.model,
            trained.tokenizers,
            direction,
            own_heads,
            *options.extraction,
            tokens=bool(options.tokens),
            tag=own_tag,
            watch=watch,
        )
        for trained, direction, own_heads, own_tag in (
            (forward, pairs, heads, tag),
            (backward, [turned(pair) for pair in pairs], back_heads, ""),
        )
    )
    return choose_by_agreement(links, back_links)


def _aligner(trained: TrainedTranslator, head: AlignmentHead, options: AlignmentOptions, tag: str) -> Aligner:
    return Aligner(trained.model, trained.tokenizers, head, *options.extraction, tokens=bool(options.tokens), tag=tag)


def _kinds_of_tokens(trained: TrainedTranslator) -> str:
    """Such as "source: characters, target: words"."""
    source, target = (NAMES.get(side.kind, "subwords") for side in trained.tokenizers)
    return f"source: {source}, target: {target}"


def _cut_alike(forward: TrainedTranslator, backward: TrainedTranslator) -> bool:
    """Whether models of opposite directions cut a text of either language into the same tokens."""
    sides = zip(forward.tokenizers, reversed(backward.tokenizers), strict=True)
    return all(
        (mine.kind, mine.normaliser, mine.letters.pieces) == (theirs.kind, theirs.normaliser, theirs.letters.pieces)
        for mine, theirs in sides
    )


def _sample(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs with words on both sides, spread evenly over the text."""
    full = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    return full[:: max(len(full) // SAMPLE, 1)][:SAMPLE]


def _reversed(dev: Development) -> Development:
    pairs, gold = dev
    back = [Gold(*(frozenset((j, i) for i, j in links) for links in row)) for row in gold]
    return [turned(pair) for pair in pairs], back
