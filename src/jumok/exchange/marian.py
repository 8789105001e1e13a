"""Hugging Face folders of Marian models, such as OPUS-MT, as translation models of ours.

A Marian model is the Transformer of Vaswani et al. (2017) with normalisation after each sublayer, so every weight has
its place here. Two things differ. Marian writes all sines of a position before all cosines, where our `sinusoids`
alternate: the vectors between the layers are put into our order, which changes no result. And its decoder starts from
the padding token, which becomes our BOS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.data.sentencepiece_model import (
    SentencePieceModel,
    check_pieces,
    check_vocabulary,
    make_tokenizer,
    missing_pieces,
    read_model,
)
from jumok.data.subwords import BOS, EOS, PAD, SPECIALS, UNK
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.errors import DataError
from jumok.exchange.hugging_face import (
    CONFIG,
    UNLIKE,
    VOCABULARY,
    Tables,
    Vocabulary,
    check_ids,
    output_bias,
    read_bytes,
    read_embeddings,
    read_ids,
    renamed_layers,
    search_settings,
    side_settings,
    tokenizer_settings,
)
from jumok.models.config import Tied
from jumok.models.weights import load_weights
from jumok.screen import to_screen
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.translator import TrainedTranslator

TARGET_VOCABULARY, SOURCE_MODEL, TARGET_MODEL = "target_vocab.json", "source.spm", "target.spm"


@dataclass(frozen=True)
class MarianFolder:
    """A folder as `transformers` saves it."""

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def of(cls, path: Path, config: Mapping[str, Any]) -> "MarianFolder":
        """The folder with this config.json; a DataError for kinds of Marian models that do not fit."""
        if config.get("normalize_before") or config.get("normalize_embedding"):
            raise DataError(f"{path}: Marian models with normalize_before or normalize_embedding are not supported")
        if config.get("pad_token_id") is None:
            raise DataError(f"{path / CONFIG} has no pad_token_id, with which the decoder of a Marian model starts")
        return cls(path, config)

    def trained(self) -> TrainedTranslator:
        """The model with its recipe and its tokenizers."""
        tokenizers, source, target = self._vocabularies()
        tables = read_embeddings(self.path, self.config, separate=self.separate)
        check_ids(source, tables.source, self.path / VOCABULARY)
        check_ids(target, tables.target, self.path / (TARGET_VOCABULARY if self.separate else VOCABULARY))
        recipe: TranslationRecipe = make_recipe(self._recipe(tokenizers, tables.tied), origin=self.path / CONFIG)
        model = TRANSLATION.build(recipe, tokenizers)
        load_weights(model, self._weights(tables, source, target), self.path, hint=UNLIKE)
        return TrainedTranslator(model.eval(), recipe, tokenizers)

    @property
    def separate(self) -> bool:
        """Whether source and target have vocabularies of their own."""
        return not self.config.get("share_encoder_decoder_embeddings", True)

    def _vocabularies(self) -> tuple[TokenizerPair, Vocabulary, Vocabulary]:
        ids = read_ids(self.path / VOCABULARY)
        target_ids = read_ids(self.path / TARGET_VOCABULARY) if self.separate else ids
        cuts = [read_model(read_bytes(self.path / name), self.path / name) for name in (SOURCE_MODEL, TARGET_MODEL)]
        for cut, known in zip(cuts, (ids, target_ids), strict=True):
            check_pieces(cut, known, to_screen)
        self._check_vocabularies(cuts, ids, target_ids)
        source_pieces, target_pieces = _pieces(ids), _pieces(target_ids)
        missing = [missing_pieces(cut, known) for cut, known in zip(cuts, (ids, target_ids), strict=True)]
        if not self.separate:
            missing = [list(dict.fromkeys(missing[0] + missing[1]))] * 2
        tokenizers = TokenizerPair(
            make_tokenizer(cuts[0], source_pieces + missing[0]), make_tokenizer(cuts[1], target_pieces + missing[1])
        )
        source = self._vocabulary(ids, source_pieces, len(missing[0]))
        return tokenizers, source, self._vocabulary(target_ids, target_pieces, len(missing[1]))

    def _check_vocabularies(
        self, cuts: Sequence[SentencePieceModel], ids: Mapping[str, int], target_ids: Mapping[str, int]
    ) -> None:
        check_vocabulary(cuts[:1] if self.separate else cuts, ids, self.path / VOCABULARY)
        if self.separate:
            check_vocabulary(cuts[1:], target_ids, self.path / TARGET_VOCABULARY)

    def _vocabulary(self, ids: Mapping[str, int], pieces: Sequence[str], missing: int) -> Vocabulary:
        pad, start = self.config["pad_token_id"], self.config.get("decoder_start_token_id")
        first = pad if start is None else start
        specials = {PAD: pad, BOS: first, EOS: ids["</s>"], UNK: ids["<unk>"]}
        rows = [*(specials[id] for id in range(SPECIALS)), *(ids[piece] for piece in pieces), *[ids["<unk>"]] * missing]
        # Marian has no padding token: `transformers` adds it with a row of zeros, and renormalises without it.
        written = [id not in (PAD, BOS) for id in range(len(rows) - missing)]
        return Vocabulary(torch.tensor(rows), (*written, *[False] * missing))

    def _recipe(self, tokenizers: TokenizerPair, tied: Tied) -> dict[str, Any]:
        config = self.config

        def side(name: str) -> dict[str, Any]:
            return side_settings(self.path, config, name) | {"norm": "post", "positions": "added"}

        longest = int(config.get("max_position_embeddings", 512))
        return {
            "data": {"imported": self.path.resolve().name},
            "tokenizer": tokenizer_settings(tokenizers),
            "encoder": side("encoder"),
            "decoder": side("decoder") | {"tied": tied},
            "decoding": {"max_length": longest - 1, "max_source": longest - 1, **search_settings(self.path, config)},
        }

    def _weights(self, tables: Tables, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
        order = alternating(int(self.config["d_model"]))
        weights = dict(renamed_layers(tables.tensors, order))
        factor = 1.0 if self.config.get("scale_embedding") else len(order) ** -0.5
        weights["encoder.tokens.embedding.table"] = tables.source[source.rows][:, order] * factor
        if tables.target is not tables.source:
            weights["decoder.tokens.embedding.table"] = tables.target[target.rows][:, order] * factor
        if tables.output is not tables.target:
            weights["decoder.output.weight"] = tables.output[target.rows][:, order]
        elif factor != 1.0:  # the table was divided by √width; the last normalisation makes up for it in the output
            last = f"decoder.layers.{int(self.config['decoder_layers']) - 1}.around_feed.norm"
            for name in (f"{last}.weight", f"{last}.bias"):
                weights[name] = weights[name] / factor
        weights["decoder.output.bias"] = output_bias(tables.tensors, target)
        return weights


def alternating(width: int) -> Int[Tensor, " width"]:
    """Where the numbers of an alternating sinusoid, sin cos sin cos …, are in Marian's: all sines, then all cosines."""
    order = torch.empty(width, dtype=torch.long)
    sines = (width + 1) // 2
    order[0::2], order[1::2] = torch.arange(sines), torch.arange(sines, width)
    return order


def _pieces(ids: Mapping[str, int]) -> list[str]:
    """The pieces of a vocabulary by id, without those that become our special tokens."""
    specials = {"</s>", "<unk>", "<pad>"}
    return [piece for piece, _ in sorted(ids.items(), key=lambda item: item[1]) if piece not in specials]
