"""The scores of a captioner on images it has not seen: several right captions each, and for scenes where it looked."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from jumok.analysis.scores.metrics import Score, score_outputs
from jumok.cli.output import stages
from jumok.errors import ArgumentError, DataError
from jumok.images.pairs import ImagesConfig, ImageSource, read_everything, read_split
from jumok.images.pointing import Pointing, pointing
from jumok.images.scenes import scenes
from jumok.screen import progress
from jumok.tasks.captioner import Captioner


class CaptionScores(NamedTuple):
    """What an evaluation found."""

    outputs: list[str]
    scores: list[Score]
    pointing: Pointing | None
    """For scenes."""


def evaluate_captioner(
    folder: str | Path,
    metrics: list[str],
    *,
    images: str | None = None,
    captions: str | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    beam: int | None = None,
    device: str = "auto",
) -> CaptionScores:
    """Caption the test images of the recipe, or others, and compare with all their captions."""
    captioner = Captioner.load(folder, device=device)
    config = captioner.trained.recipe.images
    source = _test_images(config, images, captions)
    found = captioner.stream((source.read(row.image) for row in source.rows), beam=beam)
    outputs = [one.text for one in progress(found, "captioning", "images", len(source.rows))]
    lowercase = lowercase or captioner.trained.recipe.tokenizer.lowercase
    rights = [row.captions for row in source.rows]
    with stages() as watch:
        scores = score_outputs(outputs, rights, metrics, tokenize=tokenize, lowercase=lowercase, watch=watch)
    own_scenes = bool(config.scenes) and images is None
    return CaptionScores(outputs, scores, pointing_of(captioner) if own_scenes else None)


def pointing_of(captioner: Captioner) -> Pointing | None:
    """Where the words of the true captions of the test scenes look; None without attention."""
    config, looks = captioner.trained.recipe.images, []
    language = config.scenes or "en"
    for scene in progress(scenes(config.valid_count, split="test"), "looking", "scenes", config.valid_count):
        try:
            look = captioner.attention(scene.picture(config.size), scene.caption(language))
        except ArgumentError:  # a fixed context looks nowhere
            return None
        looks.append((scene, look.mean().view(-1, *captioner.trained.model.encoder.grid).numpy()))
    return pointing(looks, language=language)


def _test_images(config: ImagesConfig, images: str | None, captions: str | None) -> ImageSource:
    """The recipe's own test images, or others in files of the same form; without a split column, all of those."""
    if (images is None) != (captions is None):
        raise ArgumentError("--source (a folder or zip of images) and --reference (their captions) belong together")
    if images is not None and captions is not None:
        config = replace(config, scenes="", path=images, captions=captions)
        if not config.split_column:
            return read_everything(config)
    elif config.path and not Path(config.path).exists():
        raise DataError(
            f"the images this model learnt from were in {config.path}, which is not there now; name the test images: "
            "--source FOLDER --reference captions.tsv"
        )
    source = read_split(config, "test")
    if not source.rows:
        raise DataError(f"{config.origin} has no captions of split {config.splits[2]!r} to test with")
    return source
