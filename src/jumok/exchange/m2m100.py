"""Hugging Face folders of M2M-100 (Fan et al. 2021) and NLLB models, which translate between many languages.

They are Transformers with normalisation before each sublayer and one table for everything. A source begins with a token
for its language, and so does the target, whose first token is not chosen but given. Their sinusoids begin at position 2
and fall from 1 to 1/10000 exactly, unlike ours, so that they become learned positions with these numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.data.sentencepiece_model import (
    SentencePieceModel,
    check_pieces,
    check_vocabulary,
    from_merges,
    make_tokenizer,
    missing_pieces,
    read_model,
)
from jumok.data.subwords import BOS
from jumok.data.tokenizer import Tokenizer
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.errors import ArgumentError, DataError
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
    read_generation,
    read_ids,
    read_json,
    read_optional,
    renamed_layers,
    search_settings,
    side_settings,
    tokenizer_settings,
)
from jumok.models.weights import load_weights
from jumok.screen import to_screen
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.translator import TrainedTranslator

PIECES, TOKENIZER, TOKENIZER_CONFIG = "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"
SPECIAL_MAP = "special_tokens_map.json"
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
"""The first ids of these models; sentencepiece's own first three are others."""
FIRST_POSITION = 2
SHOWN_LANGUAGES = 5
LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The languages of M2M-100 and of the WMT 2021 models, in the order of their ids, which no file of a folder gives."""


def sinusoids_in_halves(positions: Int[Tensor, " position"], width: int) -> Float[Tensor, "position {width}"]:
    """Sines of all frequencies, which fall from 1 to 1/10000, then their cosines."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
    angles = positions[:, None] * frequencies
    table = torch.cat([angles.sin(), angles.cos()], 1)
    return torch.nn.functional.pad(table, (0, width - 2 * half))


@dataclass(frozen=True)
class M2M100Folder:
    """A folder as `transformers` saves it."""

    path: Path
    config: Mapping[str, Any]

    def trained(self, source: str | None, target: str | None) -> TrainedTranslator:
        """The model with its recipe and its tokenizers, which are set to these languages or the folder's own."""
        tables = read_embeddings(self.path, self.config)
        tokenizer, vocabulary = self._vocabulary(len(tables.source))
        check_ids(vocabulary, tables.source, self.path / VOCABULARY)
        tokenizers = self._languages(tokenizer, vocabulary, source, target)
        recipe: TranslationRecipe = make_recipe(self._recipe(tokenizers, tables), origin=self.path / CONFIG)
        model = TRANSLATION.build(recipe, tokenizers)
        load_weights(model, self._weights(tables, vocabulary), self.path, hint=UNLIKE)
        return TrainedTranslator(model.eval(), recipe, tokenizers)

    @property
    def longest(self) -> int:
        """The number of positions."""
        return int(self.config.get("max_position_embeddings", 1024))

    def _vocabulary(self, size: int) -> tuple[Tokenizer, Vocabulary]:
        """The tokenizer, and the row of each of its ids among the `size` rows of the model."""
        cut, names = self._names()
        check_pieces(cut, names, to_screen)
        check_vocabulary([cut], names, self.path)
        if len(names) > size:
            raise DataError(
                f"{self.path} has {len(names):,} tokens, but its weights are those of {size:,}; its tokenizer belongs "
                "to another model"
            )
        names = [*names, *(f"<unnamed {id}>" for id in range(len(names), size))]
        start = int(self.config.get("decoder_start_token_id", 2))
        specials = [names.index("<pad>"), start, names.index("</s>"), names.index("<unk>")]
        taken = {specials[0], *specials[2:]}
        pieces = [(id, name) for id, name in enumerate(names) if id not in taken]
        missing = missing_pieces(cut, names)
        tokenizer = make_tokenizer(cut, [*(name for _, name in pieces), *missing])
        rows = [*specials, *(id for id, _ in pieces), *[specials[3]] * len(missing)]
        written = [id != BOS for id in range(len(rows) - len(missing))]
        return tokenizer, Vocabulary(torch.tensor(rows), (*written, *[False] * len(missing)))

    def _names(self) -> tuple[SentencePieceModel, list[str]]:
        """How texts are cut, and the name of every id; languages as tags, such as >>en<<."""
        if (self.path / VOCABULARY).exists():  # M2M-100
            return self._pieces(), _in_order(read_ids(self.path / VOCABULARY), self.path) + self._m2m100_languages()
        if (self.path / TOKENIZER).exists():
            return self._fast_names()
        cut = self._pieces()
        listed = read_optional(self.path / SPECIAL_MAP) or read_optional(self.path / TOKENIZER_CONFIG)
        languages = [str(code) for code in listed.get("additional_special_tokens") or ()]
        if not languages:
            raise DataError(
                f"{self.path} does not say which languages its ids are: it needs {TOKENIZER} or {SPECIAL_MAP}; copy "
                "the whole folder"
            )
        return cut, [*FAIRSEQ, *(piece.text for piece in cut.pieces[3:]), *map(_tag, languages), "<mask>"]

    def _fast_names(self) -> tuple[SentencePieceModel, list[str]]:
        content = read_json(self.path / TOKENIZER)
        try:
            ids: dict[str, int] = dict(content["model"]["vocab"])
            added = {str(token["content"]): int(token["id"]) for token in content["added_tokens"]}
            merges = [
                tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in content["model"]["merges"]
            ]
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{self.path / TOKENIZER} is not a BPE tokenizer, as NLLB's is") from None
        if (self.path / PIECES).exists():
            cut = self._pieces()
        else:
            normalisers = content.get("normalizer") or {}
            maps = [part.get("precompiled_charsmap") for part in [normalisers, *normalisers.get("normalizers", ())]]
            cut = from_merges(list(ids), merges, next(filter(None, maps), ""))
        languages = {_tag(name): id for name, id in added.items() if name not in ids and name != "<mask>"}
        return cut, _in_order(
            {**ids, **{name: id for name, id in added.items() if name == "<mask>"}, **languages}, self.path
        )

    def _pieces(self) -> SentencePieceModel:
        return read_model(read_bytes(self.path / PIECES), self.path / PIECES)

    def _m2m100_languages(self) -> list[str]:
        name = read_optional(self.path / TOKENIZER_CONFIG).get("language_codes", "m2m100")
        if name not in LANGUAGES:
            raise DataError(f'{self.path / TOKENIZER_CONFIG} has language_codes = "{name}"; m2m100 and wmt21 are known')
        return [_tag(code) for code in LANGUAGES[name].split()]

    def _languages(
        self, tokenizer: Tokenizer, vocabulary: Vocabulary, source: str | None, target: str | None
    ) -> TokenizerPair:
        """The tokenizer for each side, set to its language."""
        saved = read_optional(self.path / TOKENIZER_CONFIG)
        if saved.get("legacy_behaviour"):
            raise DataError(f"{self.path / TOKENIZER_CONFIG} puts the language after a text, which is not supported")
        forced = {**self.config, **read_generation(self.path)}.get("forced_bos_token_id")
        names = {int(row): tokenizer.pieces[id][2:-2] for id, row in enumerate(vocabulary.rows.tolist())}
        source = source or saved.get("src_lang")
        target = target or saved.get("tgt_lang") or (None if forced is None else names.get(forced))
        if not source or not target:
            known = tokenizer.languages
            more = ", …" if len(known) > SHOWN_LANGUAGES else ""
            raise ArgumentError(
                f"{self.path} translates between {len(known)} languages: {', '.join(known[:SHOWN_LANGUAGES])}{more}; "
                f"choose the default source and target, for example --from {known[0]} --to {known[1]}"
            )
        return TokenizerPair(tokenizer.with_language(source), tokenizer.with_language(target))

    def _recipe(self, tokenizers: TokenizerPair, tables: Tables) -> dict[str, Any]:
        def side(name: str) -> dict[str, Any]:
            positions = {"positions": "learned", "longest": self.longest}
            return side_settings(self.path, self.config, name) | {"norm": "pre"} | positions

        most = self.longest - 2  # a language and the end of the text have positions as well
        return {
            "data": {"imported": self.path.resolve().name},
            "tokenizer": tokenizer_settings(tokenizers),
            "encoder": side("encoder"),
            "decoder": side("decoder") | {"tied": tables.tied},
            "filter": {"max_length": min(most, 256)},
            "decoding": {"max_length": most, "max_source": most, **search_settings(self.path, self.config)},
        }

    def _weights(self, tables: Tables, vocabulary: Vocabulary) -> dict[str, Tensor]:
        width = int(self.config["d_model"])
        weights = dict(renamed_layers(tables.tensors, torch.arange(width)))
        factor = 1.0 if self.config.get("scale_embedding", True) else width**-0.5
        weights["encoder.tokens.embedding.table"] = tables.source[vocabulary.rows] * factor
        if tables.target is not tables.source:
            weights["decoder.tokens.embedding.table"] = tables.target[vocabulary.rows] * factor
        if tables.output is not tables.target:
            weights["decoder.output.weight"] = tables.output[vocabulary.rows]
        elif factor != 1.0:  # the table was divided by √width; the last normalisation makes up for it in the output
            for name in ("decoder.norm.weight", "decoder.norm.bias"):
                weights[name] = weights[name] / factor
        weights["decoder.output.bias"] = output_bias(tables.tensors, vocabulary)
        for side in ("encoder", "decoder"):
            positions = torch.arange(FIRST_POSITION, self.longest + FIRST_POSITION)
            weights[f"{side}.tokens.positions.table"] = sinusoids_in_halves(positions, width)
        return weights


def _tag(code: str) -> str:
    return f">>{code.removeprefix('__').removesuffix('__')}<<"


def _in_order(ids: Mapping[str, int], path: Path) -> list[str]:
    """The pieces by id, which must be 0, 1, 2 and so on."""
    pieces: Sequence[str] = sorted(ids, key=lambda piece: ids[piece])
    if sorted(ids.values()) != list(range(len(ids))) or not set(FAIRSEQ) <= ids.keys():
        raise DataError(
            f"the ids of the vocabulary in {path} are not 0 to {len(ids) - 1}, with <s>, <pad>, </s>, <unk>"
        )
    return list(pieces)
