import pytest
import torch
import torch.nn.functional as F

from jumok.layers.transformer import FeedForward

torch.set_num_threads(1)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_it_equals_the_feed_forward_half_of_torch_encoder_layer(activation):
    peer = torch.nn.TransformerEncoderLayer(6, 2, dim_feedforward=10, dropout=0.0, activation=activation)
    ours = FeedForward(width=6, hidden=10, activation=activation)
    ours.to_hidden.load_state_dict(peer.linear1.state_dict())
    ours.to_output.load_state_dict(peer.linear2.state_dict())
    x, twin = (torch.randn(2, 3, 6).requires_grad_() for _ in range(2))
    twin.data.copy_(x.data)
    got, want = ours(x), peer._ff_block(twin)
    torch.testing.assert_close(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)
    torch.testing.assert_close(ours.to_hidden.weight.grad, peer.linear1.weight.grad)


def test_silu_is_x_times_its_sigmoid():
    layer = FeedForward(width=4, hidden=5, activation="silu")
    x = torch.randn(7, 4)
    hidden = F.linear(x, layer.to_hidden.weight, layer.to_hidden.bias)
    want = F.linear(hidden * torch.sigmoid(hidden), layer.to_output.weight, layer.to_output.bias)
    torch.testing.assert_close(layer(x), want)


def test_swiglu_gates_the_hidden_layer():
    layer = FeedForward(width=4, hidden=5, activation="swiglu")
    x = torch.randn(7, 4)
    gate, hidden = (F.linear(x, m.weight, m.bias) for m in (layer.to_gate, layer.to_hidden))
    want = F.linear(gate * torch.sigmoid(gate) * hidden, layer.to_output.weight, layer.to_output.bias)
    torch.testing.assert_close(layer(x), want)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu"])
def test_every_position_is_transformed_on_its_own(activation):
    layer = FeedForward(width=4, hidden=8, activation=activation)
    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(layer(x)[:, 3], layer(x[:, 3]))


def test_dropout_falls_in_training_only():
    layer = FeedForward(width=4, hidden=64, dropout=0.5)
    x = torch.randn(3, 4)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
