"""Comparisons of translation models as curves: quality, gradients and speed against length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from jumok.analysis.curves.gradient_reach import Ends, GradientReach, batches_of, reach_by_distance, relative_gradients
from jumok.analysis.curves.step_times import StepTime, step_times
from jumok.analysis.draw.chart import LineChart, charts_bytes
from jumok.analysis.report.content import System
from jumok.analysis.scores.length_bands import EDGES, Band, join_texts, score_bands
from jumok.errors import ArgumentError
from jumok.files import atomic_write
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.progress import Watch, unwatched
from jumok.tasks.translation import TRANSLATION, TranslationTask
from jumok.tasks.translation_scores import read_test_set
from jumok.tasks.translator import TrainedTranslator


def read_joined(source: str, reference: str | None, sizes: Sequence[int]) -> tuple[list[str], list[str]]:
    """A test set whose texts are joined: for each size n, every n consecutive sentences as one text."""
    sources, references = read_test_set(source, reference)
    sources, references = join_texts(sources, sizes), join_texts(references, sizes)
    if not sources:
        raise ArgumentError(f"there is nothing to compare on: {source} has too few sentences")
    return sources, references


def quality_by_length(
    systems: Sequence[System],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: str = "bleu",
    edges: Sequence[int] = EDGES,
    tokenize: str = "13a",
    watch: Watch = unwatched,
) -> dict[str, list[Band]]:
    """The score of every system in each band of source lengths."""
    return {
        system.name: score_bands(
            metric, sources, system.outputs, references, edges=edges, tokenize=tokenize, watch=watch
        )
        for system in systems
    }


def gradient_by_distance(
    models: Mapping[str, Path],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    ends: Ends = "both",
    shortest: int = 20,
    sentences: int = 500,
    untrained: bool = False,
    device: str = "auto",
    task: TranslationTask = TRANSLATION,
    watch: Watch = unwatched,
) -> dict[str, list[GradientReach]]:
    """The gradient that arrives at source tokens against their distance from the end of the source, for every model."""
    loaded, curves = load_translators(models, task, device), {}
    for name, (model, recipe, tokenizers, _) in loaded.items():
        if untrained:
            device_of_model = next(model.parameters()).device
            model = cast(EncoderDecoder, task.new_model(recipe, tokenizers)).to(device_of_model)
        batches = list(batches_of(tokenizers, sources, references, shortest=shortest, most=sentences))
        gradients = list(relative_gradients(model, watch(batches, f"gradients of {name}", len(batches))))
        curves[name] = reach_by_distance(gradients, ends=ends, shortest=shortest)
    return curves


def load_translators(models: Mapping[str, Path], task: TranslationTask, device: str) -> dict[str, TrainedTranslator]:
    """All models, so that a folder that is none is refused before any work."""
    return {name: task.load(folder, device=device).trained for name, folder in models.items()}


def speed_by_length(
    models: Mapping[str, Path],
    lengths: Sequence[int],
    *,
    tokens: int = 2048,
    repeats: int = 5,
    device: str = "auto",
    task: TranslationTask = TRANSLATION,
    watch: Watch = unwatched,
) -> dict[str, list[StepTime]]:
    """The time of a training step and of a decoded token at each length, for every model."""
    loaded, curves = load_translators(models, task, device), {}
    for name, trained in loaded.items():
        times = step_times(trained.model, lengths, tokens=tokens, repeats=repeats)
        curves[name] = list(watch(times, f"timing {name}", len(lengths)))
    return curves


def save_charts(charts: Sequence[LineChart], path: Path) -> None:
    """Write charts to an .svg, .png or .pdf file."""
    content = charts_bytes(charts, path.suffix.lstrip(".").lower())
    with atomic_write(path) as file:
        file.write(content)
