"""A translation model as two ONNX graphs, for onnxruntime and everything else that reads them.

    encoder.onnx   source, visible           -> memory…, state…     once for each source
    decoder.onnx   token, memory…, state…    -> scores, state…      once for each token of the output

`scores` are log-probabilities of the next token. The first axis of every state is the batch, so that a beam search
reorders its rows. model.json names the parts; the tokenizers are ordinary sentencepiece models.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from jumok.data import BOS, EOS, PAD, Tokenizer, TokenizerPair
from jumok.errors import ModelError
from jumok.exchange.onnx_graph import HIDDEN, OnnxGraph, onnx
from jumok.exchange.onnx_rnn import RnnStep, rnn_encoder
from jumok.exchange.onnx_transformer import POSITIONS, TransformerStep, transformer_encoder
from jumok.files import atomic_write
from jumok.models.rnn.decoder import RnnDecoder
from jumok.models.rnn.encoder import RnnEncoder
from jumok.models.transformer.config import TransformerConfig
from jumok.models.transformer.decoder import TransformerDecoder
from jumok.models.transformer.encoder import TransformerEncoder
from jumok.tasks.describe import part_kind
from jumok.tasks.translator import TrainedTranslator

ENCODER, DECODER, DESCRIPTION = "encoder.onnx", "decoder.onnx", "model.json"

Step = TransformerStep | RnnStep


class Source(NamedTuple):
    """What a decoder gets of a source, as names in the graph of the encoder."""

    states: str
    """[batch, source, width], zeros at padding."""
    summary: str
    """[batch, width]."""
    bias: str
    """[batch, source], 0 where there is a token and very low at padding."""


def why_not(trained: TrainedTranslator) -> str | None:
    """Why a model has no ONNX graphs; None if it has."""
    encoder, decoder = trained.model.encoder, trained.model.decoder
    if not isinstance(encoder, TransformerEncoder | RnnEncoder):
        return f"an encoder of this kind ({type(encoder).__name__}) has no ONNX graph"
    if not isinstance(decoder, TransformerDecoder | RnnDecoder):
        kind = part_kind(decoder, trained.recipe.decoder)
        return f'decoder.kind = "{kind}" has no ONNX graph; use jumok translate or jumok serve'
    if decoder.config.copy:
        return f"{decoder.config.shown('copy')} has no ONNX graph"
    if isinstance(decoder, TransformerDecoder):
        return None
    config = decoder.config
    if config.reach != "global":
        return f"{config.shown('reach')} has no ONNX graph"
    return f"{config.shown('attention')} has no ONNX graph" if config.attention in ("location", "monotonic") else None


def export_model(trained: TrainedTranslator, folder: str | Path) -> None:
    """Write the graphs, their description and the tokenizers; a ModelError for a model that has none."""
    onnx()
    if (reason := why_not(trained)) is not None:
        raise ModelError(reason)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    decoder = trained.model.decoder
    step = TransformerStep(decoder) if isinstance(decoder, TransformerDecoder) else RnnStep(cast(RnnDecoder, decoder))
    _encoder_graph(trained, step).save(folder / ENCODER)
    _decoder_graph(step).save(folder / DECODER)
    files = {DESCRIPTION: json.dumps(_description(trained, step), indent=1).encode(), **trained.tokenizers.files()}
    for name, content in files.items():
        with atomic_write(folder / name) as file:
            file.write(content)


def _encoder_graph(trained: TrainedTranslator, step: Step) -> OnnxGraph:
    g = OnnxGraph("encoder")
    source, visible = (
        g.input("source", "batch", "source", type="INT64"),
        g.input("visible", "batch", "source", type="BOOL"),
    )
    encoder = trained.model.encoder
    if isinstance(encoder, TransformerEncoder) and not encoder.config.sees_end:
        visible = g("And", visible, g("Not", g("Equal", source, g.weight(torch.tensor(EOS)))))
    bias = g("Where", visible, g.number(0.0), g.number(HIDDEN))
    if isinstance(encoder, TransformerEncoder):
        states, summary = transformer_encoder(g, encoder, source, visible, bias)
    else:
        states, summary = rnn_encoder(g, cast(RnnEncoder, encoder), source, visible)
    for part, value in step.prepare(g, Source(states, summary, bias)).items():
        g.output(part, value, *step.axes(part))
    return g


def _decoder_graph(step: Step) -> OnnxGraph:
    g = OnnxGraph("decoder")
    token = g.input("token", "batch", type="INT64")
    parts = {part: g.input(part, *step.axes(part)) for part in (*step.memory, *step.states)}
    logits, after = step.step(g, token, parts)
    never = g.weight(step.never)
    g.output("scores", g("Add", g("LogSoftmax", logits, axis=-1), never), "batch", step.vocabulary)
    for part in step.states:
        g.output(f"next_{part}", after[part], *step.axes(part, after=True))
    return g


def _description(trained: TrainedTranslator, step: Step) -> dict[str, Any]:
    tokenizers, decoding = trained.tokenizers, trained.recipe.decoding
    parts = (trained.recipe.encoder, trained.recipe.decoder)
    limits = [part.limit or POSITIONS for part in parts if isinstance(part, TransformerConfig)]
    return {
        "memory": list(step.memory),
        "state": list(step.states),
        "pad": PAD,
        "bos": BOS,
        "eos": EOS,
        "first": _first(tokenizers.target),
        "source_first": _first(tokenizers.source),
        "symbols": _symbols(tokenizers),
        "beam": decoding.beam,
        "length_penalty": decoding.length_penalty,
        "max_length": min([decoding.max_length, *(limit - 1 for limit in limits)]),
        "tokenizers": list(tokenizers.files()),
        "normalisation": {
            side: {"form": tokenizer.normaliser.form, "spaces": tokenizer.normaliser.spaces}
            for side, tokenizer in zip(("source", "target"), tokenizers, strict=True)
        },
    }


def _symbols(tokenizers: TokenizerPair) -> dict[str, int]:
    """The ids of tags and features."""
    pieces = tokenizers.source.pieces
    return {name: pieces.index(name) for name in sorted({*tokenizers.source.symbols.all, *tokenizers.tags})}


def _first(tokenizer: Tokenizer) -> int | None:
    """The id of the language that every text begins with, if there is one."""
    return tokenizer.language_ids[0] if tokenizer.language_ids else None
