"""One place decides what runs, says why, and says the truth."""

import pytest
import torch

from jumok.attention import (
    additive,
    attend,
    backends,
    blocks,
    causal,
    cosine,
    explain,
    from_lengths,
    gaussian_window,
    scaled_dot,
    sdpa,
)
from jumok.attention.call import AttentionCall
from jumok.errors import BackendError
from support.attention import DOT_PRODUCTS, NORMALISERS, SCORES, every_score, random_inputs, random_score
from support.combinations import in_pairs


@pytest.fixture
def ran(monkeypatch):
    """The backends that really computed something, seen where each does its work."""
    seen = []
    fused, in_blocks, mixed = sdpa.F.scaled_dot_product_attention, blocks.in_blocks, AttentionCall.mix

    def spy(name, function):
        def call(*args, **options):
            seen.append(name)
            return function(*args, **options)

        return call

    monkeypatch.setattr(sdpa.F, "scaled_dot_product_attention", spy("sdpa", fused))
    monkeypatch.setattr(blocks, "in_blocks", spy("blocked", in_blocks))
    monkeypatch.setattr(AttentionCall, "mix", spy("direct", mixed))
    return seen


@pytest.mark.parametrize(("name", "normalise", "size"), in_pairs(tuple(SCORES), NORMALISERS, ("small", "large")))
def test_the_backend_explained_is_the_backend_that_runs(monkeypatch, ran, name, normalise, size):
    if size == "large":
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
        monkeypatch.setattr(backends, "FEW_FEATURES", 100)
    inputs, score = random_inputs(), random_score(name, 3)
    plan = explain(*inputs, score=score, normalise=normalise)
    assert not ran
    attend(*inputs, score=score, normalise=normalise)
    assert ran[0] == plan.backend
    if name in DOT_PRODUCTS and normalise in ("softmax", "sum"):
        assert plan.backend == "sdpa"
    elif size == "large":
        assert plan.backend == "blocked"
    else:
        assert plan.backend == "direct"


@pytest.mark.parametrize("backend", ["direct", "blocked", "sdpa"])
def test_a_backend_asked_for_by_name_runs(ran, backend):
    inputs = random_inputs()
    attend(*inputs, backend=backend)
    assert ran[0] == backend
    assert explain(*inputs, backend=backend).backend == backend


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"score": "gaussian"}, 'score "gaussian" is not a dot product'),
        ({"score": additive(torch.ones(3).double())}, 'score "additive" is not a dot product'),
        ({"score": lambda q, k: q @ k.mT}, "is not a dot product"),
        ({"normalise": "sparsemax"}, "softmax only"),
        ({"normalise": torch.sigmoid}, "softmax only"),
        ({"visible": gaussian_window(torch.ones(4), 2.0) & causal()}, "Gaussian window"),
    ],
)
def test_sdpa_refuses_what_it_cannot_run_and_names_what_could(options, reason):
    inputs = random_inputs()
    for function in (attend, explain):
        with pytest.raises(BackendError) as raised:
            function(*inputs, backend="sdpa", **options)
        assert 'backend "sdpa" cannot run this call' in str(raised.value)
        assert reason in str(raised.value)
        assert f'"auto" would run "{explain(*inputs, **options).backend}"' in str(raised.value)
    assert reason in explain(*inputs, **options).against["sdpa"]
    assert reason in str(explain(*inputs, **options))


def test_nothing_to_compare_is_no_work_for_sdpa():
    inputs = random_inputs(keys=0)
    assert "nothing to compare" in explain(*inputs).against["sdpa"]
    with pytest.raises(BackendError, match="nothing to compare"):
        attend(*inputs, backend="sdpa")


@every_score
def test_what_stands_against_a_backend_names_the_score_as_it_was_given(name):
    inputs, score = random_inputs(), random_score(name, 3)
    plan = explain(*inputs, score=score, normalise="sparsemax")
    said = [reason for reason in plan.against.values() if "score" in reason]
    assert bool(said) == (name not in DOT_PRODUCTS)
    assert all(f'score "{name}" is n' in reason for reason in said)


def test_a_score_that_is_reduced_to_a_simpler_one_keeps_its_name():
    with pytest.raises(BackendError, match='score "concat" is not a dot product'):
        attend(*random_inputs(), score=random_score("concat", 3), backend="sdpa")


def test_a_plan_reads_as_sentences():
    plan = explain(*random_inputs(), score="gaussian")
    assert str(plan).splitlines() == [
        "direct: computed as the equation is written, all rows at once",
        '  not sdpa: score "gaussian" is not a dot product',
        '  not fused: score "gaussian" is neither additive nor a dot product',
        "  not blocked: the largest tensor, 960 bytes, is small enough to build at once",
    ]


@pytest.mark.parametrize(("keys", "said"), [(2**10, "64 KiB"), (2**14, "1 MiB"), (2**15, "2 MiB")])
def test_a_plan_says_sizes_plainly(keys, said):
    query, key = torch.zeros(16, 1), torch.zeros(keys, 1)
    assert said in explain(query, key, key, score="gaussian").against["blocked"]


def test_a_function_of_the_callers_is_never_cut_into_blocks_quietly(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)

    def biased(query, key):
        return query @ key.mT

    plan = explain(*random_inputs(), score=biased)
    assert plan.backend == "direct"
    assert plan.against["blocked"].startswith("score biased may look at positions, so it needs all queries at once")


def test_blocked_refuses_a_function_that_may_look_at_positions():
    def later_is_better(query, key):
        return torch.arange(query.shape[-2])[:, None] + key.sum(-1)[..., None, :].double()

    for function in (attend, explain):
        with pytest.raises(BackendError, match=r"score later_is_better may look at positions.*positional"):
            function(*random_inputs(), score=later_is_better, backend="blocked")


def test_a_normaliser_of_the_callers_is_never_cut_into_blocks_quietly(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)

    def over_queries(scores):
        return scores.softmax(-2)

    inputs, score = random_inputs(), additive(torch.ones(3).double())
    plan = explain(*inputs, score=score, normalise=over_queries)
    assert plan.against["blocked"] == "normalise over_queries is a function that may need to see every row at once"
    weights = attend(*inputs, score=score, normalise=over_queries).weights
    torch.testing.assert_close(weights(rows=[2, 0]), weights()[..., [2, 0], :])


@pytest.mark.parametrize("name", SCORES)
def test_devices_without_numbers_give_shapes(name):
    inputs = [tensor.to("meta") for tensor in random_inputs()]
    parameters = [parameter.to("meta") for parameter in SCORES[name].parameters(3)]
    out = attend(*inputs, score=SCORES[name].build(*parameters), visible=causal(), backend="direct")
    assert out.values.shape == (2, 3, 4, 2)
    assert out.values.device.type == "meta"


@pytest.mark.parametrize(
    ("score", "mask", "length"),
    in_pairs(
        (
            scaled_dot(-1.0),
            scaled_dot(-0.3),
            scaled_dot(0.0),
            scaled_dot(-0.0),
            scaled_dot(1e-46),
            cosine(-3.0),
            cosine(0.0),
        ),
        (None, causal(), causal(1), causal() & from_lengths([3, 1])),
        (3, 20, 70),
    ),
    ids=str,
)
def test_a_scale_of_zero_or_less_gives_the_numbers_of_the_direct_form(score, mask, length):
    torch.manual_seed(0)
    inputs = [torch.randn(2, length, 8, requires_grad=True) for _ in range(3)]
    wide = [one.detach().double().requires_grad_() for one in inputs]
    mine = attend(*inputs, score=score, visible=mask).values
    other = attend(*wide, score=score, visible=mask, backend="direct").values
    torch.testing.assert_close(mine.double(), other, rtol=1e-4, atol=1e-5)
    weight = torch.randn_like(other)
    gradients = torch.autograd.grad((mine * weight).sum(), inputs, materialize_grads=True)
    for one, two in zip(gradients, torch.autograd.grad((other * weight).sum(), wide), strict=True):
        torch.testing.assert_close(one.double(), two, rtol=1e-4, atol=1e-5)
