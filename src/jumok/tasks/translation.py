"""Translation: recipes with a section [data], trained on pairs of sentences and validated by translating."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.report.content import System
from jumok.data import Batches, Pair, PreparedText, TokenizerPair, prepare
from jumok.data.tokenizer import SHOWN_TAGS
from jumok.decoding.shortlist import FILE as SHORTLIST
from jumok.decoding.shortlist import read_shortlist
from jumok.errors import ArgumentError
from jumok.model_folder import TOKENIZERS, ModelFolder, recipe_tables
from jumok.models.build import build_model
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.memory_check import check_memory
from jumok.models.weights import load_weights, weights_of, with_new_rows
from jumok.progress import Watch, unwatched
from jumok.tasks.describe import part_kind, parts_in_words, tokenizer_in_words
from jumok.tasks.duration import duration_warning
from jumok.tasks.fine_tuning import check_frozen, check_start, given_tokenizers, new_sizes, tokenizers_in, with_start
from jumok.tasks.map_source import MapSource, text_to_map
from jumok.tasks.pretrained_vectors import check_vectors, initialise_embeddings
from jumok.tasks.recipes import TranslationRecipe, TranslationTraining
from jumok.tasks.results import EvaluationOptions, EvaluationResult, MapOptions, MappedOutput
from jumok.tasks.task import RunContext, Task, TaskData, parameters
from jumok.tasks.text_generator import with_metric
from jumok.tasks.translation_scores import decoding_settings, evaluate_translations, translate_system
from jumok.tasks.translator import TrainedTranslator, Translator
from jumok.training.guided_alignment import GuidedAlignment
from jumok.training.loss import perplexity
from jumok.training.objective import SequenceObjective
from jumok.training.processes import current_processes
from jumok.training.validation import held_out_loss

VALIDATED = 1000
"""Sentences translated at a validation, at most."""
FEW = 50
"""Number of validation pairs below which scores say little about which model is better."""
LONGEST_TITLE = 90
"""Characters of a text and its translation that make the title of a map."""


class HeldOutCorpus(NamedTuple):
    """What a validation translates, of one corpus."""

    batches: Batches
    pairs: list[Pair]
    references: list[str]


HeldOutCorpora = dict[str, HeldOutCorpus]
"""The held-out pairs of every corpus by its name, which is "" for a single corpus."""


class TranslationTask(
    SequenceObjective[TranslationTraining], Task[TranslationRecipe, TokenizerPair, TrainedTranslator, Translator]
):
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
        start = tokenizers_in(folder) if folder else None
        given = given_tokenizers(recipe, start)
        if recipe.training.freeze:
            with torch.device("meta"):  # names without contents
                model = _smallest_build(recipe)(recipe.encoder, recipe.decoder)
            check_frozen(recipe, model, start, given, run.say)
        used = _with_own_tokenizer(recipe, given)
        if start is not None and given is not None and not run.resumed:
            check_start(recipe, start, given, self.build)
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
            new = new_sizes(start.tokenizers, tokenizers)
            load_weights(model, with_new_rows(weights_of(start.model), model, new), recipe.training.start_from)
            run.say(f"starting from the model in {recipe.training.start_from}")
        initialise_embeddings(model.encoder, recipe.encoder, tokenizers.source, "source", run.say)
        initialise_embeddings(model.decoder, recipe.decoder, tokenizers.target, "target", run.say)
        if run.device.type == "cpu" and (message := duration_warning(model, data.train, recipe)):
            run.say(message)

    def complete(self, tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """With training.start_from, use the architecture, the tokenizer and the decoding settings of that model."""
        return with_start(tables, self.recipe_tables)

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
            "encoder": part_kind(trained.model.encoder, recipe.encoder),
            "decoder": part_kind(trained.model.decoder, recipe.decoder),
            "in words": parts_in_words(trained.model.encoder, trained.model.decoder, recipe),
            "parameters": parameters(trained.model),
            "tokenizer": tokenizer_in_words(recipe.tokenizer, tokenizers.source),
            "source vocabulary": tokenizers.source.size,
            "target vocabulary": tokenizers.target.size,
            "shared vocabulary": tokenizers.shared,
            "longest source": _longest_in_words(trained),
            **({"imported from": name} if (name := recipe.data.imported) else {"trained on": recipe.data.origin}),
            **_chosen_languages(tokenizers),
            **({"tags": ", ".join(tokenizers.tags[:SHOWN_TAGS])} if tokenizers.tags else {}),
        }

    def keep_files(self, folders: Sequence[Path], out: Path, trained: TrainedTranslator) -> None:
        """The shortlists, joined; without that of one model there is none, because its words would be missing."""
        shortlists = [read_shortlist(folder / SHORTLIST, trained.tokenizers) for folder in folders]
        known = [shortlist for shortlist in shortlists if shortlist is not None]
        if len(known) == len(folders):
            reduce(or_, known).write(out / SHORTLIST, trained.tokenizers)

    def title(self, trained: TrainedTranslator) -> str:
        """Another one for a model of another toolkit."""
        return "A model imported by jumok" if trained.recipe.data.imported else super().title(trained)

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


def _with_own_tokenizer(recipe: TranslationRecipe, given: TokenizerPair | None) -> TranslationRecipe:
    """The recipe with kind and size of the tokenizer that it names, if any."""
    if given is None or not recipe.tokenizer.model:
        return recipe
    return replace(recipe, tokenizer=replace(recipe.tokenizer, kind=given.source.kind, size=given.source.size))


def held_out_message(pairs: int) -> str:
    """A message about pairs of the training text that are held out for validation."""
    message = (
        f"{pairs:,} {'pair is' if pairs == 1 else 'pairs are'} held out of the training text to validate on; other "
        "pairs with the same sources are left out"
    )
    if pairs >= FEW:
        return message
    others = "data.valid_source and data.valid_target, or data.valid_pairs"
    return f"{message}; too few to compare models: give others by {others}"


def _longest_in_words(trained: TrainedTranslator) -> str:
    longest, sentence = trained.longest_source, trained.longest_sentence
    whole = f", but a single sentence of up to {sentence:,} tokens is translated whole" if sentence > longest else ""
    return f"{longest:,} tokens; longer texts are translated in parts{whole}"


TRANSLATION = TranslationTask()
