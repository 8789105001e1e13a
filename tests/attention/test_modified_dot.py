"""Dot products with a bias, slopes, a soft cap, sinks or a function of the caller, against formulas written out."""

import subprocess
import sys

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from jumok.attention import alibi, attend, causal, explain, flex, from_lengths, scaled_dot, score_pairs, window
from jumok.attention.masks import Tile, as_visible, whole
from jumok.attention.modified_dot import ModifiedDot
from jumok.errors import BackendError
from support.attention import assert_all_close, random_inputs, values_and_gradients

LEAD, QUERIES, KEYS = (2, 3), 4, 5
BACKENDS = ["direct", "blocked", "auto"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 1, 4, 5), (5,), (4, 1), (2, 3, 4, 5)])
def test_a_bias_is_that_of_torch(backend, shape):
    inputs = [*random_inputs(LEAD, QUERIES, KEYS), torch.randn(shape, dtype=torch.double)]

    def ours(query, key, value, bias):
        return attend(query, key, value, score=scaled_dot(bias=torch.atleast_2d(bias)), backend=backend).values

    def theirs(query, key, value, bias):
        return scaled_dot_product_attention(query, key, value, attn_mask=bias.expand(*LEAD, QUERIES, KEYS))

    assert_all_close(values_and_gradients(ours, inputs), values_and_gradients(theirs, inputs))


def test_slopes_are_the_bias_of_the_paper():
    query, key, value = random_inputs((2, 8), 6, 6)
    distances = (torch.arange(6)[:, None] - torch.arange(6)).abs()
    wanted = scaled_dot_product_attention(
        query, key, value, attn_mask=(-alibi(8).double()[:, None, None] * distances).expand(2, 8, 6, 6)
    )
    torch.testing.assert_close(attend(query, key, value, score=scaled_dot(slopes=alibi(8))).values, wanted)


def test_slopes_of_a_later_query_count_from_its_own_position():
    query, key, value = random_inputs((8,), 6, 6)
    whole = attend(query, key, value, score=scaled_dot(slopes=alibi(8)), visible=causal())
    last = attend(query[:, 5:], key, value, score=scaled_dot(slopes=alibi(8), offset=5))
    torch.testing.assert_close(last.values, whole.values[:, 5:])


def test_the_slopes_of_alibi_are_those_of_the_paper():
    torch.testing.assert_close(alibi(8), 2.0 ** -torch.arange(1.0, 9.0))
    assert alibi(12)[:8].tolist() == alibi(8).tolist()
    torch.testing.assert_close(alibi(12)[8:], alibi(16)[::2][:4])


def test_a_soft_cap_bends_the_scores():
    query, key, _ = random_inputs(LEAD, QUERIES, KEYS)
    wanted = 2 * torch.tanh(query @ key.mT / 3**0.5 / 2)
    torch.testing.assert_close(score_pairs(query, key, scaled_dot(soft_cap=2.0)), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sink_is_a_key_with_a_value_of_zeros(backend):
    inputs = [*random_inputs(LEAD, QUERIES, KEYS), torch.randn(3, dtype=torch.double)]

    def ours(query, key, value, sinks):
        return attend(
            query, key, value, score=scaled_dot(sinks=sinks), visible=causal(-1), backend=backend
        ).values  # fmt: skip

    def wanted(query, key, value, sinks):
        scores = (query @ key.mT / 3**0.5).masked_fill(~torch.ones(4, 5, dtype=torch.bool).tril(-1), -torch.inf)
        beside = sinks[:, None, None].expand(2, 3, 4, 1)
        return torch.cat([scores, beside], -1).softmax(-1)[..., :-1] @ value

    assert_all_close(values_and_gradients(ours, inputs), values_and_gradients(wanted, inputs))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_of_score_and_positions_sees_the_whole_call(backend):
    query, key, value = random_inputs((2, 3), QUERIES, KEYS)
    table = torch.randn(2, 3, QUERIES, KEYS, dtype=torch.double)

    def change(score, batch, head, query, key):
        return score * 2 + table[batch, head, query, key]

    found = attend(query, key, value, score=scaled_dot(change=change), backend=backend)
    wanted = attend(query, key, value, score=scaled_dot(2 / 3**0.5, bias=table))
    torch.testing.assert_close(found.values, wanted.values)
    torch.testing.assert_close(found.weights(heads=[2, 0], rows=[1, 3]), wanted.weights(heads=[2, 0], rows=[1, 3]))


@pytest.mark.parametrize("lead", [(), (3,), (2, 2, 3)])
def test_a_function_gets_batch_and_head_whatever_the_leading_axes(lead):
    query, key, value = random_inputs(lead, QUERIES, KEYS)
    seen = []

    def change(score, batch, head, query, key):
        seen.append((int(batch.max()), int(head.max())))
        return score + 0 * (batch + head + query + key)

    found = attend(query, key, value, score=scaled_dot(change=change)).values
    torch.testing.assert_close(found, attend(query, key, value).values)
    assert seen == [({3: 3}.get(len(lead), 0), 2 if lead else 0)]


def test_weights_of_some_heads_and_rows_have_their_own_parameters():
    inputs = random_inputs(LEAD, QUERIES, KEYS)
    bias, sinks = torch.randn(3, QUERIES, KEYS).double(), torch.randn(3).double()
    weights = attend(*inputs, score=scaled_dot(bias=bias, sinks=sinks, slopes=alibi(3))).weights
    torch.testing.assert_close(weights(heads=[2, 0], rows=[1, 3]), weights()[:, [2, 0]][:, :, [1, 3]])
    assert (weights().sum(-1) < 1).all()


def test_without_modifications_it_is_the_plain_score():
    assert explain(*random_inputs(), score=scaled_dot(0.3)).backend == "sdpa"
    plan = explain(*random_inputs(), score=scaled_dot(soft_cap=3.0))
    assert plan.against["sdpa"] == 'score "dot" with soft_cap is more than a dot product'


def every_pair(*sizes):
    return torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")


def test_flex_attention_is_given_all_that_happens_to_a_score():
    query, key, _ = random_inputs((2, 3), 6, 7)
    bias = torch.randn(3, 6, 7, dtype=torch.double)
    score = ModifiedDot(
        0.5, bias, alibi(3), 2.0, offset=1, change=lambda score, batch, head, query, key: score * (1 + head) - key
    )
    tile = Tile((2, 3), 6, 7, query.device)
    found = flex.score_change(score, tile)(0.5 * query @ key.mT, *every_pair(2, 3, 6, 7))
    torch.testing.assert_close(found, score(query, key))


FORMULAS = {
    "causal": causal(-1),
    "lengths": from_lengths([7, 3]),
    "lengths of heads": from_lengths(torch.tensor([[7, 3, 1], [0, 5, 2]])),
    "lengths of queries": from_lengths([7, 3], query_lengths=[2, 6]),
    "window": window(1, 2, offset=1),
    "window around centres": window(1, centre=torch.tensor([0.0, 2.5, torch.nan, 3.0, 6.0, 1.0])),
    "tensor": as_visible(torch.rand(2, 1, 6, 7) > 0.5),
    "combined": causal() & from_lengths([7, 3]) | ~window(2),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_flex_attention_is_given_a_mask_by_its_formula(name):
    visible, tile = FORMULAS[name], Tile((2, 3), 6, 7, torch.device("cpu"))
    found = flex.formula(visible, tile)(*every_pair(2, 3, 6, 7))
    assert torch.equal(found.expand(2, 3, 6, 7), whole(visible, lead=(2, 3), queries=6, keys=7))


@pytest.mark.parametrize(
    ("visible", "planes"), [(causal(), (1, 1)), (from_lengths([300, 9]) & causal(), (2, 1)), (window(5), (1, 1))]
)
def test_flex_attention_skips_hidden_blocks_that_sentences_and_heads_share(visible, planes):
    blocks = flex.block_mask(visible, Tile((2, 3), 300, 300, torch.device("cpu"))).to_dense()
    assert blocks.shape == (*planes, 3, 3)
    assert not blocks[..., 0, 2].any()
    assert blocks[0, ..., 2, 2].all()


FLEX = """
import sys
import torch
from jumok.attention import attend, backends, causal, from_lengths, scaled_dot, window

device = sys.argv[1]
compiler = "inductor" if device == "cuda" else "aot_eager"
if device == "cpu":  # where the graph can be traced and run as it is, without gradients
    backends.OBSTACLES["flex"] = lambda call: None
lengths = torch.tensor([150, 70], device=device)
score = scaled_dot(change=lambda score, batch, head, query, key: score * (1 + head) - 0.1 * (query - key).abs())

def results(backend, visible, inputs):
    leaves = [tensor.detach().requires_grad_(device != "cpu") for tensor in inputs]
    def values(query, key, value):
        return attend(query, key, value, score=score, visible=visible, backend=backend).values
    values = torch.compile(values, fullgraph=True, backend=compiler) if backend == "flex" else values
    found = values(*leaves)
    return [found] if device == "cpu" else [found, *torch.autograd.grad(found.sin().sum(), leaves)]

for visible in (None, causal(), from_lengths(lengths) & causal(), window(20)):
    inputs = torch.randn(3, 2, 3, 150, 32, device=device)
    for found, wanted in zip(results("flex", visible, inputs), results("direct", visible, inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
"""


def check_flex(device):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FLEX, device], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_flex_attention_in_compiled_code_on_a_gpu_gives_the_values_and_gradients_of_the_equation():
    check_flex("cuda")


@pytest.mark.long
def test_flex_attention_in_traced_code_on_a_cpu_gives_the_values_of_the_equation():
    check_flex("cpu")


def test_flex_attention_is_refused_outside_compiled_code_on_a_gpu():
    score = scaled_dot(change=lambda score, batch, head, query, key: score)
    with pytest.raises(BackendError, match=r"inside torch\.compile on a CUDA GPU"):
        attend(*random_inputs(), score=score, backend="flex")
    with pytest.raises(BackendError, match='score "scaled_dot" has no function of the caller'):
        attend(*random_inputs(), backend="flex")
