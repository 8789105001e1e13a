"""Evaluation of trained models on test data: scores of translations and captions, with comparisons of systems."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.report.numbers import System, Task, make_report
from jumok.analysis.report.page import report_page
from jumok.analysis.scores.length_bands import Band, bands_of
from jumok.analysis.scores.metrics import (
    Paired,
    Score,
    Watch,
    check_scores,
    count_outputs,
    paired_bootstrap,
    score_counts,
    score_outputs,
    too_long_for_ter,
    unwatched,
)
from jumok.data import read_lines, read_pairs
from jumok.data.pairs import Columns
from jumok.errors import ArgumentError, DataError, ModelError
from jumok.files import atomic_write
from jumok.images.pairs import ImagesConfig, ImageSource, read_everything, read_split
from jumok.images.pointing import Pointing, pointing
from jumok.images.scenes import scenes
from jumok.screen import to_screen
from jumok.tasks import TRANSLATION, check_model
from jumok.tasks.captioning import Captioner
from jumok.tasks.translator import Translation, Translator

METRICS = ("bleu", "chrf", "ter")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of one or more systems on the same test set; the first system is the one that others are compared with."""

    task: Task
    systems: list[System]
    scores: list[list[Score]]
    """For each system, its score in every metric."""
    paired: list[Paired]
    """The difference of every other system from the first, with its p-value."""
    bands: list[Band] | None = None
    """The first metric of the first system by source length."""

    def as_plain(self) -> dict[str, Any]:
        """The numbers for JSON."""
        values: dict[str, Any] = {
            "sentences": len(self.task.references),
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
        return values


def evaluate(
    model: str | Path,
    source: str | Path,
    reference: str | Path | None = None,
    *,
    metrics: Sequence[str] = METRICS,
    tokenize: str = "13a",
    lowercase: bool = False,
    by_length: bool = False,
    device: str = "auto",
    watch: Watch = unwatched,
    **decoding: Any,
) -> Evaluation:
    """Translate a test set with a model and score the outputs; without `reference`, `source` is a file of pairs."""
    check_scores(list(metrics), tokenize)
    sources, references = read_test_set(source, reference)
    system = translate_system(Path(model).name, model, sources, device=device, watch=watch, **decoding)
    task = Task(sources, references, list(metrics), tokenize, lowercase)
    return score_systems(task, [system], by_length=by_length, watch=watch)


def score_systems(
    task: Task, systems: Sequence[System], *, by_length: bool = False, watch: Watch = unwatched
) -> Evaluation:
    """Score the outputs of every system, and compare each with the first one by the paired bootstrap.

    A metric that would take minutes on these outputs is left out with a message, unless it is the only one.
    """
    task = replace(task, metrics=_without_slow(task.metrics, systems, task.references))
    options: dict[str, Any] = {"tokenize": task.tokenize, "lowercase": task.lowercase}
    counted = [
        replace(system, counts=count_outputs(system.outputs, task.references, task.metrics, **options, watch=watch))
        for system in systems
    ]
    scores = [[score_counts(system.counts[name], watch=watch) for name in task.metrics] for system in counted]
    first = counted[0].counts[task.metrics[0]]
    bands = bands_of(first, task.sources, resamples=1) if by_length else None
    paired = paired_bootstrap([(system.name, system.counts) for system in counted], watch=watch)
    return Evaluation(task, counted, scores, paired, bands)


def write_report(path: Path, evaluation: Evaluation, *, watch: Watch = unwatched) -> None:
    """Write an HTML page about the evaluation: curves, attention, good and bad cases."""
    report = make_report(evaluation.task, evaluation.systems, watch=watch)
    with atomic_write(path) as file:
        file.write(report_page(report).encode(errors="replace"))


def write_outputs(path: Path, outputs: Sequence[str]) -> None:
    """Write outputs to a file, one per line."""
    with atomic_write(path) as file:
        file.write("".join(f"{output}\n" for output in outputs).encode())


def read_test_set(
    source: str | Path | None, reference: str | Path | None, columns: Columns | None = None
) -> tuple[list[str], list[str]]:
    """Source sentences, an empty list if `source` is None, and references; or both from one file of pairs."""
    if reference is not None:
        if columns is not None:
            raise ArgumentError(f"--columns applies to a file of pairs, but --reference {reference} is a second file")
        references = read_composed(reference)
        sources = [] if source is None else list(read_lines(source))
        if source is not None:
            check_line_count("--source", source, len(sources), reference, len(references))
        return sources, references
    if source is None:
        raise ArgumentError("--reference is missing: the reference translations, one per line")
    try:
        pairs = list(read_pairs(source, columns=columns))
    except ArgumentError:
        if columns is not None:
            raise
        raise ArgumentError(
            f"--reference is missing: the reference translations, one per line; --source {source} holds no pairs "
            "(.tsv, .jsonl or lines of `a ||| b`)"
        ) from None
    return [pair.source for pair in pairs], _composed([pair.target for pair in pairs], source)


def read_composed(path: str | Path) -> list[str]:
    """The lines of a file in Unicode's composed form (NFC), in which texts are scored."""
    return _composed(list(read_lines(path)), path)


def _composed(lines: Sequence[str], path: str | Path) -> list[str]:
    composed = [unicodedata.normalize("NFC", line) for line in lines]
    if changed := sum(before != after for before, after in zip(lines, composed, strict=True)):
        to_screen(f"{path}: {changed} lines are not in Unicode's composed form (NFC); they are scored in it")
    return composed


def check_line_count(option: str, path: str | Path, lines: int, reference: str | Path, references: int) -> None:
    """Refuse a file that does not have one line for each reference."""
    if lines != references:
        counted = "1 line" if lines == 1 else f"{lines} lines"
        raise ArgumentError(
            f"{option} {path} has {counted} but --reference {reference} has {references}: line n of each must be the "
            "same sentence"
        )


def check_system(name: str, path: Path, sentences: int) -> None:
    """Refuse a path that is neither a model that translates nor a file with one output per sentence."""
    if not path.exists():
        raise ModelError(f"there is no model folder or file of outputs {path}; `jumok train` writes a model")
    if not path.is_file():
        check_model(path, TRANSLATION)
    elif (lines := sum(1 for _ in read_lines(path))) != sentences:
        raise ArgumentError(f"{name} has {lines} outputs, but there are {sentences} source sentences")


def read_system(
    name: str, path: Path, sources: Sequence[str], *, device: str = "auto", watch: Watch = unwatched, **decoding: Any
) -> System:
    """The outputs of a model on the sources, or those in a file."""
    if path.is_file():
        return System(name, read_composed(path))
    return translate_system(name, path, sources, device=device, watch=watch, **decoding)


def translate_system(
    name: str,
    model: str | Path,
    sources: Sequence[str],
    *,
    device: str = "auto",
    watch: Watch = unwatched,
    **decoding: Any,
) -> System:
    """The translations of a model, with the attention of each sentence if it has any."""
    translator = Translator.load(model, device=device)
    stream = translator.stream(sources, chunk=256, **decoding)
    translations: list[Translation] = list(watch(stream, f"translating with {model}", len(sources)))
    if split := sum(len(translation.pieces) > 1 for translation in translations):
        lines = "1 line was too long for it and was" if split == 1 else f"{split:,} lines were too long for it and were"
        most = decoding.get("max_source") or translator.longest
        to_screen(f"{model}: {lines} translated in parts (--max-source {most} tokens)")
    if longer := sum("length" in translation.warnings() for translation in translations):
        lines = "1 line has a sentence" if longer == 1 else f"{longer:,} lines have a sentence"
        to_screen(f"{model}: {lines} longer than the {translator.longest} tokens it was trained on")
    whole = next((translation for translation in translations if len(translation.pieces) == 1), None)
    has_attention = whole is not None and _attention(whole) is not None
    attention = (lambda number: _attention(translations[number])) if has_attention else None
    return System(name, [translation.text for translation in translations], attention)


def _attention(translation: Translation) -> AttentionMap | None:
    try:
        return translation.attention()
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


class CaptionScores(NamedTuple):
    """Captions of test images, their scores, and for generated scenes how well words point at what they name."""

    outputs: list[str]
    scores: list[Score]
    pointing: Pointing | None

    def as_plain(self) -> dict[str, Any]:
        """The numbers for JSON."""
        pointed = {} if self.pointing is None else {"pointing": self.pointing._asdict()}
        return {"images": len(self.outputs), "scores": [vars(score) for score in self.scores], **pointed}


def evaluate_captioner(
    folder: str | Path,
    metrics: Sequence[str] = METRICS,
    *,
    images: str | None = None,
    captions: str | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    beam: int | None = None,
    device: str = "auto",
    watch: Watch = unwatched,
) -> CaptionScores:
    """Caption the test images of the recipe, or others, and compare each with all its reference captions."""
    captioner = Captioner.load(folder, device=device)
    config = captioner.trained.recipe.images
    source = _test_images(config, images, captions)
    stream = captioner.stream((source.read(row.image) for row in source.rows), beam=beam)
    outputs = [caption.text for caption in watch(stream, "captioning", len(source.rows))]
    lowercase = lowercase or captioner.trained.recipe.tokenizer.lowercase
    references = [row.captions for row in source.rows]
    scores = score_outputs(outputs, references, list(metrics), tokenize=tokenize, lowercase=lowercase, watch=watch)
    own_scenes = bool(config.scenes) and images is None
    return CaptionScores(outputs, scores, scene_pointing(captioner, watch=watch) if own_scenes else None)


def scene_pointing(captioner: Captioner, *, watch: Watch = unwatched) -> Pointing | None:
    """How well the words of the true captions of the test scenes point at what they name; None without attention."""
    config, maps = captioner.trained.recipe.images, []
    language = config.scenes or "en"
    for scene in watch(scenes(config.valid_count, split="test"), "mapping attention in scenes", config.valid_count):
        try:
            attention = captioner.attention(scene.picture(config.size), scene.caption(language))
        except ArgumentError:  # a decoder with a fixed context has no attention
            return None
        maps.append((scene, attention.mean().view(-1, *captioner.trained.model.encoder.grid).numpy()))
    return pointing(maps, language=language)


def _test_images(config: ImagesConfig, images: str | None, captions: str | None) -> ImageSource:
    """The test images of the recipe, or others in files of the same form; all of those without a split column."""
    if (images is None) != (captions is None):
        raise ArgumentError("--source (a folder or zip of images) and --reference (their captions) belong together")
    if images is not None and captions is not None:
        config = replace(config, scenes="", path=images, captions=captions)
        if not config.split_column:
            return read_everything(config)
    elif config.path and not Path(config.path).exists():
        raise DataError(
            f"the images this model was trained on were in {config.path}, which is missing now; name the test images: "
            "--source FOLDER --reference captions.tsv"
        )
    source = read_split(config, "test")
    if not source.rows:
        raise DataError(f"{config.origin} has no captions of split {config.splits[2]!r} to test with")
    return source
