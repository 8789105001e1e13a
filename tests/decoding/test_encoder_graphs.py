"""Encoders as graphs, with a stand-in for the graphs of a GPU: the tensors that one reads and writes are shared."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from jumok.decoding import encoder_graphs
from jumok.models.encoder_decoder import Encoding
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig


class SlowGraph:
    """Encodes what stands in the tensors, with time for other threads before it and after it."""

    def __init__(self, encoder: Callable[..., Encoding], source: Tensor, visible: Tensor) -> None:
        self.encoder, self.source, self.visible = encoder, source.clone(), visible.clone()
        self.encoding = encoder(source, visible)

    def replay(self) -> None:
        time.sleep(0.001)
        for there, part in zip(self.encoding, self.encoder(self.source, self.visible), strict=True):
            if there is not None and part is not None:
                there.copy_(part)
        time.sleep(0.001)


def slow_record(encoder: Callable[..., Encoding], source: Tensor, visible: Tensor) -> Any:
    graph: Any = SlowGraph(encoder, source, visible)
    return encoder_graphs.EncoderGraph(graph, graph.source, graph.visible, graph.encoding)


def test_threads_that_encode_at_once_get_their_own_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_graphs, "_has_graphs", lambda encoder, source: True)
    monkeypatch.setattr(encoder_graphs, "_record", slow_record)
    config = TransformerEncoderConfig(width=8, heads=2, hidden=8, layers=1, dropout=0.0)
    encoder = TransformerEncoder(config, vocabulary=99).eval()
    sources = [torch.randint(4, 99, (2, 5 + number % 3)) for number in range(40)]

    def encoded(source: Tensor) -> Encoding:
        encoding = encoder_graphs.encode(encoder, source, torch.ones_like(source, dtype=torch.bool))
        time.sleep(0.001)
        return encoding

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(encoded, sources))
    for source, encoding in zip(sources, found, strict=True):
        assert encoding.tokens is not None
        assert torch.equal(encoding.tokens, source)
        with torch.no_grad():
            expected = encoder(source, torch.ones_like(source, dtype=torch.bool))
        torch.testing.assert_close(encoding.states, expected.states)
