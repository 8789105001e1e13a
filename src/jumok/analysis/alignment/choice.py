"""Which layer and head of a model aligns, found on data: on gold links where there are some, else without.

Without gold links, two models of opposite directions judge each other: heads that align find the same links from both
sides, while heads with another task (the word before, the end of the sentence) have no reason to (Chen et al. 2020).
Of a single model, the head is taken whose links are most consistent as a dictionary: the target word can be told from
the source word it is linked to, by all other times that source word was linked. Position alone gives no such
dictionary, nor does looking one step too early or too late, so this finds the shift as well.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from jumok.analysis.alignment.attention import Extraction, extract, flipped
from jumok.analysis.alignment.error_rate import Gold, alignment_scores
from jumok.analysis.alignment.word_attention import Look, WordWeights, word_weights
from jumok.data import Pair, TokenizerPair
from jumok.data.word_links import Link
from jumok.models.encoder_decoder import Seq2Seq

SAMPLE = 1000
"""Pairs to choose on, at most."""

ByLook = dict[Look, list[set[Link]]]
"""The links of every pair, for every look."""
Watch = Callable[[Iterator[WordWeights]], Iterator[WordWeights]]
"""Passes the weights of pairs on, and may show how far it is."""


def links_of_looks(
    model: Seq2Seq,
    tokenizers: TokenizerPair,
    pairs: Sequence[Pair],
    looks: Sequence[Look],
    method: Extraction = "argmax",
    threshold: float = 0.2,
    *,
    watch: Watch = iter,
) -> ByLook:
    """What every look would give."""
    found: ByLook = {look: [set() for _ in pairs] for look in looks}
    for number, weights in watch(word_weights(model, tokenizers, pairs, looks)):
        for look, one in zip(looks, weights, strict=True):
            found[look][number] = extract(one, method, threshold)
    return found


def choose_by_gold(found: ByLook, gold: Sequence[Gold]) -> Look:
    """The look with the lowest alignment error rate."""
    return min(found, key=lambda look: alignment_scores(found[look], gold).error)


def choose_by_agreement(forward: ByLook, backward: ByLook) -> tuple[Look, Look]:
    """The pair of looks that agree most, by 2 |A ∩ B| / (|A| + |B|); `backward` is of the other direction."""
    turned_back = {look: [flipped(links) for links in rows] for look, rows in backward.items()}
    places = {
        place: at
        for at, place in enumerate(
            dict.fromkeys(
                (number, link)
                for rows in (*forward.values(), *turned_back.values())
                for number, links in enumerate(rows)
                for link in links
            )
        )
    }
    there, back = _table(forward, places), _table(turned_back, places)
    agreement = 2 * (there @ back.T) / np.maximum(there.sum(1)[:, None] + back.sum(1), 1)
    one, other = np.unravel_index(int(agreement.argmax()), agreement.shape)
    return list(forward)[one], list(backward)[other]


def choose_by_dictionary(found: ByLook, pairs: Sequence[Pair]) -> Look:
    """The look whose links make the most consistent dictionary."""
    return max(found, key=lambda look: consistency(found[look], pairs))


def consistency(rows: Sequence[Collection[Link]], pairs: Sequence[Pair]) -> float:
    """Mean log-probability of a linked target word, given its source word and all other links of the sample.

    p(t | s) = (c(s, t) - 1 + p(t)) / (c(s) - 1 + 1), the link itself left out of the counts; and p(t) for a word that
    has no link.
    """
    together: Counter[tuple[str, str]] = Counter()
    sources: Counter[str] = Counter()
    targets = Counter(word for pair in pairs for word in pair.target.split())
    linked = []
    for pair, links in zip(pairs, rows, strict=True):
        source, target = pair.source.split(), pair.target.split()
        linked += [(source[i], target[j]) for i, j in links]
    together.update(linked)
    sources.update(one for one, _ in linked)
    words = sum(targets.values())
    gain = sum(
        math.log((together[one, other] - 1 + targets[other] / words) / sources[one]) - math.log(targets[other] / words)
        for one, other in linked
    )
    return gain / max(words, 1)


def choose_look(
    model: Seq2Seq,
    tokenizers: TokenizerPair,
    pairs: Sequence[Pair],
    looks: Sequence[Look],
    *,
    gold: Sequence[Gold] | None = None,
    method: Extraction = "argmax",
    threshold: float = 0.2,
    watch: Watch = iter,
) -> Look:
    """The best of some looks of one model."""
    if len(looks) == 1:
        return looks[0]
    found = links_of_looks(model, tokenizers, pairs, looks, method, threshold, watch=watch)
    return choose_by_dictionary(found, pairs) if gold is None else choose_by_gold(found, gold)


def usual_look(looks: Sequence[Look], *, recurrent: bool) -> Look:
    """What aligns as a rule, where there is no text to choose on.

    The mean of the heads of the last layer but one, and the row that has read the word (Garg et al. 2019, Chen et al.
    2020); of a recurrent decoder, which compares its state with the source before it writes, the row that writes it.
    """
    layer = max(max(look.layer for look in looks) - 1, 0)
    return next(look for look in looks if look.layer == layer and look.shift != recurrent)


def _table(found: ByLook, places: dict[tuple[int, Link], int]) -> np.ndarray:
    table = np.zeros((len(found), len(places)), np.float32)
    for row, links_of_pairs in zip(table, found.values(), strict=True):
        row[[places[number, link] for number, links in enumerate(links_of_pairs) for link in links]] = 1
    return table
