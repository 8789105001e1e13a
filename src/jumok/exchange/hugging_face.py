"""What the model folders of Hugging Face share: their files, and the names of the weights in a Transformer.

Models of one family, that of BART, have the same names: Marian, M2M-100, Pegasus and Blenderbot among them.
"""

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.data.tokenizer import MOST_BYTES
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.errors import DataError
from jumok.files import open_plain, parse_json, read_plain
from jumok.models.config import Tied
from jumok.models.weights import read_tensors

CONFIG, GENERATION, VOCABULARY = "config.json", "generation_config.json", "vocab.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
UNLIKE = f"check the sizes and the numbers of layers in {CONFIG}, which must fit these weights"
"""What to do where weights do not fit."""
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
COUNTS = ("max_position_embeddings", "num_beams", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
SIZES = (
    "d_model",
    *(f"{side}_{of}" for side in ("encoder", "decoder") for of in ("layers", "attention_heads", "ffn_dim")),
)
NUMBERS = ("dropout", "attention_dropout", "activation_dropout", "length_penalty")
"""Fields of a config that are whole numbers from 0, those from 1, and those that are numbers."""
RECOMMENDED = ("num_beams", "length_penalty", "forced_bos_token_id")
POINTER = b"version https://git-lfs"
"""How the text begins that git-lfs leaves in the place of a file."""
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


class Vocabulary(NamedTuple):
    """The rows of an embedding, in our order."""

    rows: Int[Tensor, " token"]
    """For each of our ids the id in the other model."""
    is_written: tuple[bool, ...]
    """Whether a model may write the token; not so for the beginning and for copies of the unknown token."""


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


def read_embeddings(path: Path, config: Mapping[str, Any], *, separate: bool = False) -> Tables:
    """The embeddings and the output layer; they are tied where the config says so, and where they are equal."""
    tensors = read_weights(path)
    shared = tensors.get("model.shared.weight")
    source = tensors.get("model.encoder.embed_tokens.weight", shared)
    target = tensors.get("model.decoder.embed_tokens.weight", shared)
    if source is None or target is None:
        raise DataError(f"the weights in {path} have no embeddings, so they are not those of a translation model")
    for table in (source, target):
        if table.shape[1:] != (config["d_model"],):
            wrong = f"{path / CONFIG} has d_model = {config['d_model']!r}"
            raise DataError(f"{wrong}, but the embeddings are {list(table.shape)}; copy the whole folder")
    for name, table in (("vocab_size", source), *([("decoder_vocab_size", target)] if separate else [])):
        if config.get(name, len(table)) != len(table):
            wrong = f"{path / CONFIG} has {name} = {config[name]!r}"
            raise DataError(f"{wrong}, but the weights are those of {len(table):,} tokens; copy the whole folder")
    tie = bool(config.get("tie_word_embeddings", True))
    output = tensors.get("lm_head.weight", target)
    if not separate and (tie or torch.equal(source, target)):
        target = source
    if tie or torch.equal(target, output):
        output = target
    return Tables(source, target, output, tensors)


def tokenizer_settings(tokenizers: TokenizerPair) -> dict[str, Any]:
    """The section of a recipe that says what imported tokenizers do."""
    source = tokenizers.source
    return {
        "kind": source.kind,
        "size": tokenizers.target.size,
        "shared": tokenizers.shared,
        "byte_fallback": source.has_bytes,
        "source_form": "none",
        "target_form": "none",
        "spaces": source.normaliser.spaces,
        "lowercase": source.normaliser.lowercase,
        "split_digits": source.splits_digits,
    }


def check_ids(vocabulary: Vocabulary, table: Float[Tensor, "token width"], path: Path) -> None:
    """Raise a DataError if a token of the vocabulary in `path` has no row among the weights."""
    if (largest := int(vocabulary.rows.max())) >= len(table):
        raise DataError(
            f"{path}, or {CONFIG} beside it, has the id {largest:,}, but the weights are those of {len(table):,} "
            "tokens; it belongs to another model"
        )


def output_bias(tensors: Mapping[str, Tensor], target: Vocabulary) -> Float[Tensor, " token"]:
    """The bias of every token, so low for a token that must not be written that its probability is 0."""
    bias = tensors.get("final_logits_bias")
    bias = torch.zeros(int(target.rows.max()) + 1) if bias is None else bias.flatten()
    return bias[target.rows].masked_fill(~torch.tensor(target.is_written), IMPOSSIBLE)


def renamed_layers(tensors: Mapping[str, Tensor], order: Int[Tensor, " width"]) -> Iterator[tuple[str, Tensor]]:
    """The weights of all layers under our names; what reads or writes the vectors between them is put into `order`."""
    for name, tensor in tensors.items():
        match name.split("."):
            case ["model", ("encoder" | "decoder") as side, "layers", number, block, projection, part] if (
                block in BLOCKS and projection in ATTENTION
            ):
                ours, writes = f"layers.{number}.{BLOCKS[block]}.{ATTENTION[projection]}", projection == "out_proj"
            case ["model", ("encoder" | "decoder") as side, "layers", number, block, part] if block in NORMS:
                ours, writes = f"layers.{number}.{NORMS[block]}", True
            case ["model", ("encoder" | "decoder") as side, "layers", number, block, part] if block in FEED_FORWARD:
                ours, writes = f"layers.{number}.{FEED_FORWARD[block]}", block == "fc2"
            case ["model", ("encoder" | "decoder") as side, "layer_norm", part]:
                ours, writes = "norm", True
            case _:
                continue
        if writes:
            tensor = tensor[order]
        elif tensor.dim() == 2:
            tensor = tensor[:, order]
        yield f"{side}.{ours}.{part}", tensor.contiguous()


def side_settings(path: Path, config: Mapping[str, Any], side: str) -> dict[str, Any]:
    """The settings of [encoder] or [decoder] that all these models have."""
    activation = ACTIVATIONS.get(config.get("activation_function", "gelu"))
    if activation is None:
        raise DataError(
            f'{path / CONFIG} has activation_function = "{config["activation_function"]}"; '
            f"{', '.join(ACTIVATIONS)} are supported"
        )
    width, heads = config["d_model"], config[f"{side}_attention_heads"]
    if width % heads:
        raise DataError(f"{path / CONFIG}: {side}_attention_heads = {heads} does not divide d_model = {width}")
    return {
        "kind": "transformer",
        "width": width,
        "layers": config[f"{side}_layers"],
        "heads": heads,
        "hidden": config[f"{side}_ffn_dim"],
        "activation": activation,
        "dropout": float(config.get("dropout", 0.1)),
        "attention_dropout": float(config.get("attention_dropout", 0.0)),
        "activation_dropout": float(config.get("activation_dropout", 0.0)),
    }


def search_settings(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of beam search that the folder recommends."""
    saved = {**config, **read_generation(path)}
    beam, penalty = saved.get("num_beams"), saved.get("length_penalty")
    return {"beam": int(beam or 4), "length_penalty": float(1.0 if penalty is None else penalty)}


def read_weights(path: Path) -> dict[str, Tensor]:
    """All weights in float32, from one file or from the several that an index names."""
    safe, pickled = WEIGHTS
    for name in WEIGHTS:
        read = _read_safe if name == safe else _read_pickled
        if (path / name).exists():
            return read(path / name)
        if (index := path / f"{name}.index.json").exists():
            return {weight: tensor for part in _parts(index) for weight, tensor in read(part).items()}
    raise DataError(f"{path} has neither {safe} nor {pickled}; copy the whole folder")


def _parts(index: Path) -> list[Path]:
    """The files that an index of weights names, which must be beside it."""
    names = read_json(index).get("weight_map")
    files = sorted({str(name) for name in names.values()}) if isinstance(names, dict) else []
    if not files or any(Path(file).name != file for file in files):
        raise DataError(f"{index} is damaged: its weight_map must give every weight the name of a file beside it")
    if lost := next((file for file in files if not (index.parent / file).exists()), None):
        raise DataError(f"{index.parent} is not a complete model: {lost} is missing; copy the whole folder")
    return [index.parent / file for file in files]


def _read_safe(path: Path) -> dict[str, Tensor]:
    _check_is_no_pointer(path)
    return {name: tensor.float() for name, tensor in read_tensors(path, remedy="download it again").items()}


def _read_pickled(path: Path) -> dict[str, Tensor]:
    _check_is_no_pointer(path)
    try:
        with catch_warnings(action="ignore"):  # of a version of pickle that is then read, or refused in one line
            tensors = torch.load(path, map_location="cpu", weights_only=True)  # runs no code of the file
    except Exception:
        raise DataError(
            f"{path} is damaged, or contains code, which jumok does not run; download it again or use {WEIGHTS[0]}"
        ) from None
    return {name: tensor.float() for name, tensor in dict(tensors).items() if isinstance(tensor, Tensor)}


def _check_is_no_pointer(path: Path) -> None:
    """Refuse the few lines that git leaves in the place of a large file."""
    with open_plain(path) as file:
        if file.read(len(POINTER)) == POINTER:
            raise DataError(f"{path} is a git-lfs pointer; run git lfs pull in its folder, or download the file")


def read_bytes(path: Path) -> bytes:
    """The contents of a file that the folder must have."""
    if not path.exists():
        raise DataError(f"{path.parent} is not a complete model: {path.name} is missing; copy the whole folder")
    _check_is_no_pointer(path)
    return read_plain(path, most=MOST_BYTES)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file that the folder must have."""
    content = read_bytes(path)
    try:
        document = parse_json(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise DataError(f"{path} is damaged: it is not a JSON object")
    return document


def read_optional(path: Path) -> dict[str, Any]:
    """The same for an optional file; an empty object if it is missing."""
    return read_json(path) if path.exists() else {}


def read_config(path: Path) -> dict[str, Any]:
    """The config of a folder."""
    return _checked(read_json(path / CONFIG), path / CONFIG)


def read_generation(path: Path) -> dict[str, Any]:
    """How a folder recommends to translate; an empty object if it does not say."""
    content = read_optional(path / GENERATION)
    return _checked({name: content[name] for name in RECOMMENDED if name in content}, path / GENERATION)


def _checked(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same, if its numbers are numbers or null."""
    for name in COUNTS:
        if (value := config.get(name)) is not None and not (type(value) is int and value >= 0):
            raise DataError(f"{path} has {name} = {value!r}, which must be a whole number and not negative")
    for name in SIZES:
        if (value := config.get(name)) is not None and not (type(value) is int and value >= 1):
            raise DataError(f"{path}: {name} must be a whole number of at least 1, but it is {value!r}")
    for name in NUMBERS:
        if (value := config.get(name)) is not None and not (type(value) in (int, float) and -inf < value < inf):
            raise DataError(f"{path} has {name} = {value!r}, which must be a number")
    return config


def read_ids(path: Path) -> dict[str, int]:
    """A vocabulary: pieces and their ids."""
    ids = read_json(path)
    if not all(type(id) is int and id >= 0 for id in ids.values()) or not {"</s>", "<unk>"} <= ids.keys():
        raise DataError(f"{path} is not a vocabulary: it must give pieces their ids, </s> and <unk> among them")
    return ids
