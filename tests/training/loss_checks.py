"""The loss of an output layer without stored logits, against PyTorch: on a GPU, or by Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from jumok.models.encoder_decoder import Decoder, Hidden, LinearOutput
from jumok.training import loss_gpu
from jumok.training.loss import TargetTokens, hidden_loss, smoothed_cross_entropy
from jumok.training.loss_gpu import smoothed_cross_entropy_of_states
from jumok.training.r_drop import symmetric_divergence

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.use_deterministic_algorithms(True, warn_only=True)  # fresh memory holds NaN


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr(loss_gpu, "MOST_LOGITS", 2**14)


def draw(tokens, vocabulary, width, *, spread=1.0):
    torch.manual_seed(tokens + vocabulary)
    states, weight = torch.randn(tokens, width), spread * torch.randn(vocabulary, width) / width**0.5
    target = torch.randint(vocabulary, (tokens,))
    target[3::5] = -1
    return [part.to(DEVICE) for part in (states, weight, torch.randn(vocabulary), target)]


def outcome(loss, leaves):
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    total, cross_entropy = loss(*leaves)
    return [total.detach(), cross_entropy.detach(), *torch.autograd.grad(total / 7, leaves)]


def by_torch(target, smoothing):
    def loss(*leaves):
        logits = F.linear(*leaves)
        total = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum", ignore_index=-1)
        return total, F.cross_entropy(logits, target, reduction="sum", ignore_index=-1)

    return loss


def fused(target, smoothing):
    def loss(states, weight, bias=None):
        return smoothed_cross_entropy_of_states(states, weight, bias, target, smoothing=smoothing)

    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("tokens", "vocabulary", "width"), [(1, 2, 8), (63, 65, 16), (200, 129, 24), (5, 4100, 8), (0, 9, 8)]
)
def test_it_is_as_accurate_as_plain_torch(tokens, vocabulary, width, biased, smoothing, dtype):
    *leaves, target = draw(tokens, vocabulary, width, spread=4.0)
    leaves = leaves if biased else leaves[:2]
    exact = outcome(by_torch(target, smoothing), [leaf.double() for leaf in leaves])

    def plain(*leaves):
        seen = target >= 0
        return smoothed_cross_entropy(F.linear(leaves[0][seen], *leaves[1:]), target[seen], smoothing=smoothing)

    with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = outcome(fused(target, smoothing), leaves)
        reference = outcome(plain, leaves) if tokens else exact
    for got, ref, want in zip(found, reference, exact, strict=True):
        assert got.dtype == torch.float32
        if want.numel():
            ours, theirs = (float((part - want).abs().max()) for part in (got, ref))
            rounding = torch.finfo(dtype).eps * float(want.abs().max())  # of a sum of one term, which may be lucky
            assert ours <= 2 * theirs + rounding + 2e-6


def test_a_target_that_does_not_count_has_no_loss_and_no_gradient_whatever_its_state():
    *leaves, target = draw(65, 33, 8)
    clean = outcome(fused(target, 0.1), leaves)
    leaves[0] = torch.where(target[:, None] < 0, 1e4, leaves[0])
    found = outcome(fused(target, 0.1), leaves)
    assert (found[2][target < 0] == 0).all()
    for got, want in zip(found, clean, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("spread", [1e-3, 1e3])
def test_small_and_large_logits_are_exact(spread):
    *leaves, target = draw(65, 129, 16, spread=spread)
    exact = outcome(by_torch(target, 0.1), [leaf.double() for leaf in leaves])
    for got, want in zip(outcome(fused(target, 0.1), leaves), exact, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


def test_without_gradients_the_loss_is_the_same():
    *leaves, target = draw(65, 33, 8)
    with torch.no_grad():
        found = fused(target, 0.1)(*leaves)
    torch.testing.assert_close(found, by_torch(target, 0.1)(*leaves))


def test_tied_weights_get_the_gradients_of_both_uses():
    states, weight, bias, target = draw(65, 33, 8)
    table = weight.requires_grad_()
    ids = torch.arange(65, device=DEVICE) % 33
    (found,) = torch.autograd.grad(fused(target, 0.1)(states + table[ids], table, bias)[0], table)
    (want,) = torch.autograd.grad(by_torch(target, 0.1)(states + table[ids], table, bias)[0], table)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


class LinearDecoder(Decoder):
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(8, 33)

    def hidden(self, encoding, target_in):
        raise NotImplementedError

    def logits(self, hidden):
        return self.output(hidden.states)


class OpenDecoder(LinearDecoder):
    def linear_output(self, hidden):
        return LinearOutput(hidden.states, self.output.weight, self.output.bias)


def test_a_decoder_that_shows_its_output_layer_has_the_same_loss_with_and_without_padding():
    torch.manual_seed(0)
    plain, fast = LinearDecoder().to(DEVICE), OpenDecoder().to(DEVICE)
    fast.load_state_dict(plain.state_dict())
    states, ids = torch.randn(3, 5, 8, device=DEVICE), torch.randint(33, (3, 5), device=DEVICE)
    visible = torch.arange(5, device=DEVICE) < torch.tensor([[5], [2], [0]], device=DEVICE)
    positions = visible.flatten().nonzero().flatten()
    packed = TargetTokens(positions, ids.flatten()[positions])
    padded = TargetTokens(None, ids.flatten(), visible.flatten())
    want = hidden_loss(plain, Hidden(states), packed, smoothing=0.1)
    for tokens in (packed, padded):
        torch.testing.assert_close(hidden_loss(fast, Hidden(states), tokens, smoothing=0.1), want)


def test_it_compiles_without_a_break():
    *leaves, target = draw(65, 33, 8)
    compiled = torch.compile(fused(target, 0.1), backend="aot_eager", fullgraph=True)
    for got, want in zip(outcome(compiled, leaves), outcome(fused(target, 0.1), leaves), strict=True):
        torch.testing.assert_close(got, want)


def r_dropped(target, smoothing, alpha, kernel):
    """Half of the cross-entropies of two passes and of their divergence, by the kernel or by the reference."""

    def loss(states, weight, bias=None):
        if kernel:
            both = torch.cat([target, target])
            return smoothed_cross_entropy_of_states(states, weight, bias, both, smoothing=smoothing, r_drop=alpha)
        first, second = (F.linear(part[target >= 0], weight, bias) for part in states.chunk(2))
        ids = target[target >= 0]
        one, other = (smoothed_cross_entropy(logits, ids, smoothing=smoothing) for logits in (first, second))
        divergence = alpha * symmetric_divergence(first, second)
        return 0.5 * (one.total + other.total + divergence), 0.5 * (one.cross_entropy + other.cross_entropy)

    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "vocabulary", "width", "biased", "smoothing"),
    [(1, 2, 8, True, 0.0), (63, 65, 16, False, 0.1), (200, 129, 24, True, 0.1), (5, 4100, 8, False, 0.0)],
)
def test_r_drop_is_as_accurate_as_plain_torch(tokens, vocabulary, width, biased, smoothing, dtype):
    *leaves, target = draw(tokens, vocabulary, width, spread=2.0)
    leaves[0] = torch.cat([leaves[0], leaves[0] + 0.5 * torch.randn_like(leaves[0])])
    leaves = leaves if biased else leaves[:2]
    exact = outcome(r_dropped(target, smoothing, 3.0, False), [leaf.double() for leaf in leaves])
    with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
        found, reference = (outcome(r_dropped(target, smoothing, 3.0, kernel), leaves) for kernel in (True, False))
    for got, ref, want in zip(found, reference, exact, strict=True):
        ours, theirs = (float((part - want).abs().max()) for part in (got, ref))
        assert ours <= 2 * theirs + torch.finfo(dtype).eps * float(want.abs().max()) + 2e-6


def test_a_decoder_that_shows_its_output_layer_has_the_same_r_drop_loss():
    torch.manual_seed(0)
    plain, fast = LinearDecoder().to(DEVICE), OpenDecoder().to(DEVICE)
    fast.load_state_dict(plain.state_dict())
    states, ids = torch.randn(6, 5, 8, device=DEVICE), torch.randint(33, (3, 5), device=DEVICE)
    visible = (torch.arange(5, device=DEVICE) < torch.tensor([[5], [2], [0]], device=DEVICE)).flatten()
    tokens = TargetTokens(None, ids.flatten(), visible).twice(15)
    found, want = (hidden_loss(of, Hidden(states), tokens, smoothing=0.1, r_drop=5.0) for of in (fast, plain))
    torch.testing.assert_close(found, want)
