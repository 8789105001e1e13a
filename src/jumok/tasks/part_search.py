"""The search for the translations of parts of texts: in batches, by one model or the votes of several."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import ceil, log

import torch

from jumok.data import Pair, TokenizerPair, pad
from jumok.data.placeholders import keeps_placeholders, placeholders
from jumok.data.symbols import without_symbols
from jumok.decoding import DecodingConfig, Hypothesis, Node, Specials, Survivors, beam_search
from jumok.decoding.beam import nodes_of
from jumok.decoding.consensus import by_expected_chrf, by_mean_reciprocal_rank, total
from jumok.decoding.constrained import FULL_BANKS
from jumok.decoding.half_precision_search import search_in_precision
from jumok.decoding.sampling import sample_outputs
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.tasks.cpu_engine import CpuEngines
from jumok.tasks.required_text import RequiredText, SourcePart
from jumok.tasks.text_generator import SPECIALS

MOST_CONSTRAINED = 16
"""Most texts with a prefix or terms that are searched at once; their patterns need memory."""
MOST_JOINED = 8
"""Most batches in one search, which reports its progress at the end."""

WatchSteps = Callable[[int, int, list[Node]], None]
"""Called after every step of the search with the number of a text, of its part, and the hypotheses kept."""
CheckCancelled = Callable[[], None]
"""Called during the search, which it stops by raising an error."""


class PartSearch:
    """Finds the outputs of a model for parts of texts, and chooses among them as the settings say.

    `decoding` are the settings of the model's recipe; `voters` are the searches of models that vote with it.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizers: TokenizerPair,
        decoding: DecodingConfig,
        engines: CpuEngines,
        voters: Sequence["PartSearch"] = (),
    ) -> None:
        self.model, self.tokenizers, self.decoding, self.engines = model, tokenizers, decoding, engines
        self.voters = voters
        votes = [voter.required for voter in voters]
        self.required: RequiredText = RequiredText(tokenizers.target, model.decoder.limit, votes)

    def candidates(
        self,
        parts: Sequence[SourcePart],
        config: DecodingConfig,
        n_best: int,
        watch_steps: WatchSteps | None,
        check: CheckCancelled | None,
        first: int,
        rows: int | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of every part, found by search or sampling, in the order in which they are chosen.

        A search takes `rows` parts at once, by default all of them.
        """
        chooses = config.mbr or (config.placeholders and any(map(placeholders, map(self.text_of, parts))))
        if config.samples:
            candidates = self._sample(parts, config, check, first)
        else:
            best = config.beam if chooses or self.voters else n_best
            candidates = self._search(parts, config, best, watch_steps, check, rows)
        if self.voters:
            candidates = self._voted(parts, candidates, config, check, rows)
        if config.mbr:
            candidates = [self._by_risk(hypotheses, config) for hypotheses in candidates]
        if config.placeholders:
            candidates = [
                self._faithful_first(self.text_of(part), hypotheses)
                for part, hypotheses in zip(parts, candidates, strict=True)
            ]
        return candidates

    def batches(
        self, parts: Sequence[SourcePart], config: DecodingConfig, watch_steps: WatchSteps | None, *, tokens: int
    ) -> Iterator[tuple[list[int], int]]:
        """The numbers of the parts of each search, and how many of them it takes at once.

        Where finished parts make room for others in the middle of a search, batches are joined.
        """
        batches = part_batches(parts, config.samples or config.beam, tokens=tokens)
        if watch_steps is not None or config.samples or not self._refills:
            return ((batch, len(batch)) for batch in batches)
        return joined_batches(parts, batches)

    @property
    def _refills(self) -> bool:
        return self._device.type == "cuda" and self.model.decoder.has_static_state()

    def text_of(self, part: SourcePart) -> str:
        """A part without tags and features, which no translation repeats."""
        return without_symbols(part.text, self.tokenizers.source.symbols.all)

    def _voted(
        self,
        parts: Sequence[SourcePart],
        own: list[list[Hypothesis]],
        config: DecodingConfig,
        check: CheckCancelled | None,
        rows: int | None,
    ) -> list[list[Hypothesis]]:
        """The outputs of all models for every part, in the tokens of the first; a score is the logarithm of the votes.

        Every model may write as many tokens as its own recipe says: there are more edits than letters.
        """
        lists = [[self._texts(hypotheses) for hypotheses in own]]
        for voter in self.voters:
            source = voter.tokenizers.source
            theirs = [part._replace(ids=source.encode(part.text)[1:]) for part in parts]
            longest = replace(config, max_length=max(config.max_length, voter.decoding.max_length))
            searched = voter._search(theirs, longest, config.beam, None, check, rows)
            lists.append([voter._texts(hypotheses) for hypotheses in searched])
        return [
            [Hypothesis(self._ids(part, text), log(votes)) for text, votes in by_mean_reciprocal_rank(ballots)]
            for part, *ballots in zip(parts, *lists, strict=True)
        ]

    def _ids(self, part: SourcePart, text: str) -> list[int]:
        """The tokens of a text that was written for a part."""
        return self.tokenizers.encode(Pair(part.text, text))[1][1:-1]

    def _by_risk(self, hypotheses: list[Hypothesis], config: DecodingConfig) -> list[Hypothesis]:
        """The hypotheses by their expected chrF; samples are equally likely, and those of a search by their score."""
        texts = self._texts(hypotheses)
        logits = [0.0 if config.samples else total(hypothesis, config.length_penalty) for hypothesis in hypotheses]
        ranked = by_expected_chrf(texts, logits)
        return [hypotheses[number]._replace(expected_chrf=expected) for number, expected in ranked]

    def _texts(self, hypotheses: Sequence[Hypothesis]) -> list[str]:
        return [self.tokenizers.target.decode(hypothesis.ids) for hypothesis in hypotheses]

    def _faithful_first(self, source: str, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """The hypotheses that have the placeholders of their source, in their order, then the others."""
        decode = self.tokenizers.target.decode
        return sorted(hypotheses, key=lambda hypothesis: not keeps_placeholders(source, decode(hypothesis.ids)))

    @torch.no_grad()
    def _sample(
        self, parts: Sequence[SourcePart], config: DecodingConfig, check: CheckCancelled | None, first: int
    ) -> list[list[Hypothesis]]:
        model = self.model
        source, visible = (tensor.to(self._device) for tensor in pad([part.ids for part in parts]))
        lines = [(part.text_number + first, part.part_number) for part in parts]
        encoding, constraints = model.encoder(source, visible), self.required.constraints(parts, config, self._device)
        return sample_outputs(model.decoder, encoding, self._specials, config, lines, check, constraints)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def _specials(self) -> Specials:
        """Where outputs begin and end: in models of several languages, after the language."""
        return SPECIALS._replace(first=next(iter(self.tokenizers.target.language_ids), None))

    @torch.no_grad()
    def _search(
        self,
        parts: Sequence[SourcePart],
        config: DecodingConfig,
        n_best: int,
        watch_steps: WatchSteps | None,
        check: CheckCancelled | None,
        rows: int | None = None,
    ) -> list[list[Hypothesis]]:
        if check is not None:
            check()
        results: list[list[Hypothesis] | None] = [None] * len(parts)
        is_ours = watch_steps is not None or any(part.is_constrained for part in parts)
        if (engine := self.engines.ctranslate2(config, n_best, watched=is_ours)) is not None:
            results = engine.search([part.ids for part in parts], config, n_best, self.model.decoder.limit)
        left = [number for number, hypotheses in enumerate(results) if hypotheses is None]
        unsearched = [parts[number] for number in left]
        own = iter(self._own_search(unsearched, config, n_best, watch_steps, check, rows) if left else [])
        return [next(own) if hypotheses is None else hypotheses for hypotheses in results]

    def _own_search(
        self,
        parts: Sequence[SourcePart],
        config: DecodingConfig,
        n_best: int,
        watch_steps: WatchSteps | None,
        check: CheckCancelled | None,
        rows: int | None = None,
    ) -> list[list[Hypothesis]]:
        model = self.model
        wanted = 1 if n_best == 1 else None  # of several, some may be the same words in other pieces
        constraints = self.required.constraints(parts, config, self._device)
        is_ours = watch_steps is not None or constraints is not None
        short = self.engines.recurrent(config, [part.ids for part in parts], watched=is_ours)
        if short is not None:
            decoder, kept = short
            encoding = model.encoder(*self._padded(parts))
            results = beam_search(decoder, encoding, self._specials, config, n_best=wanted, check=check)
            return results if kept is None else [_numbered(hypotheses, kept.tolist()) for hypotheses in results]
        most = rows or len(parts)
        first, *more = (self._padded(parts[start : start + most]) for start in range(0, len(parts), most))
        return search_in_precision(
            model,
            first,
            self._specials,
            config,
            n_best=wanted,
            observe=None if watch_steps is None else partial(_tell_steps, parts, watch_steps),
            check=check,
            constraints=constraints,
            more=more,
        )

    def _padded(self, parts: Sequence[SourcePart]) -> list[torch.Tensor]:
        """Their tokens, and which are not padding."""
        return [tensor.to(self._device) for tensor in pad([part.ids for part in parts])]


def part_batches(parts: Sequence[SourcePart], beam: int, *, tokens: int) -> Iterator[list[int]]:
    """Batches of the numbers of parts; those with a prefix or terms are apart, so that they change no other."""
    plain = [number for number, part in enumerate(parts) if not part.is_constrained]
    yield from _alike(parts, plain, beam, tokens)
    constrained = [number for number, part in enumerate(parts) if part.is_constrained]
    yield from _alike(parts, constrained, beam * FULL_BANKS, tokens, most=MOST_CONSTRAINED)


def _alike(
    parts: Sequence[SourcePart], numbers: Sequence[int], beam: int, tokens: int, most: int | None = None
) -> Iterator[list[int]]:
    """Numbers of parts of like length, as many as the token budget allows with every hypothesis counted."""
    batch: list[int] = []
    for number in sorted(numbers, key=lambda number: -len(parts[number].ids)):
        needed = (len(batch) + 1) * len(parts[batch[0]].ids) * beam if batch else 0
        if needed > tokens * 5 or len(batch) == most:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def joined_batches(parts: Sequence[SourcePart], batches: Iterator[list[int]]) -> Iterator[tuple[list[int], int]]:
    """Batches of parts, the longest first, joined while they fit into each other's rows; as many rows as their mean.

    A row has room for the longest part, and a search rounds its rows up, so that all need two or three times the memory
    of a batch.
    """
    groups: list[list[list[int]]] = []
    for batch in batches:
        if groups and _fits(parts[groups[-1][0][0]], parts[batch[0]], len(groups[-1])):
            groups[-1].append(batch)
        else:
            groups.append([batch])
    for group in groups:
        joined = list(chain(*group))
        yield joined, ceil(len(joined) / len(group))


def _fits(longest: SourcePart, part: SourcePart, count: int) -> bool:
    """Whether a batch that begins with a part is searched in the rows of others."""
    is_plain = not (longest.is_constrained or part.is_constrained)
    return is_plain and count < MOST_JOINED and 2 * len(part.ids) >= len(longest.ids)


def _tell_steps(parts: Sequence[SourcePart], watch_steps: WatchSteps, survivors: Survivors) -> None:
    for sentence, nodes in nodes_of(survivors):
        watch_steps(parts[sentence].text_number, parts[sentence].part_number, nodes)


def _numbered(hypotheses: list[Hypothesis], ids: list[int]) -> list[Hypothesis]:
    """Hypotheses over a shortlist, with the ids of the whole vocabulary."""
    return [Hypothesis([ids[index] for index in hypothesis.ids], hypothesis.score) for hypothesis in hypotheses]
