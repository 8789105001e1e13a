"""A Transformer encoder as CUDA graphs, because launching its kernels takes the host longer than the GPU takes."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jumok.decoding.static_search import recorded, rounded
from jumok.layers.recorded import is_recorded
from jumok.models.encoder_decoder import Encoding
from jumok.models.transformer.encoder import TransformerEncoder

MOST_GRAPHS = 24
"""Shapes of batches that are recorded for each encoder."""


class EncoderGraph(NamedTuple):
    """The recorded encoder, and the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    source: Tensor
    visible: Tensor
    encoding: Encoding


Graphs = OrderedDict[tuple[int, int], EncoderGraph | None]
_graphs: "WeakKeyDictionary[nn.Module, Graphs]" = WeakKeyDictionary()


def encode(encoder: Callable[..., Encoding], *inputs: Tensor) -> Encoding:
    """encoder(*inputs); from a graph, it stays valid until the encoder is called again."""
    if not (type(encoder) is TransformerEncoder and inputs[0].is_cuda and inputs[0].numel() and _is_plain(encoder)):
        return encoder(*inputs)
    source, visible = inputs
    (rows, items), limit = source.shape, encoder.limit
    length = rounded(items, least=16)
    shape = rounded(rows, least=1), length if limit is None else max(items, min(length, limit))
    with torch.inference_mode(False), torch.no_grad():
        graphs = _graphs.setdefault(encoder, OrderedDict())
        padding = (0, shape[1] - items, 0, shape[0] - rows)
        source, visible = F.pad(source, padding), F.pad(visible, padding)
        graph = graphs[shape] if shape in graphs else _record(encoder, source, visible)
        graphs[shape] = graph
        graphs.move_to_end(shape)
        if len(graphs) > MOST_GRAPHS:
            graphs.popitem(last=False)
        if graph is None:
            as_written: Encoding = encoder(*inputs)
            return as_written
        graph.source.copy_(source)
        graph.visible.copy_(visible)
        graph.graph.replay()
    states, visible, summary, tokens = graph.encoding
    assert tokens is not None
    return Encoding(states[:rows, :items], visible[:rows, :items], summary[:rows], tokens[:rows, :items])


def _is_plain(encoder: nn.Module) -> bool:
    return not (encoder.training or is_recorded(encoder) or torch.is_autocast_enabled("cuda"))


def _record(encoder: Callable[..., Encoding], source: Tensor, visible: Tensor) -> EncoderGraph | None:
    """None if it cannot be recorded, as with too little memory."""
    source, visible = source.clone(), visible.clone()
    encoder(source, visible)  # kernels are compiled, which cannot happen while they are recorded
    results: list[Any] = []
    stream = torch.cuda.Stream(source.device)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(source.device)
    try:
        with torch.cuda.stream(stream):
            graph = recorded(lambda: results.append(encoder(source, visible)), torch.cuda.graph_pool_handle())
    except (RuntimeError, torch.OutOfMemoryError):
        return None
    return EncoderGraph(graph, source, visible, results[0])
