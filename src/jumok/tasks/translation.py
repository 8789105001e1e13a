"""A whole training run: text to tokens to a trained model folder, validated by really translating."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from jumok.data import Batches, Prepared, Tokenizer, prepare, vector_width, vectors_of
from jumok.data.prepare import kept_input, why_outdated
from jumok.errors import ConfigError, DataError
from jumok.model_folder import Trained, new_model, publish_model
from jumok.models.build import DecoderConfig, EncoderConfig, build_model
from jumok.models.config import HalfConfig
from jumok.models.memory_check import check_memory
from jumok.recipe import Recipe
from jumok.sealed_folder import is_whole
from jumok.tasks.run import Begun, begin_run, check_positions, draw_curve, score_of, shown
from jumok.tasks.translator import Translator
from jumok.training.config import TrainingConfig
from jumok.training.loop import TrainingResult, train
from jumok.training.loss import held_out_loss
from jumok.training.progress import Report
from jumok.training.state import TrainingState
from jumok.training.step import autocast
from jumok.training.task import SEQUENCES, cut


def check_vectors(config: HalfConfig) -> None:
    """Say what is wrong with the file a half names, if it names one, before any work is done."""
    if not config.vectors:
        return
    found = vector_width(config.vectors)
    if found != config.token_width:
        raise ConfigError(
            f'{config.section}.vectors = "{config.vectors}" holds vectors of {found} numbers, but tokens are '
            f"{config.token_width} wide; set {config.width_for(found)}"
        )


def begin_with_vectors(
    half: nn.Module,
    config: HalfConfig,
    tokenizer: Tokenizer,
    side: Literal["source", "target"],
    say: Callable[[str], None],
) -> None:
    """Put the vectors of the file a half names, if it names one, into the table of its tokens."""
    if not config.vectors:
        return
    table: Any = half.embedding
    vectors = vectors_of(config.vectors, tokenizer.pieces)
    known = int((~vectors.isnan().any(-1)).sum())
    if not known:
        raise DataError(
            f"none of the {tokenizer.size} pieces of the {side} vocabulary, such as {_some(tokenizer)}, is a word of "
            f'{config.vectors}; is it of the same language? With tokenizer.kind = "word" pieces are whole words'
        )
    table.initialise_from(vectors)
    say(f"{known:,} of {tokenizer.size:,} pieces of the {side} have a vector in {config.vectors}")


def _some(tokenizer: Tokenizer) -> str:
    pieces = [piece.removeprefix("▁") for piece in tokenizer.pieces[4:]]
    return ", ".join(map(repr, sorted(filter(None, pieces), key=len, reverse=True)[:3]))


LONG = 1800.0
"""Seconds worth a word."""
FASTEST = 5e10
"""Operations a second of two cores: what is short at this pace need not be measured."""
PIECE = 24
"""Sentences that are measured."""


def seconds_on_cpu(model: nn.Module, batches: Batches, config: TrainingConfig) -> float:
    """Roughly how long all steps take; 0 where they are sure to take less than half an hour.

    Forward and backward pass of a few sentences are measured, the second time they are done, and taken for all
    sentences of all steps. Neither weights nor random draws are changed by it.
    """
    batch = batches.batch(0, 0)
    weights = sum(parameter.numel() for parameter in model.parameters())
    per_step = config.accumulate * SEQUENCES.items(batch)
    if 6 * weights * per_step * config.steps < LONG * FASTEST:
        return 0.0
    piece = cut(batch, 0, min(PIECE, len(batch.source)))
    with torch.random.fork_rng(devices=[]):
        _pass(model, piece, config)
        began = time.perf_counter()
        _pass(model, piece, config)
        seconds = time.perf_counter() - began
    model.zero_grad(set_to_none=True)
    return seconds / SEQUENCES.items(piece) * per_step * config.steps


def _pass(model: nn.Module, batch: object, config: TrainingConfig) -> None:
    device = torch.device("cpu")
    with autocast(config, device):
        loss = SEQUENCES.loss(model, batch, device, config)  # type: ignore[arg-type]
    loss.total.backward()  # type: ignore[no-untyped-call]


VALIDATED = 1000
"""Sentences translated at a validation, at most."""
FEW = 50
"""Validation pairs whose score says little of which model is better."""


class Run(NamedTuple):
    """What a run gave."""

    translator: Translator
    result: TrainingResult
    stopped: str
    scores: dict[str, float]


def run_recipe(
    recipe: Recipe,
    folder: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
    draw: bool = True,
) -> Run:
    """Prepare the data, train, and write the model folder."""
    begun = begin_run(recipe, folder, resume=resume, device=device, report=report)
    check_room(recipe, begun.device)  # whatever the vocabulary will be
    _check(recipe, begun)  # before its data are made anew
    store, say = begun.folder / "data", begun.report.say
    data = kept_input(store, recipe.data) if begun.goes_on else recipe.data
    prepared = prepare(store, data, recipe.tokenizer, recipe.filter, say=say)
    say(str(prepared.report))
    if recipe.data.holds_out:
        say(held_out_message(len(prepared.valid_pairs)))
    check_room(recipe, begun.device, source=prepared.tokenizers.source.size, target=prepared.tokenizers.target.size)
    model = new_model(recipe, prepared.tokenizers)
    if not begun.goes_on:
        begin_with_vectors(model.encoder, recipe.encoder, prepared.tokenizers.source, "source", say)
        begin_with_vectors(model.decoder, recipe.decoder, prepared.tokenizers.target, "target", say)
    model.to(begun.device)
    trained = Trained(model, _for_use(recipe, prepared), prepared.tokenizers)
    batches = Batches(
        prepared.train,
        recipe.batch,
        seed=recipe.training.seed,
        tokenizers=prepared.tokenizers,
        sampling=recipe.tokenizer.sampling,
    )

    if begun.device.type == "cpu" and not begun.goes_on and (message := patience_message(model, batches, recipe)):
        say(message)

    def publish(weights: Path, state: TrainingState) -> None:
        publish_model(begun.folder, trained, weights, scores=shown(_scores(recipe, state)))

    result = train(
        model,
        batches,
        recipe.training,
        folder=begun.folder,
        validate=make_validator(trained, prepared),
        report=begun.report,
        resume=resume,
        data=prepared.identity,
        settings=begun.settings,
        draw=draw_curve if draw else None,
        publish=publish,
        is_published=is_whole,
    )
    return Run(Translator(trained), result, result.stopped, _scores(recipe, result.state))


def held_out_message(pairs: int) -> str:
    """What is said of so many pairs of the training text that are not learnt from."""
    said = f"{pairs:,} {'pair is' if pairs == 1 else 'pairs are'} held out of the training text to validate on"
    if pairs >= FEW:
        return said
    return f"{said}; so few tell little: give others by data.valid_source and data.valid_target, or data.valid_pairs"


def patience_message(model: nn.Module, batches: Batches, recipe: Recipe) -> str:
    """What is said of a run that takes more than half an hour on a CPU; nothing if it has a limit of minutes."""
    seconds = 0.0 if recipe.training.minutes else seconds_on_cpu(model, batches, recipe.training)
    if seconds < LONG:
        return ""
    hours = f"{seconds / 3600:.1f}" if seconds < 36_000 else f"{seconds / 3600:,.0f}"
    return (
        f"{recipe.training.steps:,} steps will take about {hours} h on this CPU; recipes/small-cpu.toml takes minutes: "
        "jumok train small-cpu --set data.source=… --set data.target=…"
    )


def _scores(recipe: Recipe, state: TrainingState) -> dict[str, float]:
    """Of the best validation."""
    return {} if state.best is None else {recipe.training.metric: state.best}


def _check(recipe: Recipe, begun: Begun) -> None:
    """A new run must have its vectors and its room, one that goes on the data it began with."""
    if not begun.goes_on:
        for half in (recipe.encoder, recipe.decoder):
            check_vectors(half)
            check_positions(half, recipe.filter.max_length, "filter.max_length")
    elif why := why_outdated(begun.folder / "data", recipe.data, recipe.tokenizer, recipe.filter):
        raise ConfigError(why)


def check_room(recipe: Recipe, device: torch.device, *, source: int = 1, target: int = 1) -> None:
    """Raise a ConfigError if the model, with vocabularies of these sizes, is larger than memory."""

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> nn.Module:
        sizes = {"source_vocabulary": source, "target_vocabulary": target}
        return build_model(encoder, decoder, **sizes, shared_vocabulary=recipe.tokenizer.shared)

    check_memory(build, recipe.encoder, recipe.decoder, device=device)


def _for_use(recipe: Recipe, prepared: Prepared) -> Recipe:
    """The recipe that is saved with the model: it knows up to what length inputs were learnt, unless it says one."""
    if recipe.decoding.max_source:
        return recipe
    return replace(recipe, decoding=replace(recipe.decoding, max_source=prepared.longest_source))


def make_validator(trained: Trained, prepared: Prepared) -> Callable[[nn.Module], dict[str, float]]:
    """A function from a model to its scores on the validation pairs: loss, and the recipe's metric by beam search."""
    recipe = trained.recipe
    held_out = Batches(prepared.valid, recipe.batch)
    pairs = prepared.valid_pairs[:VALIDATED]
    references = [prepared.tokenizers.target.normaliser.rewritten(pair.target) for pair in pairs]

    def validate(model: nn.Module) -> dict[str, float]:
        scores = held_out_loss(model, held_out)
        if recipe.training.metric != "loss":
            translator = Translator(trained._replace(model=model))  # type: ignore[arg-type]

            def outputs() -> list[str]:
                return [found.text for found in translator.translate([pair.source for pair in pairs])]

            scores[recipe.training.metric] = score_of(recipe.training.metric, scores["loss"], outputs, references)
        return scores

    return validate
