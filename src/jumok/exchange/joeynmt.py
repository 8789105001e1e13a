"""Models of JoeyNMT (Kreutzer et al. 2019): a folder with config.yaml, vocabularies and a checkpoint.

Its Transformer has our equations, and so has its recurrent model but for a bias: see `joeynmt_recurrent`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from jumok.errors import DataError, MissingExtraError
from jumok.exchange.checkpoints import (
    ForeignModel,
    SideVocabulary,
    SpecialNames,
    read_pieces,
    read_torch_checkpoint,
    refuse,
    renamed,
)
from jumok.exchange.hugging_face import ACTIVATIONS
from jumok.exchange.joeynmt_recurrent import check_recurrent, recurrent_layers, recurrent_settings
from jumok.files import read_plain
from jumok.tasks.translator import TrainedTranslator

CONFIG = "config.yaml"
CHECKPOINTS = ("best.ckpt", "latest.ckpt")
MOST_BYTES = 64 * 2**20
SIDES = r"(encoder|decoder)\.layers\.(\d+)\."
RULES = [
    (SIDES + r"(?:src_src|trg_trg)_att\.q_layer\.(.+)", r"\1.layers.\2.own.to_query.\3"),
    (SIDES + r"(?:src_src|trg_trg)_att\.k_layer\.(.+)", r"\1.layers.\2.own.to_key.\3"),
    (SIDES + r"(?:src_src|trg_trg)_att\.v_layer\.(.+)", r"\1.layers.\2.own.to_value.\3"),
    (SIDES + r"(?:src_src|trg_trg)_att\.output_layer\.(.+)", r"\1.layers.\2.own.to_output.\3"),
    (SIDES + r"src_trg_att\.q_layer\.(.+)", r"\1.layers.\2.cross.to_query.\3"),
    (SIDES + r"src_trg_att\.k_layer\.(.+)", r"\1.layers.\2.cross.to_key.\3"),
    (SIDES + r"src_trg_att\.v_layer\.(.+)", r"\1.layers.\2.cross.to_value.\3"),
    (SIDES + r"src_trg_att\.output_layer\.(.+)", r"\1.layers.\2.cross.to_output.\3"),
    (SIDES + r"(?:x_)?layer_norm\.(.+)", r"\1.layers.\2.around_own.norm.\3"),
    (SIDES + r"dec_layer_norm\.(.+)", r"\1.layers.\2.around_cross.norm.\3"),
    (SIDES + r"feed_forward\.layer_norm\.(.+)", r"\1.layers.\2.around_feed.norm.\3"),
    (SIDES + r"feed_forward\.pwff_layer\.0\.(.+)", r"\1.layers.\2.feed.to_hidden.\3"),
    (SIDES + r"feed_forward\.pwff_layer\.3\.(.+)", r"\1.layers.\2.feed.to_output.\3"),
    (r"(encoder|decoder)\.layer_norm\.(.+)", r"\1.norm.\2"),
]
"""Names of weights there and here."""


def read_joeynmt(path: Path) -> TrainedTranslator:
    """The model in a folder, or that of one of its checkpoints."""
    folder = path if path.is_dir() else path.parent
    config = _yaml(folder / CONFIG)
    model, data = config["model"], config["data"]
    is_recurrent = _is_recurrent(folder, model)
    state = read_torch_checkpoint(_checkpoint(path)).get("model_state")
    if not isinstance(state, dict) or "src_embed.lut.weight" not in state:
        raise DataError(f"{path} is not a checkpoint of JoeyNMT: it has no model_state with embeddings")
    source = state["src_embed.lut.weight"]
    target = source if model.get("tied_embeddings") else state["trg_embed.lut.weight"]
    output = target if model.get("tied_softmax") else state["decoder.output_layer.weight"]
    scales = {bool(model[side]["embeddings"].get("scale")) for side in ("encoder", "decoder")}
    refuse(folder, ["embeddings scaled on one side only"] if len(scales) > 1 else [])
    if is_recurrent:  # ours multiply a table by √width only where it is the output layer as well
        factor = model["encoder"]["embeddings"]["embedding_dim"] ** 0.5 if scales == {True} else 1.0
        shared, ties = target is source, output is target and scales == {True}
        source = source if shared and ties else source * factor
        target, output = (target, output) if ties else (source if shared else target * factor, output.clone())
        sections, layers = recurrent_settings(model), recurrent_layers(folder, model, state)
    else:
        sections = {side: _settings(folder, side, model[side], state) for side in ("encoder", "decoder")}
        layers = renamed(state, RULES)
    symbols = _symbols(data)
    sides = (_side(folder, "src", data, symbols), _side(folder, "trg", data, symbols))
    return ForeignModel(
        path=folder,
        settings={**sections, "decoding": _decoding(config.get("testing") or {})},
        layers=layers,
        source=source,
        target=target,
        output=output,
        bias=torch.zeros(len(output)),
        is_scaled=is_recurrent or scales == {True},
        sides=sides,
        specials=symbols,
    ).trained()


def _is_recurrent(folder: Path, model: Mapping[str, Any]) -> bool:
    """Whether both sides are recurrent rather than Transformers; a DataError for what cannot be imported."""
    sides = (model["encoder"], model["decoder"])
    kinds = [side.get("type") or ("recurrent" if "rnn_type" in side else "transformer") for side in sides]
    if kinds == ["recurrent", "recurrent"]:
        check_recurrent(folder, model)
        return True
    if kinds != ["transformer", "transformer"]:
        raise DataError(
            f'{folder}: the encoder is "{kinds[0]}" and the decoder "{kinds[1]}"; of JoeyNMT\'s models, those with '
            "two Transformers or two recurrent networks can be imported"
        )
    for side in ("encoder", "decoder"):
        refuse(folder, [f"alpha = {model[side]['alpha']}"] if float(model[side].get("alpha", 1.0)) != 1.0 else [])
    return False


def _settings(folder: Path, side: str, part: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    norm = "pre" if f"{side}.layer_norm.weight" in state else "post"  # versions before 2 name none, and have it
    refuse(folder, ['layer_norm = "pre" without a last one'] if norm != part.get("layer_norm", norm) else [])
    activation = str(part.get("activation", "relu"))
    refuse(folder, [f'activation = "{activation}"'] if activation not in ACTIVATIONS else [])
    return {
        "kind": "transformer",
        "width": part["hidden_size"],
        "layers": part["num_layers"],
        "heads": part["num_heads"],
        "hidden": part["ff_size"],
        "norm": norm,
        "positions": "added",
        "activation": ACTIVATIONS[activation],
        "dropout": float(part.get("dropout", 0.0)),
        "attention_dropout": float(part.get("dropout", 0.0)),
        "activation_dropout": float(part.get("dropout", 0.0)),
    }


def _decoding(testing: Mapping[str, Any]) -> dict[str, Any]:
    """Its beam; its penalty ((5 + n) / 6) ^ alpha is not ours, but 0 means the same in both."""
    alpha = float(testing.get("beam_alpha", testing.get("alpha", -1)))
    length = testing.get("max_output_length") or 256
    return {"beam": int(testing.get("beam_size") or 5), "length_penalty": max(alpha, 0.0), "max_length": int(length)}


def _symbols(data: Mapping[str, Any]) -> SpecialNames:
    names = data.get("special_symbols") or {}
    default = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    return SpecialNames(**{name: str(names.get(f"{name}_token", token)) for name, token in default.items()})


def _side(folder: Path, name: str, data: Mapping[str, Any], symbols: SpecialNames) -> SideVocabulary:
    """Texts are cut by sentencepiece, or at spaces: into words, or into the pieces that another program has made."""
    part = data[name] if isinstance(data[name], dict) else {}  # before version 2, the name of a language
    listed = _lines(folder, f"{name}_vocab.txt", part.get("voc_file"))
    tags = [str(tag) for tag in (data.get("special_symbols") or {}).get("lang_tags") or ()]
    first = [symbols.unk, symbols.pad, symbols.bos, symbols.eos, *tags]
    tokens = list(dict.fromkeys([*(token for token in first if token not in listed), *listed]))
    lowercase = bool(part.get("lowercase", data.get("lowercase", False)))
    level = part.get("level", data.get("level", "word"))
    if level == "char":
        raise DataError(f"{folder}: character-level models cannot be imported; word-level and sentencepiece models can")
    if part.get("tokenizer_type") != "sentencepiece":
        return SideVocabulary(tokens, lowercase=lowercase)
    return SideVocabulary(tokens, read_pieces(part["tokenizer_cfg"]["model_file"], folder), lowercase)


def _lines(folder: Path, name: str, named: str | None) -> list[str]:
    places = [folder / name, *([Path(named), folder / Path(named).name] if named else [])]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise DataError(f"{folder} is not a complete model of JoeyNMT: {name} is missing; copy the whole folder")
    return read_plain(file, most=MOST_BYTES).decode().rstrip("\n").split("\n")


def _checkpoint(path: Path) -> Path:
    if path.is_file():
        return path
    numbered = sorted(path.glob("*.ckpt"), key=lambda file: int(file.stem) if file.stem.isdecimal() else -1)
    for file in [*(path / name for name in CHECKPOINTS), *reversed(numbered)]:
        if file.exists():
            return file
    raise DataError(f"{path} has {CONFIG}, but no checkpoint of JoeyNMT, such as {CHECKPOINTS[0]}")


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("PyYAML", "joeynmt", "importing models of JoeyNMT") from None
    try:
        config = yaml.safe_load(read_plain(path, most=MOST_BYTES))
    except yaml.YAMLError:
        config = None
    if not isinstance(config, dict) or not all(isinstance(config.get(name), dict) for name in ("model", "data")):
        raise DataError(f"{path} is not a config of JoeyNMT: it must have sections model and data")
    return config
