"""From what jumok found to what is sent."""

from collections.abc import Collection
from typing import Any

from jumok.analysis.alignment.word_attention import AlignmentHead
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.data import Pair
from jumok.data.word_links import Link, write_links
from jumok.serve.messages import AlignAnswer, Hypothesis, ModelAnswer, Part, TranslationAnswer, Warning
from jumok.serve.models import Served
from jumok.tasks.translator import Translation

DIGITS = 4
"""Of a score; those that follow depend on what else is in the batch, for sums of other shapes are rounded otherwise."""


def translation_answer(found: Translation) -> TranslationAnswer:
    """A translation with its n-best list, which has at least the translation itself."""
    best = found.n_best or (found,)
    return TranslationAnswer(
        source=found.source,
        text=found.text,
        score=round(found.score, DIGITS),
        parts=len(found.pieces),
        pieces=_pieces(found),
        warnings=[Warning(kind=kind, message=message) for kind, message in found.warnings().items()],
        n_best=[Hypothesis(text=one.text, score=round(one.score, DIGITS), ids=_ids(one)) for one in best],
    )


def attention_answer(model: Served, shown: AttentionMap, text: str) -> dict[str, Any]:
    """The map as plain lists: it is large, and needs no checking."""
    return {"model": model.name, **shown.as_plain(), "text": text}


def align_answer(model: Served, pair: Pair, links: Collection[Link], look: AlignmentHead) -> AlignAnswer:
    """The links between words, which are what white space divides, and what was looked with."""
    return AlignAnswer(
        model=model.name,
        source=pair.source.split(),
        target=pair.target.split(),
        links=[list(link) for link in sorted(links)],
        pharaoh=write_links(links),
        layer=look.layer,
        head=look.head,
    )


def model_answer(served: Served) -> ModelAnswer:
    """What a visitor may want to know."""
    source, target = served.languages
    return ModelAnswer(
        name=served.name,
        parameters=served.parameters,
        source_language=source,
        target_language=target,
        layers=served.layers,
        heads=served.heads,
        longest=served.translator.longest,
        beam=served.translator.trained.recipe.decoding.beam,
        corpus=served.translator.trained.recipe.data.corpus or None,
        examples=list(served.examples),
    )


def _pieces(found: Translation) -> list[Part]:
    if found.translator is None:
        return []
    decode = found.translator.trained.tokenizers.target.decode
    return [Part(source=source, text=decode(ids), ids=list(ids)) for source, ids in found.pieces]


def _ids(found: Translation) -> list[int]:
    return list(found.pieces[0][1]) if len(found.pieces) == 1 else []
