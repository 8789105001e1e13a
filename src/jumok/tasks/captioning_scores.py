"""Evaluation of captioners: scores of their captions, and how well words point at what they name in drawn scenes."""

from pathlib import Path
from typing import Any, NamedTuple

from jumok.analysis.scores.metrics import MetricScore, check_scores, score_outputs
from jumok.errors import ArgumentError, DataError
from jumok.images.pairs import ImagesConfig, ImageSource, read_everything, read_split
from jumok.images.pointing import Pointing, pointing
from jumok.images.scenes import scenes
from jumok.progress import Watch, unwatched
from jumok.settings import changed
from jumok.tasks.captioner import Captioner
from jumok.tasks.results import EvaluationOptions, EvaluationResult, Table, write_outputs
from jumok.tasks.translation_scores import TOKENIZE, score_table

METRICS = ("bleu", "cider", "meteor", "chrf", "ter")
"""The usual scores of captions."""
CAPTIONING_OPTIONS = ("beam", "length_penalty", "min_length", "max_length", "no_repeat")
"""The settings of beam search that captions can be evaluated with."""


class CaptionScores(NamedTuple):
    """Captions of test images, their scores, and for generated scenes how well words point at what they name."""

    outputs: list[str]
    scores: list[MetricScore]
    pointing: Pointing | None

    def result(self) -> EvaluationResult:
        """The scores as `jumok evaluate` prints them."""
        values: dict[str, Any] = {"images": len(self.outputs), "scores": [vars(score) for score in self.scores]}
        tables = [score_table(self.scores)]
        if self.pointing is not None:
            values["pointing"] = self.pointing._asdict()
            tables.append(_pointing_table(self.pointing))
        return EvaluationResult(values, tables)


def _pointing_table(pointing: Pointing) -> Table:
    shares = {
        "words that attend to their shape": pointing.all,
        "size words that attend to their shape": pointing.size,
        "colour words that attend to their shape": pointing.colour,
        "shape words that attend to their shape": pointing.shape,
        "mean attention on the named shape": pointing.mass,
    }
    rows = [[name, f"{share:.1f}"] for name, share in shares.items()]
    return Table([f"attention of the {pointing.words:,} words that name a shape", "%"], rows)


def score_captioner(captioner: Captioner, options: EvaluationOptions, *, watch: Watch = unwatched) -> CaptionScores:
    """Caption the test images of the recipe, or others, and compare each with all its reference captions."""
    metrics, tokenize = options.metrics or METRICS, options.tokenize or TOKENIZE
    check_scores(metrics, tokenize)
    recipe = captioner.trained.recipe
    source = _test_images(recipe.images, options.source, options.reference)
    decoding = {name: getattr(options, name) for name in CAPTIONING_OPTIONS}
    stream = captioner.stream((source.read(row.image) for row in source.rows), **decoding)
    outputs = [caption.text for caption in watch(stream, "captioning", len(source.rows))]
    write_outputs(options.save, outputs)
    lowercase = options.lowercase or recipe.tokenizer.lowercase
    references = [row.captions for row in source.rows]
    scores = score_outputs(outputs, references, metrics, tokenize=tokenize, lowercase=lowercase, watch=watch)
    own_scenes = bool(recipe.images.scenes) and options.source is None
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
        maps.append((scene, attention.mean().view(-1, *captioner.trained.encoder.grid).numpy()))
    return pointing(maps, language=language)


def _test_images(config: ImagesConfig, images: str | None, captions: str | None) -> ImageSource:
    """The test images of the recipe, or others in files of the same form; all of those without a split column."""
    if (images is None) != (captions is None):
        raise ArgumentError("`source=` (a folder or zip of images) and `reference=` (their captions) belong together")
    if images is not None and captions is not None:
        config = changed(config, scenes="", path=images, captions=captions)
        if not config.split_column:
            return read_everything(config)
    elif config.path and not Path(config.path).exists():
        raise DataError(
            f"the images this model was trained on were in {config.path}, which is missing now; name the test images: "
            "`source=FOLDER` `reference=captions.tsv`"
        )
    source = read_split(config, "test")
    if not source.rows:
        raise DataError(f"{config.origin} has no captions of split {config.splits[2]!r} to test with")
    return source
