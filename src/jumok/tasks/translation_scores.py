"""Evaluation of translators on test data: scores of their outputs, with comparisons of systems."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.analysis.report.content import EvaluationSet, System, make_report
from jumok.analysis.report.page import report_page
from jumok.analysis.scores.length_bands import Band, bands_of
from jumok.analysis.scores.metrics import (
    MetricScore,
    Paired,
    check_scores,
    count_outputs,
    make_metric,
    paired_bootstrap,
    score_counts,
    too_long_for_ter,
)
from jumok.data import read_lines, read_pairs
from jumok.data.pairs import Columns
from jumok.data.placeholders import keeps_placeholders, placeholders
from jumok.data.symbols import SYMBOL_WORD
from jumok.data.terms import Terms, occurs, read_terms
from jumok.decoding.config import DecodingConfig
from jumok.errors import ArgumentError, DataError, ModelError
from jumok.files import nearest_path
from jumok.progress import Watch, unwatched
from jumok.screen import to_screen
from jumok.tasks.describe import count
from jumok.tasks.results import LANGUAGES_OF_MODEL, EvaluationOptions, EvaluationResult, Languages, Table, write_outputs
from jumok.tasks.task import AnyTask
from jumok.tasks.translated_text import Translation
from jumok.tasks.translator import Translator

METRICS, TOKENIZE = ("bleu", "chrf", "ter"), "13a"
"""The usual scores of texts, and sacrebleu's usual tokenizer for BLEU."""
DECODING_OPTIONS = frozenset(setting.name for setting in fields(DecodingConfig)) | {"tag"}
"""The names of the options that a model translates with."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of one or more systems on the same test set; the first system is the one that others are compared with."""

    test: EvaluationSet
    systems: list[System]
    scores: list[list[MetricScore]]
    """For each system, its score in every metric."""
    paired: list[Paired]
    """The difference of every other system from the first, with its p-value."""
    bands: list[Band] | None = None
    """The first metric of the first system by source length."""
    terms: Terms | None = None
    """Terms to look for in the outputs."""

    def result(self) -> EvaluationResult:
        """The scores as `jumok evaluate` prints them."""
        return EvaluationResult(self._values(), self._tables(), self._page)

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "sentences": len(self.test.references),
            "scores": [vars(score) for score in self.scores[0]],
        }
        if len(self.systems) > 1:
            p = {(pair.other, pair.score): pair.p for pair in self.paired}
            values["compared"] = [
                {
                    "name": system.name,
                    "scores": [{**vars(score), "p": p.get((system.name, score.name))} for score in scores],
                }
                for system, scores in zip(self.systems[1:], self.scores[1:], strict=True)
            ]
        if self.bands is not None:
            values["by_length"] = [
                {"words": band.words, "sentences": band.sentences, "value": band.score.value} for band in self.bands
            ]
        if marked := self._marked():
            values["placeholders"] = {"lines": len(marked), "kept": self._keeping(self.systems[0], marked)}
        if self.terms is not None:
            required = self._required(self.terms)
            values["terms"] = {"required": len(required), "kept": self._terms_in(self.systems[0], required)}
        return values

    def _required(self, terms: Terms) -> list[tuple[int, str]]:
        """The number of every sentence with a source term, and the target term that it requires."""
        return [(number, term) for number, source in enumerate(self.test.sources) for term in terms.required(source)]

    def _terms_in(self, system: System, required: list[tuple[int, str]]) -> int:
        """How many of the required terms occur in the outputs of a system."""
        return sum(occurs(term, system.outputs[number], lowercase=self.test.lowercase) for number, term in required)

    def _marked(self) -> list[int]:
        """The sentences with placeholders or tags."""
        return [number for number, source in enumerate(self.test.sources) if placeholders(source)]

    def _keeping(self, system: System, marked: list[int]) -> int:
        """How many of these sentences keep all of theirs in the outputs of a system."""
        return sum(keeps_placeholders(self.test.sources[number], system.outputs[number]) for number in marked)

    def _tables(self) -> list[Table]:
        tables = [score_table(self.scores[0])] if len(self.systems) == 1 else self._comparison()
        if self.bands is not None:
            rows = [[band.words, str(band.sentences), f"{band.score.value:.2f}"] for band in self.bands]
            tables.append(Table(["source words", "sentences", self.scores[0][0].name], rows))
        if marked := self._marked():
            rows = [[system.name, str(len(marked)), str(self._keeping(system, marked))] for system in self.systems]
            tables.append(Table(["system", "lines with placeholders or tags", "that keep them all"], rows))
        if self.terms is not None:
            tables[-1] = tables[-1]._replace(
                note="\n".join(filter(None, [tables[-1].note, *self._term_lines(self.terms)]))
            )
        return tables

    def _term_lines(self, terms: Terms) -> list[str]:
        """How many terms every system keeps."""
        required = self._required(terms)
        names = [f"terms of {system.name}" if len(self.systems) > 1 else "terms" for system in self.systems]
        return [
            f"{name}: {self._terms_in(system, required)} of {len(required)} kept"
            for name, system in zip(names, self.systems, strict=True)
        ]

    def _comparison(self) -> list[Table]:
        """A row for every score of every system; p is empty for the first and for scores without a paired test."""
        p = {(pair.other, pair.score): f"{pair.p:.3f}" for pair in self.paired}
        rows = [
            [score.name, system.name, f"{score.value:.2f}", _interval(score), p.get((system.name, score.name), "")]
            for of_metric in zip(*self.scores, strict=True)
            for system, score in zip(self.systems, of_metric, strict=True)
        ]
        first = self.systems[0].name
        note = f"p: probability of so large a difference from {first} if both were equally good" if self.paired else ""
        signatures = [[score.name, score.signature] for score in self.scores[0]]
        compared = Table(["score", "system", "value", "95% interval", "p"], rows, note)
        return [compared, Table(["score", "signature"], signatures)]

    def _page(self, watch: Watch) -> str:
        return report_page(make_report(self.test, self.systems, watch=watch))


def score_table(scores: Sequence[MetricScore]) -> Table:
    """Scores with their intervals and signatures."""
    rows = [[score.name, f"{score.value:.2f}", _interval(score), score.signature] for score in scores]
    return Table(["score", "value", "95% interval", "signature"], rows)


def _interval(score: MetricScore) -> str:
    return f"{score.low:.2f} - {score.high:.2f}"


def decoding_settings(options: EvaluationOptions) -> dict[str, Any]:
    """The settings of decoding among the options that are given."""
    return {name: value for name, value in vars(options).items() if name in DECODING_OPTIONS and value is not None}


def evaluate_translations(
    task: AnyTask,
    first: Callable[[Sequence[str]], System],
    options: EvaluationOptions,
    *,
    name: str,
    device: str = "auto",
    watch: Watch = unwatched,
) -> EvaluationResult:
    """Score the outputs of the system called `name`, which `first` gives for the source sentences, and of others.

    `task` loads the models among the others.
    """
    metrics, tokenize = options.metrics or METRICS, options.tokenize or TOKENIZE
    check_scores(metrics, tokenize)
    _check_sources(options)
    sources, references = read_test_set(
        options.source, options.reference, options.columns, features=options.features, only=options.only
    )
    terms = None if options.terms is None else read_terms(options.terms)
    opened = [
        (other, open_system(task, other, path, len(references), languages=options.languages, device=device))
        for other, path in options.compare
    ]
    system = first(sources)
    if len(system.outputs) != len(references):
        reference = options.reference or options.source
        raise ArgumentError(
            f"{name} has {count(len(system.outputs), 'output')} but {reference} has {len(references)} lines: line n of "
            "each must be the same sentence"
        )
    write_outputs(options.save, system.outputs)
    decoding = decoding_settings(options)
    others = [
        make_system(other, opened_system, sources, kind=options.kind, watch=watch, **decoding)
        for other, opened_system in opened
    ]
    test = EvaluationSet(
        _words_of(sources) if options.features else sources,
        references,
        metrics,
        tokenize,
        options.lowercase,
        _facts(options),
    )
    return score_systems(test, [system, *others], by_length=options.by_length, terms=terms, watch=watch).result()


def evaluate_outputs(
    task: AnyTask,
    path: Path,
    options: EvaluationOptions,
    *,
    name: str,
    device: str = "auto",
    watch: Watch = unwatched,
) -> EvaluationResult:
    """Score the outputs in a file, one per line, and those of other systems."""
    if not options.compare:
        options.check_used(frozenset(vars(options)) - DECODING_OPTIONS - {"languages"}, path, "is a file of outputs")

    def first(sources: Sequence[str]) -> System:
        return System(name, read_composed(path))

    return evaluate_translations(task, first, options, name=name, device=device, watch=watch)


def _words_of(sources: Sequence[str]) -> list[str]:
    """The texts without the symbols of features, which are neither words nor markup."""
    return [" ".join(SYMBOL_WORD.sub("", source).split()) for source in sources]


def _check_sources(options: EvaluationOptions) -> None:
    """Refuse options that need source sentences where there are none."""
    needed = (
        options.by_length
        or options.terms
        or options.report is not None
        or any(path.is_dir() for _, path in options.compare)
    )
    if options.source is None and options.reference is not None and needed:
        raise ArgumentError("`source=` is missing: the test sentences, one per line")


def _facts(options: EvaluationOptions) -> dict[str, str]:
    """What a report says about the test set."""
    files = {"source": str(options.source), "reference": str(options.reference)}
    facts = files if options.reference else {"pairs": str(options.source)}
    return facts | {name.replace("_", " "): str(value) for name, value in decoding_settings(options).items()}


def score_systems(
    test: EvaluationSet,
    systems: Sequence[System],
    *,
    by_length: bool = False,
    terms: Terms | None = None,
    watch: Watch = unwatched,
) -> Evaluation:
    """Score the outputs of every system, and compare each with the first one by the paired bootstrap.

    A metric that would take minutes on these outputs is left out with a message, unless it is the only one.
    """
    test = replace(test, metrics=_without_slow(test.metrics, systems, test.references))
    options: dict[str, Any] = {"tokenize": test.tokenize, "lowercase": test.lowercase}
    counted = [
        replace(system, counts=count_outputs(system.outputs, test.references, test.metrics, **options, watch=watch))
        for system in systems
    ]
    scores = [[score_counts(system.counts[name], watch=watch) for name in test.metrics] for system in counted]
    if "bleu" in test.metrics and test.tokenize != "char" and not _has_four_words(test.references, test.tokenize):
        to_screen(
            "BLEU is 0, because it counts sequences of four words, and no reference is that long; --tokenize char "
            "counts sequences of characters, and --metrics chrf needs no words"
        )
    first = counted[0].counts[test.metrics[0]]
    bands = bands_of(first, test.sources, resamples=1) if by_length else None
    paired = paired_bootstrap([(system.name, system.counts) for system in counted], watch=watch)
    return Evaluation(test, counted, scores, paired, bands, terms)


def _has_four_words(texts: Sequence[str], tokenize: str) -> bool:
    """Whether a text has four words as BLEU counts them."""
    split = make_metric("bleu", tokenize).tokenizer
    return any(len(split(text).split()) >= 4 for text in texts)


def read_test_set(
    source: str | Path | None,
    reference: str | Path | None,
    columns: Columns | None = None,
    *,
    features: tuple[int | str, ...] = (),
    only: tuple[int, str] | None = None,
) -> tuple[list[str], list[str]]:
    """Source sentences, an empty list if `source` is None, and references; or both from one file of pairs."""
    if reference is not None:
        for option, given in (("columns", columns), ("features", features), ("only", only)):
            if given:
                raise ArgumentError(
                    f"`{option}=` applies to a file of pairs, but `reference={reference}` is a second file"
                )
        references = read_composed(reference)
        sources = [] if source is None else list(read_lines(source))
        if source is not None and len(sources) != len(references):
            raise ArgumentError(
                f"`source={source}` has {count(len(sources), 'line')} but `reference={reference}` has "
                f"{len(references)}: line n of each must be the same sentence"
            )
        if not references:
            raise DataError(f"`reference={reference}` is empty; name a file with one reference per line")
        return sources, references
    if source is None:
        raise ArgumentError("`reference=` is missing: the reference translations, one per line")
    try:
        pairs = list(read_pairs(source, columns=columns, features=features, only=only))
    except ArgumentError:
        if columns is not None or only is not None:
            raise
        raise ArgumentError(
            f"`reference=` is missing: the reference translations, one per line; `source={source}` holds no pairs "
            "(.tsv, .jsonl or lines of `a ||| b`)"
        ) from None
    return [pair.source for pair in pairs], _composed([pair.target for pair in pairs], source)


def read_composed(path: str | Path) -> list[str]:
    """The lines of a file in Unicode's composed form (NFC), in which texts are scored."""
    return _composed(list(read_lines(path)), path)


def _composed(lines: Sequence[str], path: str | Path) -> list[str]:
    composed = [unicodedata.normalize("NFC", line) for line in lines]
    if changed := sum(before != after for before, after in zip(lines, composed, strict=True)):
        to_screen(f"{path}: {changed} lines are not in Unicode's composed form (NFC); jumok scores them in NFC")
    return composed


def open_system(
    task: AnyTask,
    name: str,
    path: Path,
    sentences: int,
    *,
    languages: Languages = LANGUAGES_OF_MODEL,
    device: str = "auto",
) -> Translator | list[str]:
    """The translator in a folder, which `task` loads, or the outputs in a file, one per sentence."""
    if not path.exists():
        raise ModelError(f"there is no model folder or file of outputs {path}{nearest_path(path)}")
    if path.is_file():
        outputs = read_composed(path)
        if len(outputs) != sentences:
            raise ArgumentError(f"{name} has {len(outputs)} outputs, but there are {sentences} source sentences")
        return outputs
    translator: Translator = task.load(path, device=device)
    return translator.between(*languages) if translator.trained.tokenizers.source.languages else translator


def make_system(name: str, opened: Translator | list[str], sources: Sequence[str], **options: Any) -> System:
    """A system from its outputs, or from a translator by `translate_system` with these options."""
    return (
        translate_system(name, opened, sources, **options) if isinstance(opened, Translator) else System(name, opened)
    )


def translate_system(
    name: str,
    translator: Translator,
    sources: Sequence[str],
    *,
    kind: MapKind = "cross",
    watch: Watch = unwatched,
    **decoding: Any,
) -> System:
    """The translations of a model, with the attention of each sentence if it has any of this kind."""
    if kind != "cross":
        translator.layers_of(kind)  # raises for a model without it, before any work
    stream = translator.stream(sources, chunk=256, **decoding)
    translations: list[Translation] = list(watch(stream, f"translating with {name}", len(sources)))
    if split := sum(len(translation.pieces) > 1 for translation in translations):
        lines = "1 line was too long for it and was" if split == 1 else f"{split:,} lines were too long for it and were"
        most = decoding.get("max_source") or translator.longest
        to_screen(f"{name}: {lines} translated in parts (--max-source {most} tokens)")
    if longer := sum("length" in translation.warnings() for translation in translations):
        lines = "1 line has a sentence" if longer == 1 else f"{longer:,} lines have a sentence"
        to_screen(f"{name}: {lines} longer than the {translator.longest} tokens it was trained on")
    whole = next((translation for translation in translations if len(translation.pieces) == 1), None)
    has_attention = whole is not None and _attention(whole, kind) is not None
    attention = (lambda number: _attention(translations[number], kind)) if has_attention else None
    return System(name, [translation.text for translation in translations], attention)


def _attention(translation: Translation, kind: MapKind) -> AttentionMap | None:
    try:
        return translation.attention(kind=kind)
    except ArgumentError:  # the line is empty or translated in parts, or the model has no attention
        return None


def _without_slow(metrics: Sequence[str], systems: Sequence[System], references: Sequence[str]) -> list[str]:
    """Leave out TER, with a message, if a line is too long for it and there are other metrics."""
    if "ter" not in metrics or len(set(metrics)) == 1:
        return list(metrics)
    reason = next(filter(None, (too_long_for_ter(system.outputs, references) for system in systems)), "")
    if not reason:
        return list(metrics)
    to_screen(f"ter is left out: {reason}")
    return [name for name in metrics if name != "ter"]
