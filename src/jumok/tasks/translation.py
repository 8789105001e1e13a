"""Translation: recipes with a section [data], trained on pairs of sentences and validated by translating."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.report.numbers import System
from jumok.analysis.scores.metrics import Watch, unwatched
from jumok.data import Batches, Pair, PreparedText, Tokenizer, TokenizerPair, prepare, vector_width, vectors_of
from jumok.data.filters import FilterConfig
from jumok.data.sentencepiece_model import read_tokenizer
from jumok.data.tokenizer import SHOWN_TAGS, TokenizerConfig
from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.model_folder import TOKENIZERS, WEIGHTS, ModelFolder, read_folder, recipe_tables
from jumok.models.build import build_model
from jumok.models.config import TextModelConfig
from jumok.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from jumok.models.memory_check import check_memory
from jumok.models.weights import check_fit, load_weights, weights_of, with_new_rows
from jumok.settings import with_defaults
from jumok.tasks.describe import kind_of, parts_in_words, tokenizer_in_words
from jumok.tasks.map_source import MapSource, text_to_map
from jumok.tasks.recipes import TranslationRecipe, TranslationTraining
from jumok.tasks.results import EvaluationOptions, EvaluationResult, MapOptions, MappedOutput
from jumok.tasks.task import RunContext, Task, TaskData, freeze, frozen_elsewhere, parameters, parts_with_weights
from jumok.tasks.text_generator import with_metric
from jumok.tasks.translation_scores import decoding_settings, evaluate_translations, translate_system
from jumok.tasks.translator import TrainedTranslator, Translator
from jumok.training.config import TrainingConfig
from jumok.training.loss import BatchSource, GuidedAlignment, held_out_loss, perplexity
from jumok.training.objective import SEQUENCES, SequenceObjective
from jumok.training.processes import current_processes
from jumok.training.step import autocast

STARTED_FROM = ("tokenizer", "encoder", "decoder")
"""Sections of a recipe that a model trained further takes from the model it starts from."""
KEEP_SHAPE = "leave out the settings of [encoder] and [decoder] that change the shape of the model, such as width"
VALIDATED = 1000
"""Sentences translated at a validation, at most."""
FEW = 50
"""Number of validation pairs below which scores say little about which model is better."""
LONG = 1800.0
"""Seconds of training after which a warning is given."""
FASTEST = 5e10
"""Operations a second of two cores: what is short at this pace need not be measured."""
MEASURED = 24
"""Sentences whose pass is timed."""
LONGEST_TITLE = 90
"""Characters of a text and its translation that make the title of a map."""


class HeldOutCorpus(NamedTuple):
    """What a validation translates, of one corpus."""

    batches: Batches
    pairs: list[Pair]
    references: list[str]


HeldOutCorpora = dict[str, HeldOutCorpus]
"""The held-out pairs of every corpus by its name, which is "" for a single corpus."""


class TranslationTask(SequenceObjective, Task[TranslationRecipe, TokenizerPair, TrainedTranslator, Translator]):
    """Learns to translate from pairs of sentences; its models are used through a `Translator`."""

    name = "translation"
    does = "translates text"
    generates_text = True
    recipe = TranslationRecipe
    own_sections = frozenset({"data", "filter"})
    model_sections: ClassVar = ("encoder", "decoder")
    trained = TrainedTranslator
    map_example = '"text"'
    evaluation_options = frozenset(option.name for option in fields(EvaluationOptions))
    map_options = frozenset(option.name for option in fields(MapOptions))

    def check(self, recipe: TranslationRecipe, run: RunContext) -> None:
        """Training needs enough memory, and a new run vectors that fit."""
        check_memory(_smallest_build(recipe), recipe.encoder, recipe.decoder, device=run.device)
        if not run.resumed:
            for config in (recipe.encoder, recipe.decoder):
                check_vectors(config)

    def prepare(self, recipe: TranslationRecipe, run: RunContext) -> TaskData[TranslationRecipe, TokenizerPair]:
        """Tokenise the pairs; before that, refuse what does not fit the tokenizer or the model to start from."""
        folder, seed = recipe.training.start_from, recipe.training.seed
        start = _tokenizers_in(folder) if folder else None
        given = _given_tokenizers(recipe, start)
        if recipe.training.freeze:
            _check_frozen(recipe, start, given, run.say)
        used = _with_own_tokenizer(recipe, given)
        if start is not None and given is not None and not run.resumed:
            self._check_start(recipe, start, given)
        prepared = prepare(
            run.data,
            recipe.data,
            recipe.tokenizer,
            recipe.filter,
            tokenizers=given,
            seed=seed,
            resumed=run.resumed,
            say=run.say,
        )
        run.say(str(prepared.report))
        if recipe.data.holds_out:
            run.say(held_out_message(len(prepared.valid_pairs)))
        tokenizers = prepared.tokenizers
        return TaskData(
            recipe=_for_use(used, prepared),
            assets=tokenizers,
            train=Batches(
                prepared.train,
                recipe.batch,
                seed=seed,
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
        """Start from another model or from pretrained vectors, where the recipe names some.

        Warn of a run that takes hours on a CPU.
        """
        recipe, tokenizers = data.recipe, data.assets
        if recipe.training.start_from:
            start = self.load(recipe.training.start_from, device="cpu").trained
            new = _new_sizes(start.tokenizers, tokenizers)
            load_weights(model, with_new_rows(weights_of(start.model), model, new), recipe.training.start_from)
            run.say(f"starting from the model in {recipe.training.start_from}")
        initialise_embeddings(model.encoder, recipe.encoder, tokenizers.source, "source", run.say)
        initialise_embeddings(model.decoder, recipe.decoder, tokenizers.target, "target", run.say)
        if run.device.type == "cpu" and (message := patience_message(model, data.train, recipe)):
            run.say(message)

    def complete(self, tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """With training.start_from, use the architecture and the tokenizer of that model."""
        folder = tables.get("training", {}).get("start_from")
        if not folder or not isinstance(folder, str):
            return tables
        folder = os.path.expanduser(os.path.expandvars(folder))
        start = self.recipe_tables(folder)
        for name in STARTED_FROM:
            kind, given = start[name]["kind"], tables.get(name, {}).get("kind")
            if given not in (None, kind):
                raise ConfigError(
                    f'{name}.kind = "{given}", but the model in {folder}, which training starts from, has "{kind}"; '
                    f"leave out [{name}]"
                )
        own = {name: tables.get(name, {}) for name in STARTED_FROM}
        start["tokenizer"].pop("model", None)  # the tokenizer is in the folder, whatever became of that file
        if own["tokenizer"].get("model"):
            start["tokenizer"] = {}
        else:
            _check_kept(own["tokenizer"], start["tokenizer"], folder)
        further = {name: {**start[name], **own[name]} for name in STARTED_FROM}
        return {**tables, **further, "filter": _within_positions(tables.get("filter", {}), further)}

    def _check_start(self, recipe: TranslationRecipe, known: TokenizerPair, given: TokenizerPair) -> None:
        """Refuse settings with which the weights of the model to start from, which has `known`, do not fit."""
        folder = recipe.training.start_from
        shapes = read_folder(folder, lambda opened: opened.header().shapes)
        with torch.device("meta"):  # shapes without contents
            model = self.build(recipe, given)
            start = {name: torch.empty(shape) for name, shape in shapes.items()}
        grown = with_new_rows(start, model, _new_sizes(known, given))
        check_fit(weights_of(model), grown, Path(folder) / WEIGHTS, hint=KEEP_SHAPE)

    def guide(self, config: TranslationTraining) -> GuidedAlignment | None:
        """The recipe's guided alignment."""
        return config.guide

    def r_drop(self, config: TranslationTraining) -> float:
        """The recipe's R-Drop."""
        return config.r_drop

    def validate(self, trained: TrainedTranslator, held_out: HeldOutCorpora) -> dict[str, float]:
        """Loss and perplexity, and the recipe's metric of translations by beam search.

        Of several corpora, those of each and, decisive for the best checkpoint, their mean.
        """
        of_corpus = {name: self._validate(trained, pairs) for name, pairs in held_out.items()}
        if len(of_corpus) == 1:
            return next(iter(of_corpus.values()))
        names = next(iter(of_corpus.values()))
        mean = {name: sum(scores[name] for scores in of_corpus.values()) / len(of_corpus) for name in names}
        mean |= {"perplexity": perplexity(mean["loss"])}
        metric = trained.recipe.training.metric
        shown = {f"{corpus} {metric}": scores[metric] for corpus, scores in of_corpus.items()}
        return {**shown, **mean}

    def _validate(self, trained: TrainedTranslator, held_out: HeldOutCorpus) -> dict[str, float]:
        def translate(pairs: Sequence[Pair]) -> list[str]:
            return [output.text for output in Translator(trained).translate([pair.source for pair in pairs])]

        def outputs() -> list[str]:
            return current_processes().map(translate, held_out.pairs)

        losses = held_out_loss(trained.model, held_out.batches)
        return with_metric(losses, trained.recipe.training, outputs, held_out.references)

    def predictor(self, trained: TrainedTranslator, folder: str | Path | None = None) -> Translator:
        """A Translator."""
        return Translator(trained, folder=folder)

    def files(self, assets: TokenizerPair) -> dict[str, bytes]:
        """One tokenizer, or two."""
        return assets.files()

    def read_assets(self, folder: ModelFolder, recipe: TranslationRecipe) -> TokenizerPair:
        """The tokenizers."""
        return TokenizerPair.of_files(folder.files(TOKENIZERS), folder.path)

    def describe(self, trained: TrainedTranslator) -> dict[str, Any]:
        """Encoder, decoder, vocabularies and data."""
        recipe, tokenizers = trained.recipe, trained.tokenizers
        return {
            "does": self.does,
            "encoder": kind_of(trained.model.encoder, recipe.encoder),
            "decoder": kind_of(trained.model.decoder, recipe.decoder),
            "in words": parts_in_words(trained.model.encoder, trained.model.decoder, recipe),
            "parameters": parameters(trained.model),
            "tokenizer": tokenizer_in_words(recipe.tokenizer, tokenizers.source),
            "source vocabulary": tokenizers.source.size,
            "target vocabulary": tokenizers.target.size,
            "shared vocabulary": tokenizers.shared,
            "longest source": _longest_in_words(trained),
            "trained on": recipe.data.origin,
            **_chosen_languages(tokenizers),
            **({"tags": ", ".join(tokenizers.tags[:SHOWN_TAGS])} if tokenizers.tags else {}),
        }

    def commands(self, folder: str, trained: TrainedTranslator | None = None) -> tuple[str, ...]:
        """`jumok translate`."""
        return (f"jumok translate {folder} < input.txt > output.txt",)

    def difference(self, first: TrainedTranslator, second: TrainedTranslator) -> str:
        """The weights of two models must stand for the same tokens."""
        sides = zip(first.tokenizers, second.tokenizers, strict=True)
        return "" if all(mine.pieces == theirs.pieces for mine, theirs in sides) else "has another vocabulary than"

    def evaluate(
        self, predictor: Translator, options: EvaluationOptions, *, name: str = "model", watch: Watch = unwatched
    ) -> EvaluationResult:
        """Translate a test set and score the outputs, and those of other systems."""
        if options.source is None:
            missing = "`reference=`" if options.reference is None else "`source=`"
            raise ArgumentError(f"{missing} is missing: name the test sentences and their translations")

        predictor = predictor.between(*options.languages)

        def first(sources: Sequence[str]) -> System:
            decoding = decoding_settings(options)
            return translate_system(name, predictor, sources, kind=options.kind, watch=watch, **decoding)

        device = str(predictor.device)
        return evaluate_translations(self, first, options, name=name, device=device, watch=watch)

    def input_files(self, recipe: TranslationRecipe) -> list[str]:
        """The text to train and to validate on."""
        return recipe.data.files()

    def map_source(self, given: MapSource) -> str:
        """A text, or a line of standard input."""
        return text_to_map(given) if given.node is None else super().map_source(given)

    def map(self, predictor: Translator, source: str, options: MapOptions) -> MappedOutput:
        """The model's own translation of a text, or the given one, and its maps."""
        predictor = predictor.between(*options.languages)
        words = None if options.tokens is None else not options.tokens
        kind, max_source, target = options.kind, options.max_source, options.target
        if target is not None:
            shown = predictor.attention(source, target, words=words, kind=kind, max_source=max_source, tag=options.tag)
            output = MappedOutput({"source": source, "text": target}, [_titled(shown, source, target)])
        else:
            (translation,) = predictor.translate([source], beam=options.beam, max_source=max_source, tag=options.tag)
            facts = {"source": source, "text": translation.text, "score": round(translation.score, 4)}
            parts = zip(translation.attention_maps(words=words, kind=kind), translation.pieces, strict=True)
            maps = [_titled(shown, part.strip(), predictor.tokenizer.decode(ids)) for shown, (part, ids, *_) in parts]
            output = MappedOutput(facts, maps, tuple(translation.warnings().values()))
        return output.select(options.layer, options.head)


def _tokenizers_in(folder: str | Path) -> TokenizerPair:
    """Those of a model folder, whose weights are not read."""
    return read_folder(folder, lambda opened: TokenizerPair.of_files(opened.files(TOKENIZERS), opened.path))


def _new_sizes(old: TokenizerPair, new: TokenizerPair) -> dict[int, int]:
    """The new sizes of vocabularies by the old ones."""
    return {side.size: mine.size for side, mine in zip(old, new, strict=True)}


def _chosen_languages(tokenizers: TokenizerPair) -> dict[str, str]:
    """The languages that a multilingual model translates between, unless others are named."""
    source, target = tokenizers
    known = f"it knows {len(source.languages)}"
    if target.language:
        chosen = f"from {source.language} to {target.language}; {known}, and --from and --to choose others"
        return {"languages": chosen}
    return {"languages": f"to {source.language}; {known}, and --to chooses another"} if source.language else {}


def _titled(shown: AttentionMap, source: str, target: str) -> AttentionMap:
    title = {"cross": f"{source} → {target}", "encoder": source, "decoder": target}[shown.kind]
    return replace(shown, title=title if len(title) <= LONGEST_TITLE else "")


def held_out_pairs(recipe: TranslationRecipe, prepared: PreparedText) -> HeldOutCorpora:
    """The validation pairs of each corpus, tokenised, and the references of those that are translated."""
    most, rewritten = VALIDATED // len(prepared.held_out), prepared.tokenizers.target.normaliser.rewritten
    return {
        name: HeldOutCorpus(
            Batches(dataset, recipe.batch), pairs[:most], [rewritten(pair.target) for pair in pairs[:most]]
        )
        for name, (dataset, pairs) in prepared.held_out.items()
    }


def _for_use(recipe: TranslationRecipe, prepared: PreparedText) -> TranslationRecipe:
    """The recipe that is saved with the model: decoding.max_source defaults to the longest source of the training.

    The training of a model that this one started from counts as well.
    """
    if recipe.decoding.max_source:
        return recipe
    folder, longest = recipe.training.start_from, prepared.longest_source
    if folder:
        longest = max(longest, recipe_tables(folder).get("decoding", {}).get("max_source", 0))
    return replace(recipe, decoding=replace(recipe.decoding, max_source=longest))


def _smallest_build(recipe: TranslationRecipe) -> Callable[..., EncoderDecoder]:
    """Builds the recipe's model with vocabularies of the least size; theirs are not known before text is read."""
    shared = recipe.tokenizer.shared
    return partial(build_model, source_vocabulary=3, target_vocabulary=3, shared_vocabulary=shared)


def _given_tokenizers(recipe: TranslationRecipe, start: TokenizerPair | None) -> TokenizerPair | None:
    """The recipe's own tokenizer for both sides, or those of the model to start from; None if there is neither."""
    folder, path = recipe.training.start_from, recipe.tokenizer.model
    if not path:
        return None if start is None else start.with_symbols(recipe.data.symbols())
    tokenizer = read_tokenizer(path, lowercase=recipe.tokenizer.lowercase)
    if start is not None:
        tokenizer = tokenizer.with_symbols(start.source.symbols)
        for side in start:
            if side.size != tokenizer.size:
                raise ConfigError(
                    f"the model in {folder} has {side.size:,} tokens, but tokenizer.model = {path} has "
                    f"{tokenizer.size:,}; leave out tokenizer.model, or train without training.start_from"
                )
    tokenizer = tokenizer.with_symbols(recipe.data.symbols())
    return TokenizerPair(tokenizer, tokenizer)


def _check_frozen(
    recipe: TranslationRecipe, start: TokenizerPair | None, given: TokenizerPair | None, say: Callable[[str], None]
) -> None:
    """Refuse frozen parts that the model does not have, or that must learn a new symbol; tell of shared weights."""
    with torch.device("meta"):  # names without contents
        model = _smallest_build(recipe)(recipe.encoder, recipe.decoder)
    freeze(model, recipe.training.freeze)
    if shared := frozen_elsewhere(model, recipe.training.freeze):
        named = json.dumps(recipe.training.freeze)
        say(f"training.freeze = {named} also freezes {' and '.join(shared)}: the weights are shared")
    if start is not None and given is not None and not model.encoder.embedding.table.requires_grad:
        _check_new_symbols(recipe, start, given, model)


def _check_new_symbols(
    recipe: TranslationRecipe, known: TokenizerPair, given: TokenizerPair, model: EncoderDecoder
) -> None:
    """Refuse to freeze the embedding of the source where a symbol is new, whose vector would stay random."""
    table, new = model.encoder.embedding.table, given.source.pieces[len(known.source.pieces) :]
    if not new:
        return
    names = [name for name, weight in model.named_parameters(remove_duplicate=False) if weight is table]
    sides = dict.fromkeys(name.split(".")[0] for name in names if name.startswith(recipe.training.freeze))
    others = [
        f"{side}.{name}"
        for side in sides
        for name in parts_with_weights(model.get_submodule(side))
        if all(weight is not table for weight in model.get_submodule(f"{side}.{name}").parameters())
    ]
    raise ConfigError(
        f"{new[0]} is new to the vocabulary of {recipe.training.start_from} and must be learnt, but training.freeze = "
        f"{list(recipe.training.freeze)} freezes the embedding of the source; freeze {' and '.join(others)} instead"
    )


def _with_own_tokenizer(recipe: TranslationRecipe, given: TokenizerPair | None) -> TranslationRecipe:
    """The recipe with kind and size of the tokenizer that it names, if any."""
    if given is None or not recipe.tokenizer.model:
        return recipe
    return replace(recipe, tokenizer=replace(recipe.tokenizer, kind=given.source.kind, size=given.source.size))


def _check_kept(given: Mapping[str, Any], start: Mapping[str, Any], folder: str) -> None:
    """Refuse settings of a tokenizer that is reused; how texts are sampled in training may change."""
    for field in fields(TokenizerConfig):
        kept = start.get(field.name, field.default)
        if field.name in ("model", "sampling") or given.get(field.name, kept) in (kept, _as_list(kept)):
            continue
        raise ConfigError(
            f"tokenizer.{field.name} = {given[field.name]!r} has no effect, because training.start_from keeps the "
            f"tokenizer of {folder}, where it is {kept!r}; leave out one of them"
        )


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _within_positions(given: Any, further: Mapping[str, Any]) -> Any:
    """A section [filter] whose max_length defaults to the positions of the model to start from, less the end."""
    limits = [
        further[name]["longest"] - 1
        for name in ("encoder", "decoder")
        if further[name].get("positions") == "learned" and type(further[name].get("longest")) is int
    ]
    most = min([*limits, FilterConfig.max_length])
    return with_defaults(given, {"max_length": most} if most < FilterConfig.max_length else {})


def held_out_message(pairs: int) -> str:
    """A message about pairs of the training text that are held out for validation."""
    message = f"{pairs:,} {'pair is' if pairs == 1 else 'pairs are'} held out of the training text to validate on"
    if pairs >= FEW:
        return message
    return f"{message}; so few tell little: give others by data.valid_source and data.valid_target, or data.valid_pairs"


def check_vectors(config: TextModelConfig) -> None:
    """Raise an error if the file of vectors that an encoder or decoder names cannot be used."""
    if not config.vectors:
        return
    width = vector_width(config.vectors)
    if width != config.token_width:
        raise ConfigError(
            f'{config.section}.vectors = "{config.vectors}" holds vectors of {width} numbers, but tokens are '
            f"{config.token_width} wide; set {config.width_for(width)}"
        )


def initialise_embeddings(
    part: Encoder | Decoder,
    config: TextModelConfig,
    tokenizer: Tokenizer,
    side: Literal["source", "target"],
    say: Callable[[str], None],
) -> None:
    """Put the vectors of the file that an encoder or decoder names, if any, into its embeddings."""
    if not config.vectors:
        return
    vectors = vectors_of(config.vectors, tokenizer.pieces)
    known = int((~vectors.isnan().any(-1)).sum())
    if not known:
        raise DataError(
            f"none of the {tokenizer.size} pieces of the {side} vocabulary, such as {_longest_pieces(tokenizer)}, is "
            f'a word of {config.vectors}; is it of the same language? With tokenizer.kind = "word" pieces are words'
        )
    part.embedding.initialise_from(vectors)
    say(f"{known:,} of {tokenizer.size:,} pieces of the {side} have a vector in {config.vectors}")


def _longest_in_words(trained: TrainedTranslator) -> str:
    longest, sentence = trained.longest_source, trained.longest_sentence
    whole = f", but a single sentence of up to {sentence:,} tokens whole" if sentence > longest else ""
    return f"{longest:,} tokens; longer texts are translated in parts{whole}"


def _longest_pieces(tokenizer: Tokenizer) -> str:
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
    piece = SEQUENCES.cut(batch, 0, min(MEASURED, len(batch.source)))
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


TRANSLATION = TranslationTask()
