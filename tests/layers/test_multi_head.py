"""Multi-head attention against torch.nn.MultiheadAttention with the same weights, and step by step against at once."""

import pytest
import torch
from torch import nn

from jumok.attention import causal, from_lengths, from_torch_padding
from jumok.layers import KeyValueCache, MultiHeadAttention, RotaryPositions
from jumok.layers.multi_head import keys_values_of


def with_weights_of(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Ours, holding the same numbers."""
    width = theirs.embed_dim
    ours = MultiHeadAttention(width=width, heads=theirs.num_heads, key_width=theirs.kdim, value_width=theirs.vdim)
    ours.double()
    if theirs.in_proj_weight is None:
        query, key, value = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    else:
        query, key, value = theirs.in_proj_weight.chunk(3)
    biases = theirs.in_proj_bias.chunk(3)
    with torch.no_grad():
        for linear, weight, bias in zip(
            (ours.to_query, ours.to_key, ours.to_value), (query, key, value), biases, strict=True
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        ours.to_output.load_state_dict(theirs.out_proj.state_dict())
    return ours


@pytest.fixture
def sequences():
    torch.manual_seed(0)
    return torch.randn(3, 5, 12, dtype=torch.double), torch.randn(3, 7, 12, dtype=torch.double)


def their_attention(**options) -> nn.MultiheadAttention:
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(12, 4, batch_first=True, **options).double()
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    return theirs


def assert_same_gradients(inputs, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    upstream = torch.randn_like(ours)
    for mine, other in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("backend", ["auto", "direct", "blocked", "sdpa"])
def test_cross_attention_equals_torch_with_the_same_weights(sequences, backend):
    x, memory = (tensor.requires_grad_() for tensor in sequences)
    theirs = their_attention()
    ours = with_weights_of(theirs)
    ours.backend = backend
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3, [False] * 6 + [True]])
    values, weights = theirs(x, memory, memory, key_padding_mask=padding, average_attn_weights=False)
    out = ours(x, memory, visible=from_torch_padding(padding))
    torch.testing.assert_close(out.values, values)
    torch.testing.assert_close(out.weights(), weights)
    assert_same_gradients((x, memory), out.values, values)


def test_causal_self_attention_equals_torch_with_the_same_weights(sequences):
    x = sequences[0].requires_grad_()
    theirs = their_attention()
    hidden = nn.Transformer.generate_square_subsequent_mask(5).isinf()  # True there means hidden
    values, _ = theirs(x, x, x, attn_mask=hidden)
    out = with_weights_of(theirs)(x, visible=causal())
    torch.testing.assert_close(out.values, values)
    assert_same_gradients((x,), out.values, values)


def test_keys_and_values_of_other_widths_equal_torch_with_the_same_weights():
    torch.manual_seed(2)
    x, key, value = (
        torch.randn(2, time, width, dtype=torch.double, requires_grad=True) for time, width in ((5, 12), (7, 6), (7, 9))
    )
    theirs = their_attention(kdim=6, vdim=9)
    values, _ = theirs(x, key, value)
    out = with_weights_of(theirs)(x, key, value)
    torch.testing.assert_close(out.values, values)
    assert_same_gradients((x, key, value), out.values, values)


def test_every_parameter_gets_the_gradient_torch_gives_it(sequences):
    x, memory = sequences
    theirs = their_attention()
    ours = with_weights_of(theirs)
    theirs(x, memory, memory)[0].square().sum().backward()
    ours(x, memory).values.square().sum().backward()
    mine = torch.cat([linear.weight.grad for linear in (ours.to_query, ours.to_key, ours.to_value)])
    torch.testing.assert_close(mine, theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.to_output.weight.grad, theirs.out_proj.weight.grad)


def test_grouped_heads_equal_heads_whose_keys_are_repeated():
    torch.manual_seed(3)
    grouped = MultiHeadAttention(width=12, heads=6, key_heads=2).double()
    full = MultiHeadAttention(width=12, heads=6).double()
    with torch.no_grad():
        for few, many in ((grouped.to_key, full.to_key), (grouped.to_value, full.to_value)):
            many.weight.copy_(few.weight.view(2, 1, 2, 12).expand(2, 3, 2, 12).reshape(12, 12))
            many.bias.copy_(few.bias.view(2, 1, 2).expand(2, 3, 2).reshape(12))
    full.to_query, full.to_output = grouped.to_query, grouped.to_output
    x = torch.randn(2, 5, 12, dtype=torch.double)
    one, other = grouped(x, visible=causal()), full(x, visible=causal())
    torch.testing.assert_close(one.values, other.values)
    torch.testing.assert_close(one.weights(heads=[4]), other.weights(heads=[4]))
    assert grouped.keys_values(x).keys.shape == (2, 2, 5, 2)


@pytest.mark.parametrize("rotary", [False, True])
def test_step_by_step_with_a_cache_equals_all_at_once(rotary):
    torch.manual_seed(4)
    layer = MultiHeadAttention(width=8, heads=2, key_heads=1, rotary=RotaryPositions(head_dim=4) if rotary else None)
    layer = layer.double().eval()
    x = torch.randn(3, 6, 8, dtype=torch.double)
    at_once = layer(x, visible=causal())
    cache = KeyValueCache(capacity=6)
    for start, end in ((0, 2), (2, 3), (3, 6)):
        new = x[:, start:end]
        memory = cache.append(layer.keys_values(new, start=start))
        step = layer.attend(new, memory, causal(offset=start), start=start)
        torch.testing.assert_close(step.values, at_once.values[:, start:end])
        torch.testing.assert_close(step.weights(), at_once.weights()[:, :, start:end, :end])


def test_a_cache_keeps_the_chosen_hypotheses_in_their_order():
    torch.manual_seed(5)
    layer = MultiHeadAttention(width=8, heads=2).eval()
    x = torch.randn(3, 4, 8)
    cache = KeyValueCache(capacity=8)
    cache.append(layer.keys_values(x))
    cache.select(torch.tensor([2, 0, 0]))
    memory = cache.append(layer.keys_values(x[[2, 0, 0]]))
    torch.testing.assert_close(memory.keys[:, :, :4], memory.keys[:, :, 4:])


def test_a_cache_has_two_rooms_and_makes_no_other():
    torch.manual_seed(5)
    layer, draws = MultiHeadAttention(width=8, heads=2).eval(), torch.Generator().manual_seed(0)
    cache, x = KeyValueCache(capacity=20), torch.randn(2, 20, 8)
    cache.append(layer.keys_values(x[:, :1]))
    cache.select(torch.tensor([0, 0, 0, 1, 1, 1]))  # a beam of three
    past, rooms = torch.tensor([[0], [0], [0], [1], [1], [1]]).expand(-1, 20), set()
    for step in range(1, 20):
        memory = cache.append(layer.keys_values(x[past[:, 0], step : step + 1]))
        rooms.add((memory.keys.data_ptr(), memory.values.data_ptr()))
        torch.testing.assert_close(memory.keys, layer.keys_values(x[past[:, 0], : step + 1]).keys)
        rows = torch.randint(len(past), (6 if step < 12 else 4,), generator=draws)  # some finish
        cache.select(rows)
        past = past[rows]
    assert len(rooms) == 2


def test_dropout_falls_on_the_weights_while_training_only():
    torch.manual_seed(6)
    layer = MultiHeadAttention(width=8, heads=2, dropout=0.5)
    x = torch.randn(2, 5, 8)
    assert not torch.equal(layer(x).values, layer(x).values)
    torch.testing.assert_close(layer(x).weights().sum(-1), torch.ones(2, 2, 5))
    layer.eval()
    assert torch.equal(layer(x).values, layer(x).values)


def test_a_sequence_of_length_zero_gives_only_the_output_bias():
    layer = MultiHeadAttention(width=8, heads=2)
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    out = layer(x, memory, visible=from_lengths([0, 7]))
    torch.testing.assert_close(out.values[0], layer.to_output.bias.expand(5, 8))
    assert out.weights()[0].eq(0).all()
    assert layer(x, memory[:, :0]).values.shape == (2, 5, 8)
    assert layer(x[:0], memory[:0]).values.shape == (0, 5, 8)


@pytest.mark.parametrize(("key_heads", "bias", "rotary"), [(4, True, False), (2, False, True)])
def test_one_product_for_queries_keys_and_values_gives_the_same_as_three(monkeypatch, key_heads, bias, rotary):
    torch.manual_seed(3)
    positions = RotaryPositions(head_dim=3) if rotary else None
    layer = MultiHeadAttention(width=12, heads=4, key_heads=key_heads, bias=bias, rotary=positions).double()
    x = torch.randn(2, 5, 12, dtype=torch.double, requires_grad=True)
    inputs, found = [x, *layer.parameters()], []
    for stacked in (False, True):
        monkeypatch.setattr("jumok.layers.multi_head.gains_from_stacking", lambda _, stacked=stacked: stacked)
        values = layer(x, visible=causal()).values
        found.append([values, *torch.autograd.grad(values.square().sum(), inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_projection_with_a_hook_is_called_even_where_one_product_would_be_faster(monkeypatch):
    monkeypatch.setattr("jumok.layers.multi_head.gains_from_stacking", lambda _: True)
    layer, seen = MultiHeadAttention(width=12, heads=4), []
    layer.to_key.register_forward_hook(lambda module, given, output: seen.append(output.shape))
    layer(torch.randn(2, 5, 12))
    assert seen == [torch.Size([2, 5, 12])]


def test_keys_and_values_of_several_layers_from_one_product_are_those_of_each(monkeypatch):
    layers = [MultiHeadAttention(width=8, heads=4, key_heads=2, key_width=6) for _ in range(3)]
    x = torch.randn(2, 5, 6, requires_grad=True)
    weights = [layer.to_key.weight for layer in layers]

    def outcome():
        found = [part for pair in keys_values_of(layers, x) for part in pair]
        gradients = torch.autograd.grad(sum((part**2).sum() for part in found), [x, *weights])
        return [part.detach() for part in (*found, *gradients)]

    want = outcome()
    monkeypatch.setattr("jumok.layers.multi_head.gains_from_stacking", lambda _: True)
    torch.testing.assert_close(outcome(), want)
