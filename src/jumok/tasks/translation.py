"""Translation: recipes with a section [data], trained on pairs of sentences and validated by translating."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn

from jumok.data import (
    BatchConfig,
    Batches,
    Pair,
    Prepared,
    Tokenizer,
    TokenizerConfig,
    TokenizerPair,
    prepare,
    vector_width,
    vectors_of,
)
from jumok.data.filters import FilterConfig
from jumok.data.prepare import kept_input, why_outdated
from jumok.data.sources import DataConfig
from jumok.decoding.config import DecodingConfig
from jumok.errors import ConfigError, DataError
from jumok.model_folder import TOKENIZERS, ModelFolder
from jumok.models.build import DecoderConfig, EncoderConfig, build_model
from jumok.models.config import TextModelConfig
from jumok.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from jumok.models.memory_check import check_memory
from jumok.settings import NonNegativeFloat
from jumok.tasks.describe import half_in_words, tokenizer_in_words
from jumok.tasks.task import RunContext, Task, TaskData, TextMetric, check_positions, parameters, text_score
from jumok.tasks.translator import Translator, longest_source
from jumok.training.config import Context, TrainingConfig
from jumok.training.loss import BatchSource, GuidedAlignment, held_out_loss
from jumok.training.objective import SEQUENCES, SequenceObjective, cut
from jumok.training.processes import here
from jumok.training.step import autocast

VALIDATED = 1000
"""Sentences translated at a validation, at most."""
FEW = 50
"""Validation pairs whose score says little about which model is better."""
LONG = 1800.0
"""Seconds of training worth a warning."""
FASTEST = 5e10
"""Operations a second of two cores: what is short at this pace need not be measured."""
MEASURED = 24
"""Sentences whose pass is timed."""


@dataclass(frozen=True, kw_only=True)
class TranslationTraining(TrainingConfig):
    """Training of a translation model, with guided alignment (Chen et al. 2016; Garg et al. 2019)."""

    metric: TextMetric = "chrf"
    """Score that selects the best checkpoint: "bleu", "chrf", "exact_match", or (lower is better) "loss", "wer".

    The lower loss decides between equal scores.
    """
    guided_alignment: NonNegativeFloat = 0.0
    """Weight of the guided alignment loss, which trains one layer's attention on data.alignments; 0 for none."""
    guided_layer: int | None = None
    """Decoder layer of guided alignment, counted from 0, or -1 for the last; defaults to the last but one."""
    guided_head: int | None = None
    """Head of guided alignment, counted from 0, or -1 for the last; defaults to the mean of all heads."""
    guided_shift: bool = True
    """Align the step that reads a target word, which aligns best; false aligns the step that predicts it."""
    guided_context: Context = "causal"
    """Target words the decoder sees for guided alignment: those so far ("causal") or all of them ("full").

    "full" needs a Transformer decoder and a second pass through it, which `jumok align` then makes as well.
    """
    guided_null: bool = False
    """Train target words without a link to attend to the end of the source; `jumok align` then gives them no link."""

    @property
    def guide(self) -> GuidedAlignment | None:
        """The attention that is trained on word links; None without guided alignment."""
        if not self.guided_alignment:
            return None
        return GuidedAlignment(
            weight=self.guided_alignment,
            layer=self.guided_layer,
            head=self.guided_head,
            shift=self.guided_shift,
            context=self.guided_context,
            null=self.guided_null,
        )


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe:
    """Everything that decides the result of a run: the data, the model, how it is trained and how it is used."""

    data: DataConfig
    tokenizer: TokenizerConfig
    filter: FilterConfig
    batch: BatchConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    training: TranslationTraining
    decoding: DecodingConfig

    def __post_init__(self) -> None:
        if self.training.guided_alignment and not self.data.alignments:
            raise ConfigError(
                f"training.guided_alignment = {self.training.guided_alignment} needs word links of the training pairs: "
                "set data.alignments to a file in Pharaoh format, as `jumok align` writes"
            )
        if self.training.guided_context == "full" and self.decoder.kind != "transformer":
            raise ConfigError(
                'training.guided_context = "full" needs decoder.kind = "transformer": a recurrent decoder reads its '
                'target word by word; set it to "causal"'
            )
        if self.data.alignments and not self.training.guided_alignment:
            raise ConfigError(
                "data.alignments is given, but training.guided_alignment = 0 makes no use of it; set that to 0.1 or so"
            )


class Trained(NamedTuple):
    """A translation model and what is needed to use it."""

    model: EncoderDecoder
    recipe: TranslationRecipe
    tokenizers: TokenizerPair


class HeldOut(NamedTuple):
    """What a validation translates."""

    batches: Batches
    pairs: list[Pair]
    references: list[str]


class TranslationTask(SequenceObjective, Task[TranslationRecipe, TokenizerPair]):
    """Learns to translate from pairs of sentences; its models are used through a `Translator`."""

    name = "translation"
    does = "translates text"
    recipe = TranslationRecipe
    own_sections = frozenset({"data", "filter"})
    model_sections: ClassVar = ("encoder", "decoder")
    trained = Trained

    def check(self, recipe: TranslationRecipe, run: RunContext) -> None:
        """A new run needs fitting vectors and enough memory, a resumed one the data it began with."""
        check_vocabulary(recipe, run.device)  # whatever its size will be
        if not run.resumed:
            for half in (recipe.encoder, recipe.decoder):
                check_vectors(half)
                check_positions(half, recipe.filter.max_length, "filter.max_length")
        elif why := why_outdated(run.data, recipe.data, recipe.tokenizer, recipe.filter):
            raise ConfigError(why)

    def prepare(self, recipe: TranslationRecipe, run: RunContext) -> TaskData[TranslationRecipe, TokenizerPair]:
        """Tokenise the pairs."""
        data = kept_input(run.data, recipe.data) if run.resumed else recipe.data
        prepared = prepare(run.data, data, recipe.tokenizer, recipe.filter, say=run.say)
        run.say(str(prepared.report))
        if recipe.data.holds_out:
            run.say(held_out_message(len(prepared.valid_pairs)))
        tokenizers = prepared.tokenizers
        return TaskData(
            recipe=_for_use(recipe, prepared),
            assets=tokenizers,
            train=Batches(
                prepared.train,
                recipe.batch,
                seed=recipe.training.seed,
                tokenizers=tokenizers,
                sampling=recipe.tokenizer.sampling,
            ),
            held_out=held_out_pairs(recipe, prepared),
            fingerprint=prepared.identity,
        )

    def build(self, recipe: TranslationRecipe, assets: TokenizerPair) -> EncoderDecoder:
        """An encoder and a decoder for these vocabularies."""
        return build_model(
            recipe.encoder,
            recipe.decoder,
            source_vocabulary=assets.source.size,
            target_vocabulary=assets.target.size,
            shared_vocabulary=assets.shared,
        )

    def begin(self, model: EncoderDecoder, data: TaskData[TranslationRecipe, TokenizerPair], run: RunContext) -> None:
        """Start from pretrained vectors where the recipe names some; warn of a run that takes hours on a CPU."""
        recipe, tokenizers = data.recipe, data.assets
        begin_with_vectors(model.encoder, recipe.encoder, tokenizers.source, "source", run.say)
        begin_with_vectors(model.decoder, recipe.decoder, tokenizers.target, "target", run.say)
        if run.device.type == "cpu" and (message := patience_message(model, data.train, recipe)):
            run.say(message)

    def guide(self, config: TranslationTraining) -> GuidedAlignment | None:
        """The recipe's guided alignment."""
        return config.guide

    def validate(self, trained: Trained, held_out: HeldOut) -> dict[str, float]:
        """Loss and perplexity, and the recipe's metric of translations by beam search."""
        metric = trained.recipe.training.metric
        scores = held_out_loss(trained.model, held_out.batches)
        if metric != "loss":
            translator = Translator(trained)

            def translate(pairs: Sequence[Pair]) -> list[str]:
                return [output.text for output in translator.translate([pair.source for pair in pairs])]

            def outputs() -> list[str]:
                return here().map(translate, held_out.pairs)

            scores[metric] = text_score(metric, scores["loss"], outputs, held_out.references)
        return scores

    def predictor(self, trained: Trained) -> Translator:
        """A Translator."""
        return Translator(trained)

    def files(self, assets: TokenizerPair) -> dict[str, bytes]:
        """One tokenizer, or two."""
        return assets.files()

    def read_assets(self, folder: ModelFolder, recipe: TranslationRecipe) -> TokenizerPair:
        """The tokenizers."""
        return TokenizerPair.of_files(folder.files(TOKENIZERS), folder.path)

    def describe(self, trained: Trained) -> dict[str, Any]:
        """Encoder, decoder, vocabularies and data."""
        recipe, tokenizers = trained.recipe, trained.tokenizers
        return {
            "does": self.does,
            "encoder": recipe.encoder.kind,
            "decoder": recipe.decoder.kind,
            "in words": {"encoder": half_in_words(recipe.encoder), "decoder": half_in_words(recipe.decoder)},
            "parameters": parameters(trained.model),
            "tokenizer": tokenizer_in_words(recipe.tokenizer),
            "source vocabulary": tokenizers.source.size,
            "target vocabulary": tokenizers.target.size,
            "shared vocabulary": tokenizers.shared,
            "longest source": f"{longest_source(trained):,} tokens; longer texts are translated in parts",
            "trained on": recipe.data.origin,
        }

    def commands(self, folder: str, trained: Trained | None = None) -> tuple[str, ...]:
        """`jumok translate`."""
        return (f"jumok translate {folder} < input.txt > output.txt",)

    def difference(self, one: Trained, other: Trained) -> str:
        """The weights of two models must stand for the same tokens."""
        same = all(mine.pieces == their.pieces for mine, their in zip(one.tokenizers, other.tokenizers, strict=True))
        return "" if same else "has another vocabulary than"


def held_out_pairs(recipe: TranslationRecipe, prepared: Prepared) -> HeldOut:
    """The validation pairs, tokenised, and the references of those that are translated."""
    pairs = list(prepared.valid_pairs[:VALIDATED])
    references = [prepared.tokenizers.target.normaliser.rewritten(pair.target) for pair in pairs]
    return HeldOut(Batches(prepared.valid, recipe.batch), pairs, references)


def check_vocabulary(recipe: TranslationRecipe, device: torch.device, *, source: int = 1, target: int = 1) -> None:
    """Raise a ConfigError if the model, with vocabularies of these sizes, is larger than memory."""

    def build(encoder: EncoderConfig, decoder: DecoderConfig) -> nn.Module:
        sizes = {"source_vocabulary": source, "target_vocabulary": target}
        return build_model(encoder, decoder, **sizes, shared_vocabulary=recipe.tokenizer.shared)

    check_memory(build, recipe.encoder, recipe.decoder, device=device)


def _for_use(recipe: TranslationRecipe, prepared: Prepared) -> TranslationRecipe:
    """The recipe that is saved with the model: decoding.max_source defaults to the longest source of the training."""
    if recipe.decoding.max_source:
        return recipe
    return replace(recipe, decoding=replace(recipe.decoding, max_source=prepared.longest_source))


def held_out_message(pairs: int) -> str:
    """A message on pairs of the training text that are validated on instead."""
    message = f"{pairs:,} {'pair is' if pairs == 1 else 'pairs are'} held out of the training text to validate on"
    if pairs >= FEW:
        return message
    return f"{message}; so few tell little: give others by data.valid_source and data.valid_target, or data.valid_pairs"


def check_vectors(config: TextModelConfig) -> None:
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
    half: Encoder | Decoder,
    config: TextModelConfig,
    tokenizer: Tokenizer,
    side: Literal["source", "target"],
    say: Callable[[str], None],
) -> None:
    """Put the vectors of the file a half names, if it names one, into the table of its tokens."""
    if not config.vectors:
        return
    vectors = vectors_of(config.vectors, tokenizer.pieces)
    known = int((~vectors.isnan().any(-1)).sum())
    if not known:
        raise DataError(
            f"none of the {tokenizer.size} pieces of the {side} vocabulary, such as {_some(tokenizer)}, is a word of "
            f'{config.vectors}; is it of the same language? With tokenizer.kind = "word" pieces are whole words'
        )
    half.embedding.initialise_from(vectors)
    say(f"{known:,} of {tokenizer.size:,} pieces of the {side} have a vector in {config.vectors}")


def _some(tokenizer: Tokenizer) -> str:
    pieces = [piece.removeprefix("▁") for piece in tokenizer.pieces[4:]]
    return ", ".join(map(repr, sorted(filter(None, pieces), key=len, reverse=True)[:3]))


def patience_message(model: nn.Module, batches: BatchSource, recipe: TranslationRecipe) -> str:
    """A warning of a run that takes more than half an hour on a CPU; "" for others and for those limited in minutes."""
    seconds = 0.0 if recipe.training.minutes else seconds_on_cpu(model, batches, recipe.training)
    if seconds < LONG:
        return ""
    hours = f"{seconds / 3600:.1f}" if seconds < 36_000 else f"{seconds / 3600:,.0f}"
    return (
        f"{recipe.training.steps:,} steps will take about {hours} h on this CPU; recipes/small-cpu.toml takes minutes: "
        "jumok train small-cpu --set data.source=… --set data.target=…"
    )


def seconds_on_cpu(model: nn.Module, batches: BatchSource, config: TrainingConfig) -> float:
    """Roughly how long all steps take; 0 where they are sure to take less than half an hour.

    Forward and backward pass of a few sentences are measured, the second time they are done, and taken for all
    sentences of all steps. Neither weights nor random draws are changed by it.
    """
    batch = batches.batch(0, 0)
    weights = sum(parameter.numel() for parameter in model.parameters())
    per_step = config.accumulate * SEQUENCES.items(batch)
    if 6 * weights * per_step * config.steps < LONG * FASTEST:
        return 0.0
    piece = cut(batch, 0, min(MEASURED, len(batch.source)))
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
