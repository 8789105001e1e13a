"""The tiled additive score held to its reference: outputs and gradients, at awkward sizes and every magnitude."""

import pytest
import torch

from jumok.attention import additive, attend, explain
from jumok.attention.additive import cpu
from jumok.attention.additive.cpu import TiledAdditive
from jumok.attention.additive.reference import Additive
from jumok.attention.backends import why_no_tiles
from support.attention import random_inputs, values_and_gradients

SIZES = [(1, 1, 8), (63, 65, 60), (129, 500, 64)]
NAMES = ("scores", "d_query", "d_key", "d_v")


@pytest.fixture(params=["one tile", "tiny tiles"])
def tile(request, monkeypatch):
    """Tiles of a whole problem, or of a few keys: then the loops over batch, rows and keys all turn."""
    if request.param == "tiny tiles":
        monkeypatch.setattr(cpu, "TILE", 64 * 150)


@pytest.fixture
def poisoned(monkeypatch):
    """Fresh memory holds NaN, so that reading what was never written shows."""
    fresh = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *size, **kw: fresh(self, *size, **kw).fill_(torch.nan))


def plain(query, key, v):
    return Additive(v)(query, key)


def tiled(query, key, v):
    return TiledAdditive(v)(query, key)


@pytest.mark.usefixtures("tile", "poisoned")
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0, 100.0])
@pytest.mark.parametrize(("queries", "keys", "dim"), SIZES)
def test_it_is_as_accurate_as_plain_torch(queries, keys, dim, spread):
    batch = 2 if queries < 100 else 1
    inputs = [torch.randn(batch, queries, dim) * spread, torch.randn(batch, keys, dim) * spread, torch.randn(dim)]
    upstream = torch.randn(batch, queries, keys)
    exact = values_and_gradients(plain, [tensor.double() for tensor in inputs], upstream.double())
    reference = values_and_gradients(plain, inputs, upstream)
    found = values_and_gradients(tiled, inputs, upstream)
    for name, want, ref, got in zip(NAMES, exact, reference, found, strict=True):
        error, allowed = (got - want).abs().max(), 2 * (ref - want).abs().max() + 1e-5
        assert error <= allowed, f"{name} is off by {error:.2e}; plain torch by {(ref - want).abs().max():.2e}"


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("tile", [1, 7, 20, 21, 35, 60, 105, 1000])
def test_where_tiles_end_does_not_matter(monkeypatch, tile):
    inputs = [torch.randn(3, 4, 5).double(), torch.randn(3, 7, 5).double(), torch.randn(5).double()]
    wanted = values_and_gradients(plain, inputs)
    monkeypatch.setattr(cpu, "TILE", tile)
    for got, want in zip(values_and_gradients(tiled, inputs), wanted, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("size", [39.9, 40.0, 41.0, 88.0, 1e4, 1e30])
def test_saturated_features_are_exactly_one_and_opposite_ones_cancel(size):
    query, key = torch.full((1, 2), size), torch.tensor([[1.0, 1.0], [-size, -size], [-2 * size, -2 * size]])
    scores = tiled(query, key, torch.tensor([1.0, 2.0]))
    assert scores.tolist() == [[3, 0, -3]]


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 1, 3)])
def test_it_takes_any_leading_axes(lead):
    query, key, _ = random_inputs(lead=lead)
    v = torch.randn(3).double()
    torch.testing.assert_close(tiled(query, key, v), plain(query, key, v))


@pytest.mark.parametrize(("query_lead", "key_lead"), [((2, 3), (3,)), ((), (2,)), ((2, 1), (1, 3)), ((4,), (1,))])
def test_leading_axes_broadcast(query_lead, key_lead):
    inputs = [torch.randn(*query_lead, 4, 3).double(), torch.randn(*key_lead, 5, 3).double(), torch.randn(3).double()]
    for got, want in zip(values_and_gradients(tiled, inputs), values_and_gradients(plain, inputs), strict=True):
        torch.testing.assert_close(got, want)


def test_a_nan_stays_in_its_row_and_column():
    query, key, v = torch.randn(4, 3), torch.randn(5, 3), torch.randn(3)
    query[1, 0], key[2, 1] = torch.nan, torch.nan
    broken = tiled(query, key, v).isnan()
    assert torch.equal(broken, plain(query, key, v).isnan())
    assert broken.sum() == 5 + 4 - 1


def test_it_gives_no_gradient_that_was_not_asked_for_and_the_right_ones_that_were():
    query, key, v = torch.randn(4, 3).double(), torch.randn(5, 3).double().requires_grad_(), torch.randn(3).double()
    upstream = torch.randn(4, 5).double()
    (found,) = torch.autograd.grad(tiled(query, key, v), key, upstream)
    (wanted,) = torch.autograd.grad(plain(query, key, v), key, upstream)
    torch.testing.assert_close(found, wanted)


def test_attend_runs_it_where_it_can(monkeypatch):
    ran = []
    monkeypatch.setattr(TiledAdditive, "__call__", lambda self, q, k: ran.append(1) or plain(q, k, self.v))
    query, key, value = random_inputs()
    attend(query, key, value, score=additive(torch.randn(3).double()), backend="blocked")
    assert ran
    ran.clear()
    attend(query, key, value, score=additive(torch.randn(3, 3).double()), backend="blocked")
    attend(query, key, value, score=additive(torch.randn(3).double()), backend="direct")
    assert not ran


@pytest.mark.parametrize(("queries", "keys", "dim"), [(64, 65, 64), (2, 300, 512), (300, 2, 512)])
def test_attend_computes_large_calls_in_tiles(queries, keys, dim):
    plan = explain(*random_inputs((), queries, keys, dim), score=additive(torch.ones(dim).double()))
    assert (plan.backend, plan.tiled) == ("blocked", True)


@pytest.mark.parametrize(
    ("batch", "queries", "keys", "dim", "reason"),
    [
        (2, 8, 8, 32, "too small for tiles to pay off"),
        (1, 64, 64, 64, "too small for tiles to pay off"),
        (64, 1, 30, 512, "with one query or one key no pairs share one"),
        (64, 30, 1, 512, "with one query or one key no pairs share one"),
    ],
)
def test_attend_computes_small_calls_and_single_queries_at_once(batch, queries, keys, dim, reason):
    plan = explain(*random_inputs((batch,), queries, keys, dim), score=additive(torch.ones(dim).double()))
    assert plan.backend == "direct"
    assert reason in plan.against["blocked"]


@pytest.mark.parametrize(
    ("score", "query", "reason"),
    [
        (Additive(torch.ones(2, 3)), torch.zeros(2, 4, 3), "v has leading axes"),
        (Additive(torch.ones(3)), torch.zeros(4, 3, device="meta"), "query is on meta"),
        (Additive(torch.ones(3)), torch.zeros(4, 3, dtype=torch.bfloat16), "query is torch.bfloat16"),
    ],
)
def test_it_says_why_it_cannot_run(score, query, reason):
    assert why_no_tiles(score, query) == reason
