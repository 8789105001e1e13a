"""Models in words: encoders, decoders, graph networks and tokenizers, as `jumok inspect` and model pages show them."""

from typing import Any

from torch import nn

from jumok.data.tokenizer import OneSidedTokenizer, Tokenizer
from jumok.graphs.network import GatConfig
from jumok.images.encoder import GridEncoderConfig, ImageEncoderConfig
from jumok.models.config import Tying
from jumok.models.rnn.decoder import RnnDecoderBase
from jumok.models.rnn.encoder import RnnConfig, RnnEncoderConfig
from jumok.models.rnn.hard_attention import HardAttentionBase
from jumok.models.rnn.transducer import TransducerConfig
from jumok.models.transformer.config import TransformerConfig

SCORES = {
    "additive": "additive (Bahdanau's) attention",
    "none": "no attention: a fixed context",
    "monotonic": "monotonic attention",
}
PIECES = {"unigram": "pieces of words (unigram)", "bpe": "pieces of words (BPE)", "char": "letters", "word": "words"}


PartConfig = TransformerConfig | RnnConfig | ImageEncoderConfig
"""The settings of an encoder or a decoder."""


def config_in_words(config: PartConfig) -> str:
    """An encoder or a decoder of any kind, in a few words."""
    if isinstance(config, TransformerConfig):
        words = _transformer(config)
    elif isinstance(config, TransducerConfig):
        words = _transducer(config)
    elif isinstance(config, HardAttentionBase):
        words = _hard(config)
    elif isinstance(config, RnnConfig):
        words = _rnn(config)
    else:
        words = _image(config)
    return ", ".join(words)


def part_kind(part: nn.Module, config: PartConfig) -> str:
    """The kind of an encoder or decoder; the name of a class of the user's own, which no settings describe."""
    return str(config.kind) if _is_built_in(part) else type(part).__name__


def parts_in_words(encoder: nn.Module, decoder: nn.Module, recipe: Any) -> dict[str, str]:
    """Both parts of a model in a few words."""
    parts = {"encoder": (encoder, recipe.encoder), "decoder": (decoder, recipe.decoder)}
    return {
        name: config_in_words(config) if _is_built_in(part) else type(part).__name__
        for name, (part, config) in parts.items()
    }


def _is_built_in(part: nn.Module) -> bool:
    return type(part).__module__.startswith("jumok.")


def network_in_words(config: GatConfig) -> str:
    """A graph network."""
    name = {"gat": "GAT", "gatv2": "GATv2", "supergat": "SuperGAT"}[config.kind]
    read = "classifies nodes" if not config.pooling else f"classifies graphs, {config.pooling} of their nodes"
    sizes = f"{count(config.layers, 'layer')}, {config.width} wide, {count(config.heads, 'head')}"
    return f"graph attention ({name}), {sizes}, {read}"


def tokenizer_in_words(config: OneSidedTokenizer, tokenizer: Tokenizer) -> str:
    """How text is cut, and what is done to it before."""
    forms = sorted({config.normaliser("source").form, config.normaliser("target").form})
    words = [PIECES[config.kind], f"Unicode form {' and '.join(forms)}"]
    words += ["lower case"] if config.lowercase else []
    words += ["numbers cut into digits"] if tokenizer.splits_digits and config.kind not in ("char", "word") else []
    words += ["unknown letters as bytes"] if config.byte_fallback else []
    return ", ".join(words)


def _transformer(config: TransformerConfig) -> list[str]:
    positions = {"added": "sinusoidal positions added", "concatenated": "sinusoidal positions concatenated"}
    return [
        f"Transformer, {count(config.layers, 'layer')}",
        f"{config.width} wide",
        count(config.heads, "head"),
        f"feed-forward {config.hidden} wide",
        positions.get(config.positions, f"{config.positions} positions"),
        f"{config.norm}-norm",
        *(["copy"] if isinstance(config, Tying) and config.copy else []),
        *_tied(config),
    ]


def _rnn(config: RnnConfig) -> list[str]:
    both = "bidirectional " if isinstance(config, RnnEncoderConfig) and config.bidirectional else ""
    words = [f"{both}{_cell(config.cell)}, {count(config.layers, 'layer')}", f"{config.width} wide"]
    words.append(f"embeddings {config.embedding} wide")
    if isinstance(config, RnnDecoderBase):
        words.append(SCORES.get(config.attention, f"Luong's attention ({config.attention}, {config.reach})"))
        words += [name.replace("_", " ") for name in ("input_feeding", "coverage", "copy") if getattr(config, name)]
    return [*words, *_tied(config)]


def _transducer(config: TransducerConfig) -> list[str]:
    words = [f"transducer that edits the source, {_cell(config.cell)}, {count(config.layers, 'layer')}"]
    words += [f"{config.width} wide", f"embeddings {config.embedding} wide"]
    return words + ["copy"] * config.copy


def _hard(config: HardAttentionBase) -> list[str]:
    kind = "monotonic hard attention" if config.order else "hard attention"
    words = [f"{kind}, {_cell(config.cell)}, {count(config.layers, 'layer')}"]
    words += [f"{config.width} wide", f"embeddings {config.embedding} wide"]
    return words + ["copy"] * config.copy


def _image(config: ImageEncoderConfig) -> list[str]:
    if not isinstance(config, GridEncoderConfig):
        return [f"{config.kind} of an image", f"{config.width} wide"]
    own = f"residual network of {count(sum(config.blocks), 'block')}, {config.channels} channels and up"
    begun = ["begun with pretrained weights"] if config.weights else []
    return [own if config.layout == "own" else config.layout, f"regions {config.width} wide", *begun]


def _cell(cell: str) -> str:
    return {"gru": "GRU", "lstm": "LSTM"}.get(cell, "plain RNN")


def _tied(config: PartConfig) -> list[str]:
    tied = {
        "output": "output tied to its embeddings",
        "embeddings": "embeddings shared with the source",
        "all": "embeddings of both sides and output are one table",
    }
    return [tied[config.tied]] if isinstance(config, Tying) and config.tied in tied else []


def count(number: int, noun: str) -> str:
    """ "1 layer" or "6 layers"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
