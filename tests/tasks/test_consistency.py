"""Consistency of several passes, held against the equations of Feng et al. (2020) written out item by item."""

import pytest
import torch

from jumok.tasks.node_classification import consistency_loss, sharpened


def written_out(passes, temperature, confidence):
    """The consistency loss, number by number."""
    total = 0.0
    count, classes = passes[0].shape
    for item in range(count):
        mean = [sum(float(one[item, c]) for one in passes) / len(passes) for c in range(classes)]
        if max(mean) <= confidence:
            continue
        powers = [share ** (1 / temperature) for share in mean]
        target = [power / sum(powers) for power in powers]
        total += sum((float(one[item, c]) - target[c]) ** 2 for one in passes for c in range(classes))
    return total / len(passes) / count


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0])
@pytest.mark.parametrize(("passes", "confidence"), [(2, 0.0), (4, 0.0), (3, 0.4)])
def test_the_loss_is_the_distance_from_the_sharpened_mean(passes, confidence, temperature):
    logits = [torch.randn(7, 4, dtype=torch.float64) for _ in range(passes)]
    wanted = written_out([one.softmax(-1) for one in logits], temperature, confidence)
    assert consistency_loss(logits, temperature, confidence).item() == pytest.approx(wanted, rel=1e-4)


def test_the_target_has_no_gradient():
    first, second = (torch.randn(5, 3, requires_grad=True) for _ in range(2))
    consistency_loss([first, second], 0.5).backward()
    target = sharpened((first.softmax(-1) + second.softmax(-1)).detach() / 2, 0.5)
    (wanted,) = torch.autograd.grad((first.softmax(-1) - target).square().sum(-1).mean() / 2, first)
    assert torch.allclose(first.grad, wanted, atol=1e-6)


def test_probabilities_of_zero_stay_finite_at_a_low_temperature():
    logits = torch.tensor([[200.0, -200.0], [0.0, 0.0]], requires_grad=True)
    loss = consistency_loss([logits, -logits], 0.01)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
