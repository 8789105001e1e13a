"""A Transformer encoder as CUDA graphs, because launching its kernels takes the host longer than the GPU takes."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, cast
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
_lock = threading.Lock()
"""Held from writing what a graph reads until what it wrote is copied: all threads share the tensors of a graph."""


def encode(encoder: Callable[..., Encoding], *inputs: Tensor) -> Encoding:
    """encoder(*inputs), from a graph where there is one."""
    if not _has_graphs(encoder, inputs[0]):
        return encoder(*inputs)
    with torch.inference_mode(False), torch.no_grad():
        encoding = _replayed(cast(TransformerEncoder, encoder), *inputs)
        return encoder(*inputs) if encoding is None else encoding


def _has_graphs(encoder: object, source: Tensor) -> bool:
    if type(encoder) is not TransformerEncoder or not source.is_cuda or not source.numel():
        return False
    return not (encoder.training or is_recorded(encoder) or torch.is_autocast_enabled("cuda"))


def _replayed(encoder: TransformerEncoder, source: Tensor, visible: Tensor) -> Encoding | None:
    """The encoding by the graph of this shape; None if it cannot be recorded."""
    (rows, items), limit = source.shape, encoder.limit
    length = rounded(items, least=16)
    shape = rounded(rows, least=1), length if limit is None else max(items, min(length, limit))
    padding = (0, shape[1] - items, 0, shape[0] - rows)
    source, visible = F.pad(source, padding), F.pad(visible, padding)
    with _lock:
        graphs = _graphs.setdefault(encoder, OrderedDict())
        graph = graphs[shape] if shape in graphs else _record(encoder, source, visible)
        graphs[shape] = graph
        graphs.move_to_end(shape)
        if len(graphs) > MOST_GRAPHS:
            graphs.popitem(last=False)
        if graph is None:
            return None
        graph.source.copy_(source)
        graph.visible.copy_(visible)
        graph.graph.replay()
        states, visible, summary, tokens = graph.encoding
        assert tokens is not None
        parts = states[:rows, :items], visible[:rows, :items], summary[:rows], tokens[:rows, :items]
        return Encoding(*(part.clone() for part in parts))


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
