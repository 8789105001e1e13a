"""The operators for all steps of recurrent layers and decoders, against the steps one by one and against PyTorch.

On a GPU, or by Triton's interpreter; in a process of its own, because that is chosen when Triton is imported.
"""

import pytest
import torch

import jumok.models.rnn.attention as rnn_attention
from jumok.layers import LuongAttention, Recurrence
from jumok.layers.gpu.recurrence import recurrent_steps
from jumok.layers.recurrent import TORCH
from jumok.models import RnnDecoderConfig, RnnEncoderConfig, build_model
from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.attention import BahdanauStep, LuongStep
from jumok.models.rnn.gpu import steps as step_launches

torch.use_deterministic_algorithms(True, warn_only=True)  # fresh memory holds NaN
torch.backends.cudnn.allow_tf32 = False
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")

SIZES = {(3, 4, 5, 6, 7): 16384, (1, 1, 1, 1, 1): 16384, (2, 2, 65, 33, 17): 16384, (2, 2, 17, 129, 63): 256}
"""Sentences, target tokens, source tokens, width, encoder's width; and the tile of a program, whole or in parts."""


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(params=SIZES, ids=str)
def size(request, monkeypatch):
    monkeypatch.setattr(step_launches, "STEP_TILE", SIZES[request.param])
    monkeypatch.setattr(step_launches, "TILE", SIZES[request.param])
    return request.param


def assert_as_accurate(names, exact, plain, found):
    for name, want, ref, got in zip(names, exact, plain, found, strict=True):
        assert got.isfinite().all(), name
        ours, theirs = (got - want).abs().max(), (ref - want).abs().max()
        assert ours <= 2 * theirs + 1e-5, f"{name} is off by {ours:.1e}; plain PyTorch by {theirs:.1e}"


def compare_decoders(monkeypatch, step, recurrence, size, *, hidden_sentence=False):
    """All outputs and gradients of a decoder's steps: float64 one by one, float32 one by one, and as one operator."""
    batch, target, source, width, encoder_width = size
    visible = torch.arange(source) < torch.randint(1, source + 1, (batch, 1))
    if hidden_sentence:
        visible[-1] = False
    states, words = torch.randn(batch, source, encoder_width), torch.randn(batch, target, recurrence.inputs)
    states[~visible] = torch.nan if hidden_sentence else 0.0
    first = [torch.randn(batch, 1, width).tanh() for _ in range(recurrence.parts)]
    upstream = [torch.randn(batch, target, size) for size in (width, encoder_width, source)]

    def outcome(fused, dtype):
        monkeypatch.setattr(rnn_attention, "has_step_kernels", lambda *_: fused)
        step.to(dtype), recurrence.to(dtype)
        leaves = [part.to(dtype).requires_grad_() for part in (words, states, *first)]
        shown = torch.where(visible[..., None], leaves[1], 0) if not fused else leaves[1]
        encoding = Encoding(shown, visible, torch.zeros(batch, encoder_width, dtype=dtype))
        output = step.all_steps(recurrence, encoding, leaves[0], step.first_state(encoding, (tuple(leaves[2:]),)))
        weights = torch.cat([part if isinstance(part, torch.Tensor) else part() for part in output.weights], 1)
        outputs = [output.state, output.context, weights]
        if output.penalty is not None:
            outputs.append(output.penalty)
        loss = sum((part * up.to(dtype)).sum() for part, up in zip(outputs, upstream, strict=False))
        if output.penalty is not None:
            loss = loss + output.penalty.sum()
        parameters = [*step.parameters(), *recurrence.parameters()]
        return [*outputs, *torch.autograd.grad(loss, [*leaves, *parameters])]

    exact, plain, found = (
        outcome(*how) for how in ((False, torch.float64), (False, torch.float32), (True, torch.float32))
    )
    names = [str(number) for number in range(len(exact))]
    assert_as_accurate(names, exact, plain, found)


@pytest.mark.parametrize(("cell", "coverage"), [("rnn", False), ("gru", True), ("lstm", True), ("gru", False)])
def test_the_steps_of_a_bahdanau_decoder_as_one_operator_equal_the_steps_one_by_one(monkeypatch, cell, coverage, size):
    _, _, _, width, encoder_width = size
    step = BahdanauStep(width=width, encoder_width=encoder_width, coverage=coverage, coverage_weight=0.7)
    if coverage:
        torch.nn.init.normal_(step.attention.w)
    compare_decoders(monkeypatch, step, Recurrence(cell=cell, inputs=3, fed=encoder_width, width=width), size)


@pytest.mark.parametrize(("cell", "score"), [("rnn", "dot"), ("gru", "general"), ("lstm", "concat"), ("gru", "concat")])
def test_the_steps_of_a_decoder_with_input_feeding_as_one_operator_equal_the_steps_one_by_one(
    monkeypatch, cell, score, size
):
    *_, width, encoder_width = size
    encoder_width = width if score == "dot" else encoder_width
    attention = LuongAttention(query_width=width, key_width=encoder_width, score=score)
    step = LuongStep(attention, width=width, input_feeding=True)
    recurrence = Recurrence(cell=cell, inputs=3, fed=width, width=width)
    compare_decoders(monkeypatch, step, recurrence, (*size[:4], encoder_width))


def test_what_is_hidden_reaches_nothing_even_nan_and_a_sentence_without_keys_has_zeros_for_context(monkeypatch):
    step = BahdanauStep(width=6, encoder_width=5, coverage=False, coverage_weight=1.0)
    step.attention.to_key = torch.nn.Identity()  # NaN would spread in the projection of keys
    step.attention.to_query = torch.nn.Linear(6, 5, bias=False)
    step.attention.v = torch.nn.Parameter(torch.randn(5))
    recurrence = Recurrence(cell="gru", inputs=3, fed=5, width=6)
    compare_decoders(monkeypatch, step, recurrence, (3, 4, 6, 6, 5), hidden_sentence=True)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize(("batch", "time", "width"), [(3, 4, 6), (1, 1, 1), (2, 3, 65)])
def test_two_directions_side_by_side_equal_pytorchs_own(cell, batch, time, width):
    module = TORCH[cell](3, width, bidirectional=True)
    parts = 2 if cell == "lstm" else 1
    given = [torch.randn(time, batch, 3), *(torch.randn(2, batch, width).tanh() for _ in range(parts))]
    upstream = torch.randn(time, batch, 2 * width)

    def by_torch(x, *first):
        return module(x, first if cell == "lstm" else first[0])[0]

    def by_operator(x, *first):
        ends = ("", "_reverse")
        inputs = zip((x, x.flip(0)), ends, strict=True)
        gates = [
            torch.nn.functional.linear(part, getattr(module, f"weight_ih_l0{end}"), getattr(module, f"bias_ih_l0{end}"))
            for part, end in inputs
        ]
        recurrent, bias = (
            torch.stack([getattr(module, f"{name}_hh_l0{end}") for end in ends]) for name in ("weight", "bias")
        )
        states = recurrent_steps(cell, torch.stack(gates, 1), first, recurrent, bias)
        return torch.cat([states[:, 0], states[:, 1].flip(0)], -1)

    def outcome(run, dtype):
        module.to(dtype)
        leaves = [part.to(dtype).requires_grad_() for part in given]
        output = run(*leaves)
        return [output, *torch.autograd.grad((output * upstream.to(dtype)).sum(), [*leaves, *module.parameters()])]

    exact, plain, found = (
        outcome(*how) for how in ((by_torch, torch.float64), (by_torch, torch.float32), (by_operator, torch.float32))
    )
    assert_as_accurate([str(number) for number in range(len(exact))], exact, plain, found)


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "additive"},
        {"attention": "general"},
        {"attention": "general", "input_feeding": True},
        {"layers": 2},
    ],
    ids=str,
)
def test_under_autocast_a_whole_model_is_near_itself_in_single_precision(options):
    model = build_model(
        RnnEncoderConfig(width=32, embedding=16, dropout=0.0),
        RnnDecoderConfig(width=32, embedding=16, dropout=0.0, **options),
        source_vocabulary=20,
        target_vocabulary=20,
    )
    source, target = torch.randint(4, 20, (3, 7)), torch.randint(4, 20, (3, 5))
    visible = torch.arange(7) < torch.tensor([[7], [3], [5]])
    with torch.autocast(source.device.type, enabled=False):
        want = model(source, visible, target).logits
    with torch.autocast(source.device.type, torch.bfloat16):
        found = model(source, visible, target).logits
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), want, atol=0.03, rtol=0.03)
