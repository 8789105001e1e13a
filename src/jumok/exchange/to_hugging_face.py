"""A Transformer as a model folder that `transformers` loads: `AutoModelForSeq2SeqLM` and `AutoTokenizer`.

Three of its classes have the equations of ours. With normalisation after each sublayer and sinusoids it is
MarianMTModel; with normalisation before, PegasusForConditionalGeneration, which has the same sinusoids, or with learned
positions BlenderbotForConditionalGeneration. The tokenizer is MarianTokenizer in all three.

Pegasus and Blenderbot have one table of embeddings. Where source and target have their own, the table holds both, one
below the other: the ids of target tokens follow those of the source, and only padding, beginning and end are shared.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data import BOS, EOS, PAD, Tokenizer
from jumok.data.sentencepiece_model import NORMALISER
from jumok.data.subwords import length_delimited
from jumok.decoding.config import DecodingConfig
from jumok.decoding.ctranslate2_model import why_not as why_no_engine
from jumok.errors import ModelError
from jumok.exchange.hugging_face import (
    ATTENTION,
    BLOCKS,
    CONFIG,
    FEED_FORWARD,
    GENERATION,
    IMPOSSIBLE,
    NORMS,
    VOCABULARY,
)
from jumok.exchange.marian import SOURCE_MODEL, TARGET_MODEL, TARGET_VOCABULARY, alternating
from jumok.exchange.to_onnx import why_not as why_no_graph
from jumok.files import atomic_write
from jumok.layers.positions import sinusoids
from jumok.model_folder import WEIGHTS
from jumok.models.transformer.config import TransformerConfig
from jumok.models.weights import to_bytes, weights_of
from jumok.tasks.translator import TrainedTranslator

CLASSES = {
    ("post", "added"): ("marian", "MarianMTModel"),
    ("pre", "added"): ("pegasus", "PegasusForConditionalGeneration"),
    ("pre", "learned"): ("blenderbot", "BlenderbotForConditionalGeneration"),
}
"""The `model_type` and the class of `transformers` for each `norm` and `positions`."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu"}
POSITIONS = 1024
"""Longest sequence of an exported model with sinusoidal positions, at least."""
REMOVE_EXTRA_SPACES = 4
SHARED_IDS = 3
"""Padding, beginning and end have one id in both vocabularies."""


def why_not(trained: TrainedTranslator, *, marian: bool = False) -> str | None:
    """Why no class of `transformers` fits this model (with `marian`, why MarianMTModel does not); None if one fits."""
    encoder, decoder, normaliser = trained.recipe.encoder, trained.recipe.decoder, trained.tokenizers.source.normaliser
    for name, part in (("encoder", encoder), ("decoder", decoder)):
        if not isinstance(part, TransformerConfig):
            return f"the {name} is {part.kind}, but the translation models of transformers are Transformers"
        if (part.norm, part.positions) not in CLASSES:
            return f"no translation model of transformers has {part.shown('norm')} with {part.shown('positions')}"
        if part.activation not in ACTIVATIONS or part.key_heads not in (None, part.heads):
            setting = "activation" if part.activation not in ACTIVATIONS else "key_heads"
            return f"no translation model of transformers has {part.shown(setting)}"
        if getattr(trained.model, name).embedding.project is not None:
            return f"{name}.vectors are projected, which no translation model of transformers does"
    assert isinstance(encoder, TransformerConfig)
    assert isinstance(decoder, TransformerConfig)
    for setting in ("width", "norm", "positions", "activation"):
        if getattr(encoder, setting) != getattr(decoder, setting):
            return f"{encoder.shown(setting)} and {decoder.shown(setting)} differ, but transformers has one for both"
    if decoder.copy:
        return f"no translation model of transformers has {decoder.shown('copy')}"
    if not encoder.sees_end:
        return "encoder.sees_end = false, but the tokenizer of transformers ends every source with </s>"
    if normaliser.form not in ("none", "nfc") or normaliser.lowercase:
        return "the tokenizer rewrites letters, which MarianTokenizer does not"
    if (reason := _why_not_tags(trained)) is not None:
        return reason
    return f'{encoder.shown("norm")}, but Marian\'s models are "post"' if marian and encoder.norm == "pre" else None


def _why_not_tags(trained: TrainedTranslator) -> str | None:
    """Why MarianTokenizer would lose languages or tags; None if it keeps them."""
    source, target = trained.tokenizers
    if language := source.language or target.language:
        return f"texts of this model begin with a language, {language}, which MarianTokenizer leaves out"
    if source.symbols.all and _is_separate(trained) and _class_of(trained)[0] == "marian":
        return (
            f"MarianTokenizer cannot keep tags such as {min(source.symbols.all)} where source and target have "
            'vocabularies of their own and norm = "post"'
        )
    return None


def _is_separate(trained: TrainedTranslator) -> bool:
    return trained.model.decoder.embedding is not trained.model.encoder.embedding


def _class_of(trained: TrainedTranslator) -> tuple[str, str]:
    config = cast(TransformerConfig, trained.recipe.encoder)
    return CLASSES[config.norm, config.positions]


class Layout(NamedTuple):
    """Where the tokens of source and target are in the vocabulary of the exported model."""

    source: int
    target: int
    is_joint: bool
    """Whether one table holds both, one below the other."""

    @property
    def size(self) -> int:
        """Rows of the table, or of the source's."""
        return self.source + self.target - SHARED_IDS if self.is_joint else self.source

    def target_id(self, id: int) -> int:
        """The id of a target token in the exported model."""
        return id if not self.is_joint or id < SHARED_IDS else self.source + id - SHARED_IDS


def export_model(trained: TrainedTranslator, folder: str | Path, *, marian: bool = False) -> str:
    """Write the folder and return the class that loads it; raises a ModelError if no class fits."""
    if (reason := why_not(trained, marian=marian)) is not None:
        raise ModelError(reason + _other_format(trained))
    kind, name = _class_of(trained)
    separate = _is_separate(trained)
    sizes = [tokenizer.size for tokenizer in trained.tokenizers]
    layout = Layout(sizes[0], sizes[1], is_joint=separate and kind != "marian")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in _files(trained, kind, name, layout, separate).items():
        with atomic_write(folder / file) as stream:
            stream.write(content)
    return name


def _other_format(trained: TrainedTranslator) -> str:
    """The end of a message about a format that a model does not have: one that it has, if any."""
    if why_not(trained) is None:
        return "; --to hf writes another class of transformers"
    others = {"ctranslate2": why_no_engine(trained.model), "onnx": why_no_graph(trained)}
    named = " or ".join(f"--to {name}" for name, reason in others.items() if reason is None)
    return named and f"; use {named}"


def _files(trained: TrainedTranslator, kind: str, name: str, layout: Layout, separate: bool) -> dict[str, bytes]:
    source, target = trained.tokenizers
    ties = not separate and cast(Any, trained.recipe.decoder).ties_output
    documents: dict[str, Any] = {
        CONFIG: _config(trained, kind, name, layout, separate, ties),
        GENERATION: _generation(trained.recipe.decoding, _positions(trained)),
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": separate,
            "model_max_length": _positions(trained),
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "added_tokens_decoder": _symbols(source),
        },
        VOCABULARY: {piece: id for id, piece in enumerate(source.pieces)},
    }
    if separate:
        documents[TARGET_VOCABULARY] = {piece: layout.target_id(id) for id, piece in enumerate(target.pieces)}
    return {
        **{path: json.dumps(content, ensure_ascii=False, indent=1).encode() for path, content in documents.items()},
        SOURCE_MODEL: _sentencepiece(source),
        TARGET_MODEL: _sentencepiece(target),
        WEIGHTS: to_bytes(dict(_weights(trained, kind, layout, separate, ties)), {"format": "pt"}),
    }


def _config(
    trained: TrainedTranslator, kind: str, name: str, layout: Layout, separate: bool, ties: bool
) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        part = getattr(trained.recipe, side)
        sides |= {f"{side}_layers": part.layers, f"{side}_attention_heads": part.heads, f"{side}_ffn_dim": part.hidden}
    config = cast(TransformerConfig, trained.recipe.encoder)
    marian = {"share_encoder_decoder_embeddings": not separate, "decoder_vocab_size": layout.target}
    return {
        "model_type": kind,
        "architectures": [name],
        "is_encoder_decoder": True,
        "d_model": config.width,
        **sides,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "max_position_embeddings": _positions(trained),
        "vocab_size": layout.size,
        "tie_word_embeddings": ties,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
        **(marian if kind == "marian" else {}),
        **({"encoder_no_repeat_ngram_size": 0} if kind == "blenderbot" else {}),
    }


def _generation(decoding: DecodingConfig, positions: int) -> dict[str, Any]:
    """The settings of our search; "never" searches, as ours does, until no better output can come.

    The length counts beginning and end; all but the end are read, which takes a position each.
    """
    return {
        "num_beams": decoding.beam,
        "length_penalty": decoding.length_penalty,
        "early_stopping": "never" if decoding.beam > 1 else False,
        "max_length": min(decoding.max_length + 2, positions + 1),
        "bad_words_ids": [[PAD], [BOS]],
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        **({"min_new_tokens": decoding.min_length} if decoding.min_length else {}),
        **({"no_repeat_ngram_size": decoding.no_repeat} if decoding.no_repeat else {}),
    }


def _symbols(source: Tokenizer) -> dict[str, Any]:
    """Tags and features by their ids, as tokens that MarianTokenizer never cuts; the spaces around them are no text."""
    how = {"lstrip": True, "rstrip": True, "single_word": True, "normalized": False, "special": True}
    return {str(source.pieces.index(symbol)): {"content": symbol, **how} for symbol in sorted(source.symbols.all)}


def _positions(trained: TrainedTranslator) -> int:
    config, decoding = cast(TransformerConfig, trained.recipe.encoder), trained.recipe.decoding
    if config.positions == "learned":
        return min(config.longest, cast(TransformerConfig, trained.recipe.decoder).longest)
    return max(POSITIONS, decoding.max_length + 2, decoding.max_source + 2)


def _sentencepiece(tokenizer: Tokenizer) -> bytes:
    """The SentencePiece model. It collapses spaces between words if our tokenizer does."""
    if tokenizer.normaliser.spaces == "keep":
        return tokenizer.model
    return tokenizer.model + length_delimited(NORMALISER, bytes([REMOVE_EXTRA_SPACES << 3, 1]))


def _weights(
    trained: TrainedTranslator, kind: str, layout: Layout, separate: bool, ties: bool
) -> Iterator[tuple[str, Tensor]]:
    width, encoder, decoder = trained.recipe.encoder.width, *map(_any, (trained.model.encoder, trained.model.decoder))
    order = torch.arange(width) if kind == "blenderbot" else alternating(width).argsort()
    yield from _layers(weights_of(trained.model), order)
    for side, part in (("encoder", encoder), ("decoder", decoder)):
        learned = part.config.positions == "learned"
        rows = part.tokens.positions.table if learned else sinusoids(torch.arange(_positions(trained)), width)
        yield f"model.{side}.embed_positions.weight", rows[: _positions(trained)][:, order]
    source, target, output, bias = (
        part.detach().float()
        for part in (encoder.embedding.table, decoder.embedding.table, *decoder.output.parameters())
    )
    if layout.is_joint:
        source, output, bias = _joined(source, target, output, bias)
        target = source
    if not separate or layout.is_joint:
        yield "model.shared.weight", source[:, order]
    if not ties:  # where nothing is tied, every table is read from the file
        yield "model.encoder.embed_tokens.weight", source[:, order].clone()
        yield "model.decoder.embed_tokens.weight", target[:, order].clone()
        yield "lm_head.weight", output[:, order].clone()
    yield "final_logits_bias", bias[None]


def _any(part: object) -> Any:
    return part


def _joined(
    source: Float[Tensor, "source_token width"],
    target: Float[Tensor, "target_token width"],
    output: Float[Tensor, "target_token width"],
    bias: Float[Tensor, " target_token"],
) -> tuple[Float[Tensor, "token width"], Float[Tensor, "token width"], Float[Tensor, " token"]]:
    """One table for both sides, and its output layer, in which the tokens of the source are impossible.

    A source never holds the beginning, and a decoder never reads padding or the end, so that one row serves both.
    """
    table = torch.cat([source, target[SHARED_IDS:]])
    table[BOS] = target[BOS]
    shared, other = output[:SHARED_IDS], output[SHARED_IDS:]
    unused = len(source) - SHARED_IDS
    rows = torch.cat([shared, output.new_zeros(unused, output.shape[1]), other])
    return table, rows, torch.cat([bias[:SHARED_IDS], bias.new_full((unused,), IMPOSSIBLE), bias[SHARED_IDS:]])


def _layers(weights: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The weights of all layers under the names of `transformers`; see `renamed_layers`."""
    names = {f"{ours}.{to}": f"{block}.{name}" for block, ours in BLOCKS.items() for name, to in ATTENTION.items()}
    names |= {ours: name for name, ours in (NORMS | FEED_FORWARD).items()}
    for name, tensor in weights.items():
        side, _, rest = name.partition(".")
        ours, _, part = rest.rpartition(".")
        if ours == "norm":
            yield f"model.{side}.layer_norm.{part}", tensor[order]
        elif ours.startswith("layers."):
            _, number, block = ours.split(".", 2)
            writes = block.endswith(("to_output", "norm"))
            moved = tensor[order] if writes else tensor[:, order] if tensor.dim() == 2 else tensor
            yield f"model.{side}.layers.{number}.{names[block]}.{part}", moved.float()
