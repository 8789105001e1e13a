"""Hugging Face folders of Marian models, such as OPUS-MT, as translation models of ours.

A Marian model is the Transformer of Vaswani et al. (2017) with normalisation after each sublayer, so every weight has
its place here. Two things differ. Marian writes all sines of a position before all cosines, where our `sinusoids`
alternate: the vectors between the layers are put into our order, which changes no result. And its decoder starts from
the padding token, which becomes our BOS.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.data.subwords import BOS, EOS, PAD, SPECIALS, UNK
from jumok.data.tokenizer import MOST_BYTES, TokenizerPair
from jumok.errors import DataError
from jumok.exchange.sentencepiece_model import make_tokenizer, missing_pieces, read_model
from jumok.files import parse_json, read_plain
from jumok.models.config import Tied
from jumok.models.weights import load_weights, read_tensors
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.translator import TrainedTranslator

CONFIG, VOCABULARY, TARGET_VOCABULARY = "config.json", "vocab.json", "target_vocab.json"
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
IMPOSSIBLE = -1e9
"""The bias of a token that must never be written, as Marian itself writes it."""

ATTENTION = {"q_proj": "to_query", "k_proj": "to_key", "v_proj": "to_value", "out_proj": "to_output"}
BLOCKS = {"self_attn": "own", "encoder_attn": "cross"}
NORMS = {
    "self_attn_layer_norm": "around_own.norm",
    "encoder_attn_layer_norm": "around_cross.norm",
    "final_layer_norm": "around_feed.norm",
}
FEED_FORWARD = {"fc1": "feed.to_hidden", "fc2": "feed.to_output"}


class Tables(NamedTuple):
    """Embeddings and output layer, which are the same tensor where they are tied, and all weights."""

    source: Float[Tensor, "source_token width"]
    target: Float[Tensor, "target_token width"]
    output: Float[Tensor, "target_token width"]
    tensors: Mapping[str, Tensor]

    @property
    def tied(self) -> Tied:
        """The setting decoder.tied."""
        if self.target is self.source:
            return "all" if self.output is self.target else "embeddings"
        return "output" if self.output is self.target else "none"


class Vocabulary(NamedTuple):
    """The rows of an embedding, in our order."""

    rows: Int[Tensor, " token"]
    """For each of our ids the id in the other model."""
    is_written: tuple[bool, ...]
    """Whether a model may write the token; not so for copies of the unknown token."""


@dataclass(frozen=True)
class MarianFolder:
    """A folder as `transformers` saves it."""

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> "MarianFolder":
        """Read config.json; a DataError names what can be imported where it is something else."""
        config = _json(Path(path) / CONFIG)
        kind = config.get("model_type")
        if kind != "marian":
            raise DataError(
                f'{path} holds a model of type "{kind}"; `jumok import` reads Marian models ("marian"), such as '
                "Helsinki-NLP/opus-mt-en-de, in the format of Hugging Face"
            )
        if config.get("normalize_before") or config.get("normalize_embedding"):
            raise DataError(f"{path}: Marian models with normalize_before or normalize_embedding are not supported")
        return cls(Path(path), config)

    def trained(self) -> TrainedTranslator:
        """The model with its recipe and its tokenizers."""
        from jumok.tasks import TRANSLATION, make_recipe

        tokenizers, source, target = self._vocabularies()
        tables = self._tables(self._tensors())
        recipe: TranslationRecipe = make_recipe(self._recipe(tokenizers, tables.tied), origin=self.path / CONFIG)
        model = TRANSLATION.build(recipe, tokenizers)
        load_weights(model, self._weights(tables, source, target), self.path)
        return TrainedTranslator(model.eval(), recipe, tokenizers)

    @property
    def separate(self) -> bool:
        """Whether source and target have vocabularies of their own."""
        return not self.config.get("share_encoder_decoder_embeddings", True)

    def _tables(self, tensors: Mapping[str, Tensor]) -> "Tables":
        """The embeddings and the output layer; they are tied where the config says so, and where they are equal."""
        shared = tensors.get("model.shared.weight")
        source = tensors.get("model.encoder.embed_tokens.weight", shared)
        target = tensors.get("model.decoder.embed_tokens.weight", shared)
        if source is None or target is None:
            raise DataError(f"the weights in {self.path} have no embeddings, so they are not those of a Marian model")
        tie = bool(self.config.get("tie_word_embeddings", True))
        output = tensors.get("lm_head.weight", target)
        if not self.separate and (tie or torch.equal(source, target)):
            target = source
        if tie or torch.equal(target, output):
            output = target
        return Tables(source, target, output, tensors)

    def _vocabularies(self) -> tuple[TokenizerPair, Vocabulary, Vocabulary]:
        ids = _numbered(self.path / VOCABULARY)
        target_ids = _numbered(self.path / TARGET_VOCABULARY) if self.separate else ids
        cuts = [read_model(_bytes(self.path / name), self.path / name) for name in (SOURCE_MODEL, TARGET_MODEL)]
        source_pieces, target_pieces = _pieces(ids), _pieces(target_ids)
        missing = [missing_pieces(cut, known) for cut, known in zip(cuts, (ids, target_ids), strict=True)]
        if not self.separate:
            missing = [list(dict.fromkeys(missing[0] + missing[1]))] * 2
        tokenizers = TokenizerPair(
            make_tokenizer(cuts[0], source_pieces + missing[0]), make_tokenizer(cuts[1], target_pieces + missing[1])
        )
        source = self._vocabulary(ids, source_pieces, len(missing[0]))
        return tokenizers, source, self._vocabulary(target_ids, target_pieces, len(missing[1]))

    def _vocabulary(self, ids: Mapping[str, int], pieces: Sequence[str], missing: int) -> Vocabulary:
        start = int(self.config.get("decoder_start_token_id", self.config["pad_token_id"]))
        specials = dict(
            zip((PAD, BOS, EOS, UNK), (self.config["pad_token_id"], start, ids["</s>"], ids["<unk>"]), strict=True)
        )
        rows = [*(specials[id] for id in range(SPECIALS)), *(ids[piece] for piece in pieces), *[ids["<unk>"]] * missing]
        return Vocabulary(torch.tensor(rows), (*[True] * (len(rows) - missing), *[False] * missing))

    def _recipe(self, tokenizers: TokenizerPair, tied: Tied) -> dict[str, Any]:
        config = self.config
        activation = ACTIVATIONS.get(config.get("activation_function", "gelu"))
        if activation is None:
            raise DataError(
                f'{self.path / CONFIG} has activation_function = "{config["activation_function"]}"; '
                f"{', '.join(ACTIVATIONS)} are supported"
            )

        def side(name: str) -> dict[str, Any]:
            return {
                "kind": "transformer",
                "width": config["d_model"],
                "layers": config[f"{name}_layers"],
                "heads": config[f"{name}_attention_heads"],
                "hidden": config[f"{name}_ffn_dim"],
                "norm": "post",
                "positions": "added",
                "activation": activation,
                "dropout": float(config.get("dropout", 0.1)),
                "attention_dropout": float(config.get("attention_dropout", 0.0)),
                "activation_dropout": float(config.get("activation_dropout", 0.0)),
            }

        longest = int(config.get("max_position_embeddings", 512))
        return {
            "data": {"imported": self.path.resolve().name},
            "tokenizer": {
                "kind": tokenizers.source.kind,
                "size": tokenizers.target.size,
                "shared": tokenizers.shared,
                "source_form": "none",
                "target_form": "none",
                "spaces": "keep",
            },
            "encoder": side("encoder"),
            "decoder": side("decoder") | {"tied": tied},
            "decoding": {"max_length": longest - 1, "max_source": longest - 1, **self._search_settings()},
        }

    def _search_settings(self) -> dict[str, Any]:
        path = self.path / "generation_config.json"
        saved = {**self.config, **(_json(path) if path.exists() else {})}
        beam, penalty = saved.get("num_beams"), saved.get("length_penalty")
        return {"beam": int(beam or 4), "length_penalty": float(1.0 if penalty is None else penalty)}

    def _weights(self, tables: Tables, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
        order = alternating(int(self.config["d_model"]))
        weights = dict(_layers(tables.tensors, order))
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
        weights["decoder.output.bias"] = self._output_bias(tables.tensors, target)
        return weights

    def _output_bias(self, tensors: Mapping[str, Tensor], target: Vocabulary) -> Float[Tensor, " token"]:
        bias = tensors.get("final_logits_bias")
        bias = torch.zeros(int(target.rows.max()) + 1) if bias is None else bias.flatten()
        written = torch.tensor(target.is_written)
        return bias[target.rows].masked_fill(~written, IMPOSSIBLE)

    def _tensors(self) -> dict[str, Tensor]:
        safe, pickled = (self.path / name for name in WEIGHTS)
        if safe.exists():
            return {name: tensor.float() for name, tensor in read_tensors(safe).items()}
        if not pickled.exists():
            raise DataError(f"{self.path} has neither {safe.name} nor {pickled.name}; copy the whole folder")
        try:
            tensors = torch.load(pickled, map_location="cpu", weights_only=True)  # runs no code of the file
        except Exception as error:
            raise DataError(f"{pickled} cannot be read as plain weights ({type(error).__name__})") from None
        return {name: tensor.float() for name, tensor in dict(tensors).items() if isinstance(tensor, Tensor)}


def alternating(width: int) -> Int[Tensor, " width"]:
    """Where the numbers of an alternating sinusoid, sin cos sin cos …, are in Marian's: all sines, then all cosines."""
    order = torch.empty(width, dtype=torch.long)
    sines = (width + 1) // 2
    order[0::2], order[1::2] = torch.arange(sines), torch.arange(sines, width)
    return order


def _layers(tensors: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The weights of all layers under our names; what reads or writes the vectors between them is put into `order`."""
    for name, tensor in tensors.items():
        match name.split("."):
            case ["model", ("encoder" | "decoder") as side, "layers", number, block, projection, part] if (
                block in BLOCKS and projection in ATTENTION
            ):
                ours = f"{BLOCKS[block]}.{ATTENTION[projection]}"
                writes = projection == "out_proj"
            case ["model", ("encoder" | "decoder") as side, "layers", number, block, part] if block in NORMS:
                ours, writes = NORMS[block], True
            case ["model", ("encoder" | "decoder") as side, "layers", number, block, part] if block in FEED_FORWARD:
                ours, writes = FEED_FORWARD[block], block == "fc2"
            case _:
                continue
        if writes:
            tensor = tensor[order]
        elif tensor.dim() == 2:
            tensor = tensor[:, order]
        yield f"{side}.layers.{number}.{ours}.{part}", tensor.contiguous()


def _bytes(path: Path) -> bytes:
    if not path.exists():
        raise DataError(f"{path.parent} is not a whole Marian model: {path.name} is missing; copy the whole folder")
    return read_plain(path, most=MOST_BYTES)


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise DataError(
            f"{path.parent} is not a model folder of Hugging Face: {path.name} is missing; give the folder that "
            "`save_pretrained` or a download of the model has written"
        )
    try:
        content = parse_json(read_plain(path, most=MOST_BYTES))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: it is not a JSON object")
    return content


def _numbered(path: Path) -> dict[str, int]:
    _bytes(path)
    ids = _json(path)
    if not all(type(id) is int and id >= 0 for id in ids.values()) or not {"</s>", "<unk>"} <= ids.keys():
        raise DataError(f"{path} is not a vocabulary: it must give pieces their ids, </s> and <unk> among them")
    return ids


def _pieces(ids: Mapping[str, int]) -> list[str]:
    """The pieces of a vocabulary by id, without those that become our special tokens."""
    specials = {"</s>", "<unk>", "<pad>"}
    return [piece for piece, _ in sorted(ids.items(), key=lambda item: item[1]) if piece not in specials]
