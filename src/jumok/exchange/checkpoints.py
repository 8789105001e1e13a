"""Checkpoints of toolkits that save with `torch.save`, read without running any code of the file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.sentencepiece_model import (
    SentencePieceModel,
    check_pieces,
    check_vocabulary,
    make_tokenizer,
    make_word_tokenizer,
    missing_pieces,
    read_model,
)
from jumok.data.subwords import BOS, EOS, PAD, UNK
from jumok.data.tokenizer import Tokenizer
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.errors import DataError
from jumok.exchange.hugging_face import Vocabulary, output_bias, tokenizer_settings
from jumok.files import read_plain
from jumok.models.weights import load_weights
from jumok.screen import to_screen
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.translator import TrainedTranslator

UNLIKE = "its settings and its weights are of different models; copy the whole model again"
MOST_PIECES_BYTES = 64 * 2**20


def read_torch_checkpoint(path: Path) -> dict[str, Any]:
    """The dictionary in a checkpoint.

    Objects of other classes than tensors and plain data become inert: they hold their attributes and do nothing.
    """
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        inert = [(type(name.rpartition(".")[2], (Inert,), {}), name) for name in names]
        with catch_warnings(action="ignore"), torch.serialization.safe_globals(inert):  # type: ignore[arg-type]
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        why = type(error).__name__
        raise DataError(
            f"{path} is damaged, or cannot be read without running its code ({why}); copy it again, or save the "
            "weights alone with the toolkit that made it"
        ) from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a checkpoint: it holds no dictionary")
    return content


class Inert:
    """Stands for an object of a class of another toolkit; none of that class's code runs."""

    def __new__(cls, *values: Any, **attributes: Any) -> "Inert":
        """Accept any arguments."""
        return super().__new__(cls)

    def __init__(self, *values: Any, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, Mapping):
            self.__dict__.update({str(name): value for name, value in state.items()})


class SpecialNames(NamedTuple):
    """The special tokens of another vocabulary, by name."""

    pad: str
    bos: str
    eos: str
    unk: str


class SideVocabulary(NamedTuple):
    """The vocabulary of the source or the target, and the sentencepiece model that cuts its texts, if any."""

    tokens: Sequence[str]
    cut: SentencePieceModel | None = None
    lowercase: bool = False


class ForeignModel(NamedTuple):
    """A model of another toolkit, with the weights of its layers under our names."""

    path: Path
    settings: Mapping[str, Mapping[str, Any]]
    """Sections of a recipe: encoder, decoder and decoding."""
    layers: Mapping[str, Tensor]
    source: Float[Tensor, "source_token width"]
    target: Float[Tensor, "target_token width"]
    """The same as `source` if both sides share a table."""
    output: Float[Tensor, "target_token width"]
    bias: Float[Tensor, " target_token"]
    is_scaled: bool
    """Whether embeddings are multiplied by √width, as those of our Transformers are; True for recurrent models."""
    sides: tuple[SideVocabulary, SideVocabulary]
    specials: SpecialNames

    def trained(self) -> TrainedTranslator:
        """The model with its recipe and its tokenizers."""
        tokenizers, source, target = self._vocabularies()
        recipe: TranslationRecipe = make_recipe(self._recipe(tokenizers), origin=self.path)
        model = TRANSLATION.build(recipe, tokenizers)
        load_weights(model, self._weights(recipe, source, target), self.path, hint=UNLIKE)
        return TrainedTranslator(model.eval(), recipe, tokenizers)

    @property
    def tied(self) -> str:
        """The setting decoder.tied."""
        output = self.output is self.target
        if self.target is self.source:
            return "all" if output else "embeddings"
        return "output" if output else "none"

    def _vocabularies(self) -> tuple[TokenizerPair, Vocabulary, Vocabulary]:
        first, second = self.sides
        for side, table in zip(self.sides, (self.source, self.target), strict=True):
            if len(side.tokens) != len(table):
                raise DataError(
                    f"{self.path} has a vocabulary of {len(side.tokens):,} tokens, but weights for {len(table):,}; it "
                    "belongs to another model"
                )
        cuts, tokens = [side.cut for side in self.sides if side.cut is not None], {*first.tokens, *second.tokens}
        for cut in {id(cut): cut for cut in cuts}.values():
            check_pieces(cut, tokens, to_screen)  # one model may cut both languages
        if len(cuts) == len(self.sides):
            check_vocabulary(cuts, tokens, self.path)
        missing = [_missing(side) for side in self.sides]
        if first.tokens == second.tokens:
            missing = [list(dict.fromkeys(missing[0] + missing[1]))] * 2
        vocabularies = [self._vocabulary(side, more) for side, more in zip(self.sides, missing, strict=True)]
        source, target = (tokenizer for tokenizer, _ in vocabularies)
        shared = source if source.model == target.model else target
        return TokenizerPair(source, shared), vocabularies[0][1], vocabularies[1][1]

    def _vocabulary(self, side: SideVocabulary, missing: Sequence[str]) -> tuple[Tokenizer, Vocabulary]:
        ids = {token: id for id, token in enumerate(side.tokens)}
        if lost := [name for name in self.specials if name not in ids]:
            raise DataError(f"{self.path}: the vocabulary has no {lost[0]}")
        special = {PAD: self.specials.pad, BOS: self.specials.bos, EOS: self.specials.eos, UNK: self.specials.unk}
        rows = [ids[special[id]] for id in range(len(special))]
        others = [token for token in side.tokens if token not in self.specials]
        rows += [*(ids[token] for token in others), *[rows[UNK]] * len(missing)]
        pieces = [*others, *missing]
        if side.cut is None:
            tokenizer = make_word_tokenizer(pieces, lowercase=side.lowercase)
        else:
            tokenizer = make_tokenizer(side.cut, pieces, lowercase=side.lowercase)
        written = [number < len(rows) - len(missing) for number in range(len(rows))]
        return tokenizer, Vocabulary(torch.tensor(rows), tuple(written))

    def _recipe(self, tokenizers: TokenizerPair) -> dict[str, Any]:
        return {
            "data": {"imported": self.path.resolve().stem or str(self.path)},
            "tokenizer": tokenizer_settings(tokenizers),
            **{name: dict(section) for name, section in self.settings.items()},
            "decoder": {**self.settings["decoder"], "tied": self.tied},
        }

    def _weights(self, recipe: TranslationRecipe, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
        weights = {name: tensor.float() for name, tensor in self.layers.items()}
        factor = 1.0 if self.is_scaled else recipe.decoder.width**-0.5
        place = "embedding.table" if recipe.encoder.kind == "rnn" else "tokens.embedding.table"
        weights[f"encoder.{place}"] = self.source.float()[source.rows] * factor
        if self.target is not self.source:
            weights[f"decoder.{place}"] = self.target.float()[target.rows] * factor
        if self.output is not self.target:
            weights["decoder.output.weight"] = self.output.float()[target.rows]
        elif factor != 1.0:  # the table was divided by √width; the last normalisation makes up for it in the output
            post = f"layers.{self.settings['decoder']['layers'] - 1}.around_feed.norm"
            last = "norm" if self.settings["decoder"]["norm"] == "pre" else post
            for name in (f"decoder.{last}.weight", f"decoder.{last}.bias"):
                weights[name] = weights[name] / factor
        weights["decoder.output.bias"] = output_bias({"final_logits_bias": self.bias.float()}, target)
        return weights


def renamed(tensors: Mapping[str, Tensor], rules: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """The tensors whose whole name matches a rule, under the name that the rule gives."""
    renamed_tensors = {}
    for name, tensor in tensors.items():
        for pattern, ours in rules:
            if match := re.fullmatch(pattern, name):
                renamed_tensors[match.expand(ours)] = tensor
                break
    return renamed_tensors


def read_pieces(path: str | Path, folder: Path) -> SentencePieceModel:
    """A sentencepiece model at the path that a config names, or under its name in the folder of the model."""
    places = [Path(path), folder / Path(path).name]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise DataError(f"the model needs the sentencepiece model {path}; copy it into {folder}")
    return read_model(read_plain(file, most=MOST_PIECES_BYTES), file)


def refuse(path: Path, what: Iterable[str]) -> None:
    """Raise a DataError that names the first setting without a counterpart here, if there is one."""
    if first := next(iter(what), None):
        raise DataError(f"{path}: models with {first} cannot be imported, because jumok has no such setting")


def _missing(side: SideVocabulary) -> list[str]:
    return [] if side.cut is None else missing_pieces(side.cut, side.tokens)
