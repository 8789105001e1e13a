"""Fused additive attention held to its reference, on a GPU or in Triton's interpreter.

test_fused.py runs this file in a process of its own: the interpreter is chosen when Triton is imported, and its kernels
cannot be wrapped by the checks of signatures.
"""

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from triton.runtime import interpreter

from helpers import assert_all_close, values_and_gradients
from jumok.attention import additive, attend, causal, concat, explain, from_lengths, window
from jumok.attention.fused import View
from jumok.attention.kernels import additive_backward, additive_fused, additive_ops, launch
from jumok.errors import BackendError
from jumok.layers import AdditiveAttention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("values", "d_query", "d_key", "d_value", "d_v")


def draw(batch=2, queries=5, keys=7, dim=6, values=3, dtype=torch.float32, spread=1.0):
    """Query, key, value, v."""
    sizes = ((batch, queries, dim), (batch, keys, dim), (batch, keys, values), (dim,))
    query, key, value, v = (torch.randn(size).to(DEVICE) for size in sizes)
    return [tensor.to(dtype) for tensor in (query * spread, key * spread, value, v)]


def with_backend(backend, **options):
    return lambda query, key, value, v: attend(query, key, value, score=additive(v), backend=backend, **options).values


def assert_as_accurate_as_plain_torch(inputs, floor=1e-5, **options):
    upstream = torch.randn_like(with_backend("direct", **options)(*inputs))
    exact = values_and_gradients(
        with_backend("direct", **options), [tensor.double() for tensor in inputs], upstream.double()
    )
    plain = values_and_gradients(with_backend("direct", **options), inputs, upstream)
    found = values_and_gradients(with_backend("fused", **options), inputs, upstream)
    for name, want, ref, got in zip(NAMES, exact, plain, found, strict=True):
        ours, theirs = (got - want).abs().max(), (ref - want).abs().max()
        assert ours <= 2 * theirs + floor, f"{name} is off by {ours:.2e}; plain torch by {theirs:.2e}"


@pytest.fixture(autouse=True)
def _poisoned():
    """Fresh memory holds NaN, so that reading what was never written shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("queries", "keys", "dim", "values"),
    [
        (1, 1, 8, 1),
        (63, 65, 10, 17),
        (65, 63, 3, 16),
        (129, 20, 17, 5),
        (1, 129, 60, 40),
        (4, 33, 5, 2),
        (7, 129, 8, 4),
        (9, 9, 30, 130),
    ],
)
def test_it_is_as_accurate_as_plain_torch_at_any_size(queries, keys, dim, values):
    assert_as_accurate_as_plain_torch(draw(2 if queries < 60 else 1, queries, keys, dim, values))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries", [2, 9])
def test_half_precision_is_computed_in_single(dtype, queries):
    assert_as_accurate_as_plain_torch(draw(queries=queries, values=16, dtype=dtype), floor=1e-3)


@pytest.mark.parametrize("spread", [0.01, 3.0, 8.0, 100.0])
def test_it_is_as_accurate_for_numbers_of_any_size(spread):
    assert_as_accurate_as_plain_torch(draw(1, 17, 19, spread=spread))


@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("spread", [1e-3, 0.1, 0.25])
def test_small_scores_and_the_gradient_of_v_keep_the_digits_of_a_tanh(queries, spread):
    query, key, _, v = draw(queries=queries, keys=50, dim=24, spread=spread)
    upstream = torch.randn(2, queries, 50, device=DEVICE)
    terms = torch.tanh(query.double()[:, :, None] + key.double()[:, None])
    digits = 1e-6  # eight units in the last place, of each term
    found = additive_ops.additive_scores(query, key, v.requires_grad_()[None])
    (d_v,) = torch.autograd.grad(found, v, upstream)
    assert ((found - terms @ v.double()).abs() <= digits * (terms.abs() @ v.double().abs())).all()
    given = upstream.double()[..., None] * terms
    assert ((d_v - given.sum((0, 1, 2))).abs() <= digits * given.abs().sum((0, 1, 2))).all()


def test_tiles_of_small_usual_large_and_huge_numbers_stand_side_by_side():
    query, key, value, v = draw(1, 70, 150)
    for tensor, sizes in ((query, (1e-3, 1.0, 100.0)), (key, (1e-3, 1.0, 1e-3, 1.0, 6.0))):
        tensor *= torch.tensor(sizes, device=DEVICE).repeat_interleave(32)[: tensor.shape[1], None]
    assert_as_accurate_as_plain_torch([query, key, value, v], visible=window(40, 70))


@pytest.mark.parametrize("size", [5.4, 5.6, 10.9, 11.1, 39.9, 40.1, 88.0, 1e4, 1e30])
@pytest.mark.parametrize("queries", [1, 6])
def test_saturated_features_are_exactly_one_and_opposite_ones_cancel(size, queries):
    query, key = torch.full((1, queries, 2), size), torch.tensor([[[0.0, 0.0], [-size, -size], [-2 * size, -2 * size]]])
    scores = additive_ops.additive_scores(query.to(DEVICE), key.to(DEVICE), torch.tensor([[1.0, 2.0]], device=DEVICE))
    wanted = torch.tensor([3.0, 0.0, -3.0]) * torch.tensor(size).tanh()
    torch.testing.assert_close(scores.cpu(), wanted.expand(1, queries, 3), atol=2e-6, rtol=0)


@pytest.mark.parametrize("total", [9.4, 9.6, 10.95, 38.0])
@pytest.mark.parametrize("v", [1.0, 1e4])
def test_saturated_features_do_not_overflow_with_large_v(total, v):
    query, key, v = torch.full((1, 6, 8), total / 2), torch.full((1, 3, 8), total / 2), torch.full((1, 8), v)
    scores = additive_ops.additive_scores(*(tensor.to(DEVICE) for tensor in (query, key, v)))
    torch.testing.assert_close(scores.cpu(), v.sum().expand(1, 6, 3), atol=0, rtol=1e-6)


def masks():
    lengths = torch.tensor([4, 0], device=DEVICE)
    drawn = torch.rand(2, 6, 9, generator=torch.Generator().manual_seed(1)) > 0.5
    return {
        "lengths": from_lengths(lengths),
        "causal": causal(1),
        "a causal mask that hides the first queries' keys": causal(-2),
        "window": window(2, 1),
        "a window around centres": window(1.5, 2, centre=torch.linspace(-3, 12, 12, device=DEVICE).reshape(2, 6)),
        "all of them": from_lengths(lengths + 4) & causal(2) & window(3),
        "a tensor": drawn.to(DEVICE),
        "the same keys for all": drawn[0, 0].to(DEVICE),
        "a tensor and lengths": from_lengths(lengths + 3) & drawn.to(DEVICE),
        "or": causal(-4) | drawn[0].to(DEVICE),
        "not": ~causal(3),
    }


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("queries", [1, 6])
def test_it_sees_what_the_mask_shows(name, queries):
    visible = masks()[name]
    if queries == 1 and name not in ("lengths", "causal", "window", "the same keys for all", "not"):
        pytest.skip("a mask of six queries")
    inputs = draw(2, queries, 9)
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    assert_all_close(values_and_gradients(with_backend("fused", visible=visible), inputs), wanted, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("lead", [(2, 1), (1, 3), (2, 3), (3,), (1,), ()])
@pytest.mark.parametrize("queries", [1, 6])
def test_heads_may_share_a_mask_or_have_their_own(lead, queries):
    query, key, value, v = draw(6, queries, 9)
    inputs = [*(tensor.unflatten(0, (2, 3)) for tensor in (query, key, value)), v]
    visible = (torch.rand(*lead, queries, 9, generator=torch.Generator().manual_seed(2)) > 0.5).to(DEVICE)
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    assert_all_close(values_and_gradients(with_backend("fused", visible=visible), inputs), wanted, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("queries", [1, 6])
@pytest.mark.parametrize("visible", [None, from_lengths(torch.tensor([4, 0], device=DEVICE)) & causal(5)])
def test_the_gradient_has_a_gradient(queries, visible):
    inputs, found = draw(2, queries, 9), []
    for backend in ("direct", "fused"):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        (slope,) = torch.autograd.grad(
            with_backend(backend, visible=visible)(*leaves).sum(), leaves[0], create_graph=True
        )
        found.append([slope, *torch.autograd.grad(slope.square().sum(), leaves)])
    assert_all_close(*found, atol=1e-5, rtol=1e-4)


def test_a_second_gradient_through_dropout_is_refused():
    query, *others = draw()
    values = with_backend("fused", dropout=0.5)(query.requires_grad_(), *others)
    with pytest.raises(BackendError, match="no second gradient"):
        torch.autograd.grad(values.sum(), query, create_graph=True)


@pytest.mark.parametrize("queries", [3, 7])
@pytest.mark.parametrize("broken", [1, 2])
def test_what_is_not_a_number_shows_in_values_weights_and_gradients_as_in_the_direct_form(queries, broken):
    inputs = draw(1, queries, 9)
    inputs[broken][0, 4] = torch.nan
    found = []
    for backend in ("direct", "fused"):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = attend(*leaves[:3], score=additive(leaves[3]), backend=backend)
        gradients = torch.autograd.grad(out.values.sum(), leaves)
        found.append([out.values, *([out.weights()] if broken == 1 else []), *gradients[:2]])
    for direct, fused in zip(*found, strict=True):
        assert torch.equal(direct.isnan(), fused.isnan())


@pytest.mark.parametrize("queries", [2, 6])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_under_a_mask_a_value_that_is_not_finite_spoils_the_whole_answer_of_those_who_see_it(queries, wrong):
    inputs = draw(2, queries, 9)
    inputs[2][0, 3, 1] = wrong
    values = with_backend("fused", visible=from_lengths(torch.tensor([9, 5], device=DEVICE)))(*inputs)
    assert values[0].isnan().all()
    assert values[1].isfinite().all()


def test_a_mask_that_heads_share_is_not_copied():
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    first, beyond, flat = View(mask=mask).flat((2, 3))
    assert (first, beyond, flat.shape) == (None, None, (2, 5, 7))
    assert flat.data_ptr() == mask.data_ptr()


@pytest.mark.parametrize("queries", [2, 6])
def test_a_query_that_sees_nothing_gets_zeros_and_nan_behind_a_mask_stays_there(queries):
    inputs = draw(2, queries, 9)
    for tensor in inputs[1:3]:
        tensor[:, 5:] = torch.nan
    values, *gradients = values_and_gradients(
        with_backend("fused", visible=from_lengths(torch.tensor([5, 0], device=DEVICE))), inputs
    )
    assert values.isfinite().all()
    assert not values[1].any()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][1].any()


def test_a_nan_that_is_seen_spoils_its_row_only():
    inputs = draw(1, 6, 9)
    inputs[0][0, 2, 1] = torch.nan
    broken = with_backend("fused")(*inputs).isnan()
    assert broken[0, 2].all()
    assert broken.sum() == broken[0, 2].numel()


@pytest.mark.parametrize("queries", [3, 9])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_query_whose_answer_is_nan_passes_no_gradient_on(queries, broken):
    inputs = draw(1, queries, 9, values=140)
    inputs[broken][0, 1] = torch.nan
    gradients = []
    for backend in ("direct", "fused"):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        values = with_backend(backend, visible=causal())(*leaves)
        assert values[0, 1].isnan().all()
        gradients.append(torch.autograd.grad(values.square().sum(), leaves))  # NaN for the answers that are
    assert all(gradient.isfinite().all() for gradient in gradients[0])
    assert_all_close(*gradients, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("queries", [3, 9])
def test_a_nan_that_comes_from_behind_is_passed_on(queries):
    inputs = draw(1, queries, 9)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    upstream = torch.ones(1, queries, 3, device=DEVICE)
    upstream[0, 1, 1] = torch.nan
    for gradient in torch.autograd.grad(with_backend("fused")(*leaves), leaves, upstream):
        assert gradient.isnan().any()


@pytest.mark.parametrize("v_lead", [(), (3,), (2, 1)])
def test_leading_axes_broadcast(v_lead):
    query, key, value = torch.randn(2, 1, 5, 4), torch.randn(3, 7, 4), torch.randn(2, 3, 7, 2)
    inputs = [tensor.to(DEVICE) for tensor in (query, key, value, torch.randn(*v_lead, 4))]
    wanted = values_and_gradients(with_backend("direct"), inputs)
    assert_all_close(values_and_gradients(with_backend("fused"), inputs), wanted, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(("queries", "values"), [(3, 8), (9, 8), (9, 300)])
def test_dropout_drops_some_weights_and_passes_the_gradient_of_the_others(queries, values):
    query, key, value, v = draw(2, queries, 80, values=80)
    value = torch.eye(80, device=DEVICE).expand(2, 80, 80)  # values show the weights
    value = torch.nn.functional.pad(value, (0, values)) if values > 256 else value
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value, v)]
    dropped = with_backend("fused", dropout=0.25)(*leaves)
    whole = attend(*leaves[:3], score=additive(leaves[3]), backend="direct").weights()
    kept = (dropped[..., :80] > 0).float()
    assert 0.6 < kept.mean() < 0.9
    wanted = (whole * kept / 0.75) @ leaves[2]
    torch.testing.assert_close(dropped, wanted, atol=2e-6, rtol=1e-5)
    upstream = torch.randn_like(dropped)
    gradients = [torch.autograd.grad(values, leaves, upstream) for values in (dropped, wanted)]
    assert_all_close(*gradients, atol=1e-5, rtol=1e-4)


def test_dropout_follows_the_seed():
    inputs, runs = draw(queries=9, keys=30), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(with_backend("fused", dropout=0.5)(*inputs))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_two_runs_are_equal_to_the_bit():
    inputs = draw(2, 20, 40)
    one, other = (values_and_gradients(with_backend("fused"), inputs) for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


@pytest.mark.parametrize("values", [3, 300])
def test_where_the_work_is_cut_does_not_matter(monkeypatch, values):
    inputs, visible = draw(3, 150, 20, 3, values), causal(2)
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    monkeypatch.setattr(additive_fused, "PLANES", 128 * 32 * 12)
    monkeypatch.setattr(additive_fused, "parts_for", lambda *_: 3)
    monkeypatch.setattr(additive_backward, "side_parts", lambda *_: 3)
    found = values_and_gradients(with_backend("fused", visible=visible), inputs)
    assert_all_close(found, wanted, atol=2e-5, rtol=1e-4)


def test_weights_are_rebuilt_and_differentiable():
    query, key, value, v = draw(2, 9, 12)
    results = []
    for backend in ("fused", "direct"):
        leaves = [tensor.clone().requires_grad_() for tensor in (query, key, v)]
        out = attend(*leaves[:2], value, score=additive(leaves[2]), visible=causal(2), backend=backend)
        weights = out.weights(rows=[1, 8, 3, 0, 5])
        upstream = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        results.append([weights, out.weights.entropy(), *torch.autograd.grad(weights, leaves, upstream)])
    assert_all_close(*results, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries", [3, 9])
def test_weights_in_half_precision_are_those_that_mixed_the_values(dtype, queries):
    query, key, _, v = draw(2, queries, 40, 64, dtype=dtype)
    out = attend(query, key, torch.eye(40, dtype=dtype, device=DEVICE), score=additive(v), backend="fused")
    assert out.weights().dtype == dtype
    # Values of an identity show the weights.
    torch.testing.assert_close(out.weights(), out.values, atol=1e-7, rtol=torch.finfo(dtype).eps)


def test_luongs_concat_is_the_same_sum_after_a_projection():
    query, key, value, v = draw()
    score = concat(v, torch.randn(6, 12, device=DEVICE))
    fused, direct = (attend(query, key, value, score=score, backend=backend).values for backend in ("fused", "direct"))
    torch.testing.assert_close(fused, direct)


def test_the_operators_keep_pytorchs_rules():
    *inputs, v = draw()
    query, key, value, v = (tensor.requires_grad_() for tensor in (*inputs, v[None]))
    limits = torch.zeros(2, 5, dtype=torch.int32, device=DEVICE)
    torch.library.opcheck(additive_ops.additive_attention, (query, key, value, v, limits, limits + 7, None, None, 0.0))
    torch.library.opcheck(additive_ops.additive_scores, (query, key, v))


def test_the_compiler_takes_it_whole():
    inputs = draw()
    compute = with_backend("fused")
    found = values_and_gradients(torch.compile(compute, backend="aot_eager", fullgraph=True), inputs)
    assert_all_close(found, values_and_gradients(compute, inputs))


def test_a_layer_runs_it_under_autocast_and_checkpointing():
    layer = AdditiveAttention(query_width=3, key_width=4, hidden=8, backend="fused").to(DEVICE)
    query, states = torch.randn(2, 5, 3, device=DEVICE), torch.randn(2, 6, 4, device=DEVICE)
    plan = explain(layer.to_query(query), layer.to_key(states), states, score=additive(layer.v))
    assert plan.backend == "fused"

    def loss():
        with torch.autocast(DEVICE, torch.bfloat16):
            return layer(query, layer.memory(states)).values.float().square().sum()

    parameters = list(layer.parameters())
    plain = torch.autograd.grad(loss(), parameters)
    again = torch.autograd.grad(checkpoint(loss, use_reentrant=False), parameters)
    assert_all_close(again, plain, atol=0, rtol=0)


class Watched:
    """In the place of the interpreter's memory: no kernel may touch what does not belong to its tensors."""

    def __init__(self, memory, tensors):
        self.memory = memory
        storages = [tensor.untyped_storage() for tensor in tensors]
        self.starts, self.ends = (
            np.array([storage.data_ptr() + size for storage, size in zip(storages, sizes, strict=True)])
            for sizes in ([0] * len(storages), [storage.nbytes() for storage in storages])
        )

    def __getattr__(self, name):
        return getattr(self.memory, name)

    def load(self, places, mask, other, dtype):
        self.check(places[mask.astype(bool)], np.dtype(dtype).itemsize)
        return self.memory.load(places, mask, other, dtype)

    def store(self, places, values, mask):
        self.check(places[mask.astype(bool)], values.dtype.itemsize)
        return self.memory.store(places, values, mask)

    def check(self, places, size):
        places = places.astype(np.int64)[:, None]
        assert ((places >= self.starts) & (places + size <= self.ends)).any(1).all(), "outside of all tensors"


@pytest.mark.skipif(not launch.INTERPRETED, reason="compute-sanitizer sees it on a GPU")
@pytest.mark.parametrize(("queries", "keys", "dim"), [(9, 32, 70), (33, 63, 33), (33, 97, 5), (4, 33, 70)])
def test_kernels_stay_within_their_tensors(monkeypatch, queries, keys, dim):
    memory, run, launched = interpreter._interpreter, launch.Kernel.__call__, []

    def watched(kernel, grid, *arguments, **constants):
        launched.append(kernel)
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        monkeypatch.setattr(interpreter, "_interpreter", Watched(memory, tensors))
        run(kernel, grid, *arguments, **constants)

    monkeypatch.setattr(launch.Kernel, "__call__", watched)
    values_and_gradients(with_backend("fused", visible=causal(40)), draw(1, queries, keys, dim))
    assert len(launched) >= 2, "nothing was watched"


class Stub:
    """In the place of a kernel of Triton: counts how often it compiles, and keeps what the compiled one is given."""

    arg_names = ("tensor", "size", "WIDE")
    function, packed_metadata = "function", "packed"

    def __init__(self):
        self.compiled, self.runs = 0, []

    def __getitem__(self, grid):
        self.compiled += 1
        return lambda *_, **__: self

    def run(self, *arguments):
        self.runs.append(arguments)


def test_a_kernel_compiles_once_for_a_size_and_type_and_alignment(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(launch, "stream_of", lambda gpu: 7)
    stub, tensor, other = Stub(), torch.ones(8), torch.ones(8)
    run = launch.Kernel(stub)
    for first in (tensor, other):
        run((3, 2), first, 8, WIDE=True)
    assert stub.compiled == 1
    assert stub.runs == [(3, 2, 1, 7, "function", "packed", None, None, None, other.data_ptr(), 8, True)]
    run((3, 2), tensor, 9, WIDE=True)
    run((3, 2), tensor, 8, WIDE=False)
    run((3, 2), tensor.double(), 8, WIDE=True)
    run((3, 2), tensor[1:], 8, WIDE=True)
    assert (stub.compiled, len(stub.runs)) == (5, 1)


def test_a_kernel_runs_on_the_gpu_that_holds_its_tensors(monkeypatch):
    current, launched = [0], []

    class OnTheSecond(torch.Tensor):
        def get_device(self):
            return 1

    class Chosen:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            current.append(self.device)

        def __exit__(self, *_):
            current.pop()

    class Chooses(Stub):
        def __getitem__(self, grid):
            launched.append(current[-1])
            return super().__getitem__(grid)

    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", Chosen)
    launch.Kernel(Chooses())((1,), torch.ones(4).as_subclass(OnTheSecond), 4, WIDE=True)
    assert launched == [1]
    assert current == [0]
