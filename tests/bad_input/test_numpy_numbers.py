"""numpy's numbers are taken wherever Python's are; signatures say int, so this runs where they are not checked."""

import numpy as np
import pytest
import torch

from jumok import layers, models
from jumok.attention import attend, causal, from_lengths, gaussian, gaussian_window, scaled_dot, whole, window
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.settings import read_section, write_section

N = np.int64
X = torch.randn(2, 5, 8)
EDGES = torch.tensor([[0, 1], [1, 2]])

LAYERS = {
    "multi-head": lambda: layers.MultiHeadAttention(width=N(8), heads=N(4), key_heads=N(2), key_width=N(8)),
    "additive": lambda: layers.AdditiveAttention(query_width=N(8), key_width=N(8), hidden=N(4)),
    "coverage": lambda: layers.CoverageAttention(query_width=N(8), key_width=N(8), hidden=N(4)),
    "encoder": lambda: layers.EncoderLayer(width=N(8), heads=N(2), hidden=N(8)),
    "decoder": lambda: layers.DecoderLayer(width=N(8), heads=N(2), hidden=N(8), key_width=N(8)),
    "GAT": lambda: layers.GraphAttention(in_width=N(8), out_width=N(4), heads=N(2), edge_width=N(3)),
    "GATv2": lambda: layers.GraphAttentionV2(in_width=N(8), out_width=N(4), heads=N(2)),
    "feed-forward": lambda: layers.FeedForward(width=N(8), hidden=N(4)),
    "embedding": lambda: layers.TokenEmbedding(vocabulary=N(9), width=N(8), padding=N(0)),
    "recurrence": lambda: layers.Recurrence(cell="gru", inputs=N(8), fed=N(0), width=N(4), layers=N(2)),
    "added": lambda: layers.AddedPositions(width=N(8)),
    "concatenated": lambda: layers.ConcatenatedPositions(width=N(8), position_width=N(2)),
    "learned": lambda: layers.LearnedPositions(width=N(8), longest=N(9)),
    "rotary": lambda: layers.RotaryPositions(head_dim=N(8)),
}


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_layers_take_sizes_of_numpy_and_keep_plain_ones(build):
    kept = [value for module in build().modules() for value in vars(module).values()]
    assert not [value for value in kept if isinstance(value, np.generic)]


@pytest.mark.parametrize("reach", ["global", "local-m", "local-p"])
@pytest.mark.parametrize("score", ["dot", "general", "concat", "location"])
def test_luong_attention_takes_a_window_and_a_start_of_numpy(score, reach):
    sizes = {"query_width": N(8), "key_width": N(8), "half_window": N(2), "longest": N(9)}
    layer = layers.LuongAttention(score=score, reach=reach, **sizes)
    assert layer(X, layer.memory(X), start=N(1)).values.shape == (2, 5, 8)


MASKS = {
    "lengths": (lambda: from_lengths(np.array([5, 2])), lambda: from_lengths([5, 2])),
    "causal": (lambda: causal(N(1)), lambda: causal(1)),
    "window": (lambda: window(N(1), N(2), offset=N(1)), lambda: window(1, 2, offset=1)),
    "wide window": (lambda: window(np.float32(1.5)), lambda: window(1.5)),
    "gaussian window": (lambda: gaussian_window(torch.ones(5), N(2)), lambda: gaussian_window(torch.ones(5), 2)),
}


@pytest.mark.parametrize(("found", "wanted"), MASKS.values(), ids=MASKS)
def test_masks_take_numbers_of_numpy(found, wanted):
    torch.testing.assert_close(attend(X, X, X, visible=found()).values, attend(X, X, X, visible=wanted()).values)


def test_attend_and_its_weights_take_numbers_of_numpy():
    weights = attend(X, X, X, dropout=np.float32(0), score=gaussian(N(2))).weights
    torch.testing.assert_close(weights.top_k(N(2)), weights.top_k(2))
    torch.testing.assert_close(weights(rows=np.array([1, 2]), heads=[N(0)]), weights(rows=[1, 2], heads=[0]))
    assert attend(X, X, X, score=scaled_dot(np.float32(2))).values.shape == X.shape
    assert whole(causal(), queries=N(3), keys=N(3), lead=(N(2),)).shape == (2, 3, 3)


@pytest.mark.parametrize("name", ["added", "learned", "rotary"])
def test_positions_start_at_a_number_of_numpy(name):
    layer = LAYERS[name]()
    torch.testing.assert_close(layer(X, start=N(2)), layer(X, start=2))


def test_models_take_sizes_of_numpy():
    tokens = torch.ones(1, 3, dtype=torch.long)
    transformer = {"width": N(8), "heads": N(2), "hidden": N(12), "layers": N(2)}
    recurrent = {"width": N(8), "embedding": N(6), "layers": N(1)}
    pairs = [
        (models.TransformerEncoderConfig(**transformer), models.TransformerDecoderConfig(**transformer)),
        (
            models.RnnEncoderConfig(**recurrent),
            models.RnnDecoderConfig(attention="general", reach="local-p", half_window=N(2), **recurrent),
        ),
    ]
    for encoder, decoder in pairs:
        model = models.build_model(encoder, decoder, source_vocabulary=N(9), target_vocabulary=N(9))
        assert model(tokens, tokens.bool(), tokens).logits.shape == (1, 3, 9)
    network = GraphAttentionNetwork(GatConfig(width=N(8), heads=N(2)), features=N(8), classes=N(3))
    assert network(X[0], EDGES) is not None


def test_a_config_with_numbers_of_numpy_is_written_and_read_as_any_other():
    found, wanted = (GatConfig(width=number(8), dropout=share) for number, share in ((N, np.float64(0.5)), (int, 0.5)))
    assert write_section(found, "network") == write_section(wanted, "network")
    assert read_section(GatConfig, {"width": N(8), "dropout": np.float64(0.5)}, "network") == wanted
