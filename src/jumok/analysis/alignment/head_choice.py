"""Choosing the attention head that aligns: on gold links where there are some, else without.

Without gold links, two models of opposite directions are compared: heads that align find the same links from both
sides, while heads with another task (the word before, the end of the sentence) have no reason to agree (Chen et al.
2020). For a single model, the chosen head is the one whose links are most consistent as a dictionary: its target words
are predictable from the source words they are linked to, by all other links of those source words. Neither position
alone nor a row too early or too late gives such a dictionary, so this finds the shift as well.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from jumok.analysis.alignment.aligner import Extraction, extract, flipped
from jumok.analysis.alignment.error_rate import Gold, alignment_scores
from jumok.analysis.alignment.word_attention import AlignmentHead, alignment_heads, units_of, word_weights
from jumok.data import Pair, TokenizerPair
from jumok.data.word_links import Link
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.progress import Watch, unwatched
from jumok.training.guided_alignment import GuidedAlignment, guided_layer

SAMPLE = 1000
"""Most pairs to choose on."""

LinksByHead = dict[AlignmentHead, list[set[Link]]]
"""The links of every pair, by each head."""
Units = tuple[Sequence[str], Sequence[str]]
"""The words, or tokens, of source and target that links connect."""


def links_by_head(
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    pairs: Sequence[Pair],
    heads: Sequence[AlignmentHead],
    method: Extraction = "argmax",
    threshold: float = 0.2,
    *,
    tokens: bool = False,
    tag: str = "",
    watch: Watch = unwatched,
) -> LinksByHead:
    """The links that every head would give, between words or `tokens`, with a `tag` in front of every source."""
    links: LinksByHead = {head: [set() for _ in pairs] for head in heads}
    weighted = word_weights(model, tokenizers, pairs, heads, tokens=tokens, tag=tag)
    for number, weights in watch(weighted, "choosing a head", len(pairs)):
        for head, head_weights in zip(heads, weights, strict=True):
            links[head][number] = extract(head_weights, method, threshold)
    return links


def choose_by_gold(links: LinksByHead, gold: Sequence[Gold]) -> AlignmentHead:
    """The head with the lowest alignment error rate."""
    return min(links, key=lambda head: alignment_scores(links[head], gold).error)


def choose_by_agreement(forward: LinksByHead, backward: LinksByHead) -> tuple[AlignmentHead, AlignmentHead]:
    """The two heads that agree most, by 2 |A ∩ B| / (|A| + |B|); `backward` is of the opposite direction."""
    flipped_back = {head: [flipped(links) for links in rows] for head, rows in backward.items()}
    every = dict.fromkeys(
        (number, link)
        for rows in (*forward.values(), *flipped_back.values())
        for number, links in enumerate(rows)
        for link in links
    )
    columns = {link: column for column, link in enumerate(every)}
    there, back = _table(forward, columns), _table(flipped_back, columns)
    agreement = 2 * (there @ back.T) / np.maximum(there.sum(1)[:, None] + back.sum(1), 1)
    row, column = np.unravel_index(int(agreement.argmax()), agreement.shape)
    return list(forward)[row], list(backward)[column]


def choose_by_dictionary(links: LinksByHead, units: Sequence[Units]) -> AlignmentHead:
    """The head whose links make the most consistent dictionary; `units` are the words of both sides of every pair."""
    return max(links, key=lambda head: consistency(links[head], units))


def consistency(rows: Sequence[Collection[Link]], units: Sequence[Units]) -> float:
    """Mean log-probability of a linked target word, given its source word and all other links of the sample.

    p(t | s) = (c(s, t) - 1 + p(t)) / (c(s) - 1 + 1), the link itself left out of the counts; and p(t) for a word that
    has no link.
    """
    targets = Counter(word for _, target in units for word in target)
    linked = []
    for (source, target), links in zip(units, rows, strict=True):
        linked += [(source[i], target[j]) for i, j in links]
    together, sources = Counter(linked), Counter(source for source, _ in linked)
    words = sum(targets.values())
    gain = sum(
        math.log((together[source, target] - 1 + targets[target] / words) / sources[source])
        - math.log(targets[target] / words)
        for source, target in linked
    )
    return gain / max(words, 1)


def choose_head(
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    pairs: Sequence[Pair],
    heads: Sequence[AlignmentHead],
    *,
    gold: Sequence[Gold] | None = None,
    method: Extraction = "argmax",
    threshold: float = 0.2,
    tokens: bool = False,
    tag: str = "",
    watch: Watch = unwatched,
) -> AlignmentHead:
    """The head of one model that aligns the words, or the `tokens`, of pairs best."""
    if len(heads) == 1:
        return heads[0]
    links = links_by_head(model, tokenizers, pairs, heads, method, threshold, tokens=tokens, tag=tag, watch=watch)
    if gold is not None:
        return choose_by_gold(links, gold)
    return choose_by_dictionary(links, [units_of(pair, tokenizers, tokens=tokens) for pair in pairs])


def default_head(heads: Sequence[AlignmentHead], *, recurrent: bool) -> AlignmentHead:
    """The head to use where there is no text to choose on.

    The mean of the heads of the last layer but one, and the row that has read the word (Garg et al. 2019, Chen et al.
    2020); for a recurrent decoder, whose state attends before it predicts, the row that predicts it.
    """
    layer = max(max(head.layer for head in heads) - 1, 0)
    of_layer = [head for head in heads if head.layer == layer]
    return next((head for head in of_layer if head.shift != recurrent), of_layer[0])


def guided_head(model: EncoderDecoder, guide: GuidedAlignment | None) -> AlignmentHead | None:
    """The head that guided alignment trained; None for a model trained without it."""
    if guide is None:
        return None
    heads = alignment_heads(model)
    layer = guided_layer(guide.layer, max(head.layer for head in heads) + 1)
    count = len({head.head for head in heads if head.layer == layer} - {None})
    number = guide.head
    if number is not None or count == 1:
        number = (number or 0) % count
    return AlignmentHead(layer, number, guide.shift, guide.context == "full", guide.null)


def _table(links: LinksByHead, columns: dict[tuple[int, Link], int]) -> np.ndarray:
    table = np.zeros((len(links), len(columns)), np.float32)
    for row, links_of_pairs in zip(table, links.values(), strict=True):
        row[[columns[number, link] for number, links in enumerate(links_of_pairs) for link in links]] = 1
    return table
