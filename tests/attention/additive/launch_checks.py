"""Fused additive attention within PyTorch: second gradients, operators, the compiler, launches, and no byte too far.

test_gpu.py runs this file in a process of its own.
"""

import re

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from triton.runtime import interpreter

from jumok.attention import additive, attend, causal, explain, from_lengths, triton_launch
from jumok.attention.additive.gpu import operators, score_kernels
from jumok.errors import BackendError
from jumok.layers import AdditiveAttention
from support.additive import DEVICE, draw, with_backend
from support.attention import assert_all_close, values_and_gradients


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


@pytest.mark.parametrize("queries", [2, 6])
@pytest.mark.parametrize("masked", [from_lengths(torch.tensor([5, 3], device=DEVICE)), "tensor"])
def test_nan_behind_a_mask_reaches_no_gradient_that_has_a_gradient(queries, masked):
    inputs, found = draw(2, queries, 9), []
    inputs[1][:, 5:] = inputs[2][:, 5:] = torch.nan
    visible = torch.arange(9, device=DEVICE) < 5 if isinstance(masked, str) else masked
    for backend in ("direct", "fused"):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        slopes = torch.autograd.grad(
            with_backend(backend, visible=visible)(*leaves).square().sum(), leaves, create_graph=True
        )
        found.append([*slopes, *torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves)])
    assert all(slope.isfinite().all() for slope in found[1])
    assert_all_close(*found, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("v_lead", [(), (2,)])
@pytest.mark.parametrize("hidden", [1.0, torch.nan])
def test_the_gradient_of_weights_has_a_gradient(v_lead, hidden):
    *inputs, _ = draw(2, 6, 9)
    inputs[1][:, 8] = hidden
    inputs, found = [*inputs, torch.randn(*v_lead, 6, device=DEVICE)], []
    for backend in ("direct", "fused"):
        query, key, value, v = (tensor.clone().requires_grad_() for tensor in inputs)
        weights = attend(query, key, value, score=additive(v), visible=causal(2), backend=backend).weights()
        (slope,) = torch.autograd.grad(weights.square().sum(), query, create_graph=True)
        found.append([slope, *torch.autograd.grad(slope.square().sum(), (query, key, v))])
    assert_all_close(*found, atol=1e-5, rtol=1e-4)


class Stopped(torch.autograd.Function):
    """A step that passes no gradient on, not even zeros."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, d_values):
        return None


@pytest.mark.parametrize("run", [operators.attention, operators.additive_attention])
def test_where_no_gradient_comes_from_behind_none_is_passed_on(run):
    *inputs, v = draw()
    inputs = [tensor.requires_grad_() for tensor in (*inputs, v[None])]
    values, _ = run(*inputs, None, None, None, None, 0.0)
    found = torch.autograd.grad(Stopped.apply(values).sum(), inputs, allow_unused=True)
    assert found == (None, None, None, None)


def test_a_second_gradient_through_dropout_is_refused():
    query, *others = draw()
    values = with_backend("fused", dropout=0.5)(query.requires_grad_(), *others)
    with pytest.raises(BackendError, match="no second gradient"):
        torch.autograd.grad(values.sum(), query, create_graph=True)


def test_the_operators_keep_pytorchs_rules():
    *inputs, v = draw()
    query, key, value, v = (tensor.requires_grad_() for tensor in (*inputs, v[None]))
    limits = torch.zeros(2, 5, dtype=torch.int32, device=DEVICE)
    torch.library.opcheck(operators.additive_attention, (query, key, value, v, limits, limits + 7, None, None, 0.0))
    torch.library.opcheck(operators.additive_scores, (query, key, v))


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


@pytest.mark.skipif(not triton_launch.INTERPRETED, reason="compute-sanitizer sees it on a GPU")
@pytest.mark.parametrize(("queries", "keys", "dim"), [(9, 32, 70), (33, 63, 33), (33, 97, 5), (4, 33, 70)])
@pytest.mark.usefixtures("tiles")
def test_kernels_stay_within_their_tensors(monkeypatch, queries, keys, dim):
    memory, run, launched = interpreter._interpreter, triton_launch.Kernel.__call__, []

    def watched(kernel, grid, *arguments, **constants):
        launched.append(kernel)
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        monkeypatch.setattr(interpreter, "_interpreter", Watched(memory, tensors))
        run(kernel, grid, *arguments, **constants)

    monkeypatch.setattr(triton_launch.Kernel, "__call__", watched)
    values_and_gradients(with_backend("fused", visible=causal(40)), draw(1, queries, keys, dim))
    assert len(launched) >= 2, "nothing was watched"


def run_assembly(text, inputs):
    """What PTX of a few instructions gives, each rounded to single precision as a GPU does."""
    held = {f"${at}": np.float64(number) for at, number in enumerate(inputs, start=1)}
    steps = {"fma": lambda a, b, c: a * b + c, "mul": lambda a, b: a * b, "min": min, "rcp": lambda a: 1 / a}

    def number(name):
        if name.startswith("0f"):
            return np.float64(np.frombuffer(bytes.fromhex(name[2:]), ">f4")[0])
        return held[name]

    for line in re.findall(r"(\w+)\.[\w.]*f32 ([^;]+);", text.replace(".reg .f32", "")):
        name, *operands = line[1].split(", ")
        held[name] = np.float64(np.float32(steps[line[0]](*map(number, operands))))
    return held["$0"]


@pytest.mark.parametrize(("text", "cap"), [(score_kernels.USUAL, None), (score_kernels.CAPPED, 3e8)])
@pytest.mark.parametrize("size", [0.5, 4.0, 12.0])
def test_the_assembly_of_four_features_is_the_sum_of_their_tanhs(text, cap, size):
    random = np.random.default_rng(0)
    for _ in range(20):
        query, key = random.uniform(-size, size, (2, 4)) / 2
        v, before = random.normal(size=4), random.normal()
        u = -2 * v
        inputs = [before, *np.exp(2 * query), *np.exp(2 * key), *u[:2], -u[:2].sum() / 2, *u[2:], -u[2:].sum() / 2]
        found = run_assembly(text.value, np.float32(inputs))
        assert abs(found - (before + v @ np.tanh(query + key))) < 1e-5
    assert text.value.count("min.f32") == (0 if cap is None else 4)
    if cap is not None:  # four x of 10⁶⁰ would be infinite, and 0 · inf no number
        inputs = [0.0, *[1e30] * 4, *[1e8] * 4, *[-2.0, -2.0, 2.0, -2.0, -2.0, 2.0]]
        assert abs(run_assembly(text.value, np.float32(inputs)) - 4) < 1e-6


@pytest.mark.parametrize("size", [1e-4, 0.1, 4.0])
def test_the_assembly_of_small_features_keeps_their_digits(size):
    random = np.random.default_rng(0)
    for _ in range(20):
        query, key = random.uniform(0, size, (2, 2)) / 2
        u = random.normal(size=2)
        p, q, inverse = np.expm1(2 * query), np.expm1(2 * key), 1 / u
        inputs = np.float32([0.0, *p, *(q + 1), *q, *inverse, *(2 * inverse)])
        found, terms = run_assembly(score_kernels.SMALL_ONES.value, inputs), u * np.tanh(query + key)
        assert abs(found - terms.sum()) < 1e-6 * np.abs(terms).sum()


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
    monkeypatch.setattr(triton_launch, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(triton_launch, "stream_of", lambda gpu: 7)
    stub, tensor, other = Stub(), torch.ones(8), torch.ones(8)
    run = triton_launch.Kernel(stub)
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

    monkeypatch.setattr(triton_launch, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", Chosen)
    triton_launch.Kernel(Chooses())((1,), torch.ones(4).as_subclass(OnTheSecond), 4, WIDE=True)
    assert launched == [1]
    assert current == [0]
