"""Checkpoints of OpenNMT-py 3 (Klein et al. 2017): one file with model, generator, vocabularies and options.

Its Transformers have our equations, without the end of the source and often without biases in attention. A checkpoint
holds the vocabularies, but not what cuts texts into their tokens: that is a sentencepiece model given beside it, or
texts come already cut, with spaces between the tokens.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jumok.errors import DataError
from jumok.exchange.checkpoints import (
    ForeignModel,
    SideVocabulary,
    SpecialNames,
    read_pieces,
    read_torch_checkpoint,
    refuse,
    renamed,
)
from jumok.exchange.m2m100 import sinusoids_in_halves
from jumok.tasks.translator import TrainedTranslator

SIDES = r"(encoder|decoder)\.transformer(?:_layers)?\.(\d+)\."
PARTS = {"query": "to_query", "keys": "to_key", "values": "to_value"}
RULES = [
    *((rf"{SIDES}self_attn\.linear_{name}\.(.+)", rf"\1.layers.\2.own.{ours}.\3") for name, ours in PARTS.items()),
    *((rf"{SIDES}context_attn\.linear_{name}\.(.+)", rf"\1.layers.\2.cross.{ours}.\3") for name, ours in PARTS.items()),
    (SIDES + r"self_attn\.final_linear\.(.+)", r"\1.layers.\2.own.to_output.\3"),
    (SIDES + r"context_attn\.final_linear\.(.+)", r"\1.layers.\2.cross.to_output.\3"),
    (SIDES + r"layer_norm(?:_1)?\.(.+)", r"\1.layers.\2.around_own.norm.\3"),
    (SIDES + r"layer_norm_2\.(.+)", r"\1.layers.\2.around_cross.norm.\3"),
    (SIDES + r"feed_forward\.layer_norm\.(.+)", r"\1.layers.\2.around_feed.norm.\3"),
    (SIDES + r"feed_forward\.w_2\.(.+)", r"\1.layers.\2.feed.to_output.\3"),
    (r"(encoder|decoder)\.layer_norm\.(.+)", r"\1.norm.\2"),
]
"""Names of weights there and here."""
PLAIN = [(SIDES + r"feed_forward\.w_1\.(.+)", r"\1.layers.\2.feed.to_hidden.\3")]
GATED = [
    (SIDES + r"feed_forward\.w_1\.(.+)", r"\1.layers.\2.feed.to_gate.\3"),
    (SIDES + r"feed_forward\.w_3\.(.+)", r"\1.layers.\2.feed.to_hidden.\3"),
]
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swiglu"}
SPECIALS = SpecialNames(pad="<blank>", bos="<s>", eos="</s>", unk="<unk>")
EMBEDDING = "{}.embeddings.make_embedding.emb_luts.0.weight"
LONGEST = 5000
"""Positions of its tables."""


def read_opennmt(path: Path, tokenizer: str | Path | None = None) -> TrainedTranslator:
    """The model in a checkpoint; `tokenizer` is the sentencepiece model that its texts were cut with, if any."""
    checkpoint = read_torch_checkpoint(path)
    options = vars(checkpoint["opt"]) if hasattr(checkpoint.get("opt"), "__dict__") else {}
    parts: list[Any] = [checkpoint.get(name) for name in ("model", "generator", "vocab")]
    if not options or not all(isinstance(part, dict) for part in parts):
        fairseq = " but of fairseq, whose models are not read" if checkpoint.keys() & {"args", "cfg"} else ""
        raise DataError(
            f"{path} is not a checkpoint of OpenNMT-py{fairseq}: it must have model, generator, vocab and opt; a model "
            "of another toolkit is a folder, such as one of Hugging Face: name it instead"
        )
    model, generator, vocabularies = parts
    if not all(isinstance(vocabularies.get(side), list) for side in ("src", "tgt")):
        raise DataError(
            f"{path} was written by OpenNMT-py before version 3, which jumok cannot read; convert it with OpenNMT-py 3"
        )
    _check_kind(path, options)
    refuse(path, _unknown(options, model))
    source, target = (model[EMBEDDING.format(side)] for side in ("encoder", "decoder"))
    output = generator["weight"]
    if options.get("share_embeddings") or (source.shape == target.shape and torch.equal(source, target)):
        target = source
    if options.get("share_decoder_embeddings") or (output.shape == target.shape and torch.equal(output, target)):
        output = target
    cut = None if tokenizer is None else read_pieces(tokenizer, path.parent)
    settings = {side: _settings(options, side) for side in ("encoder", "decoder")}
    return ForeignModel(
        path=path,
        settings={**settings, "decoding": {}, "filter": {}},
        layers=_layers(model, options),
        source=source,
        target=target,
        output=output,
        bias=generator.get("bias", torch.zeros(len(output))),
        is_scaled=True,
        sides=(SideVocabulary(vocabularies["src"], cut), SideVocabulary(vocabularies["tgt"], cut)),
        specials=SPECIALS._replace(bos=vocabularies.get("decoder_start_token") or SPECIALS.bos),
    ).trained()


def _check_kind(path: Path, options: Mapping[str, Any]) -> None:
    """Raise a DataError for recurrent models, with the reason."""
    if {options.get("encoder_type"), options.get("decoder_type")} & {"rnn", "brnn", "ggnn", "mean", "cnn"}:
        raise DataError(
            f"{path} has an encoder of type {options.get('encoder_type')} and a decoder of type "
            f"{options.get('decoder_type')}; only Transformers of OpenNMT-py can be imported, because its other "
            "decoders start from the last states of all encoder layers, and those of jumok from tanh(W h)"
        )


def _unknown(options: Mapping[str, Any], model: Mapping[str, Tensor]) -> list[str]:
    """The settings without a counterpart here."""
    wanted = {
        "encoder_type": ("transformer",),
        "decoder_type": ("transformer",),
        "position_encoding": (True,),
        "position_encoding_type": ("SinusoidalInterleaved", "SinusoidalConcat", None),
        "max_relative_positions": (0, None),
        "layer_norm": ("standard", None),
        "parallel_residual": (False, None),
        "copy_attn": (False, None),
        "num_experts": (0, None),
        "self_attn_type": ("scaled-dot", "scaled-dot-flash", None),
        "pos_ffn_activation_fn": tuple(ACTIVATIONS),
        "n_src_feats": (0, None),
    }
    unknown = [f"{name} = {options.get(name)!r}" for name, known in wanted.items() if options.get(name) not in known]
    if EMBEDDING.format("encoder") not in model or any("lora" in name for name in model):
        unknown.append("other layers than those of a Transformer")
    return unknown


def _settings(options: Mapping[str, Any], side: str) -> dict[str, Any]:
    short = side[:3]
    width, heads = int(options[f"{short}_hid_size"]), int(options["heads"])
    interleaved = options.get("position_encoding_type", "SinusoidalInterleaved") != "SinusoidalConcat"
    return {
        "kind": "transformer",
        "width": width,
        "layers": int(options[f"{short}_layers"]),
        "heads": heads,
        "key_heads": int(options.get("num_kv") or heads),
        "hidden": int(options["transformer_ff"]),
        "norm": "pre",
        **({"positions": "added"} if interleaved else {"positions": "learned", "longest": LONGEST}),
        "activation": ACTIVATIONS[options["pos_ffn_activation_fn"]],
        "dropout": _one(options.get("dropout", 0.0)),
        "attention_dropout": _one(options.get("attention_dropout", 0.0)),
        **({"sees_end": False} if side == "encoder" else {}),
    }


def _layers(model: Mapping[str, Tensor], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of all layers, with zeros for biases that they lack."""
    gated = options["pos_ffn_activation_fn"] == "silu"
    layers = renamed(model, [*RULES, *(GATED if gated else PLAIN)])
    for name, tensor in list(layers.items()):
        if name.endswith(".weight") and tensor.dim() == 2:
            layers.setdefault(name.removesuffix("weight") + "bias", tensor.new_zeros(len(tensor)))
    if options.get("position_encoding_type") == "SinusoidalConcat":
        for side in ("encoder", "decoder"):
            width = int(options[f"{side[:3]}_hid_size"])
            layers[f"{side}.tokens.positions.table"] = sinusoids_in_halves(torch.arange(LONGEST), width)
    return layers


def _one(dropout: Any) -> float:
    return float(dropout[0] if isinstance(dropout, list) else dropout)
