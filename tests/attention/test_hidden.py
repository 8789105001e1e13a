"""What is hidden stays hidden: zeros for queries that see nothing, and NaN or infinity that never leaves its place."""

import pytest
import torch

from jumok.attention import attend, causal, from_lengths, from_torch_padding, gaussian_window, window
from support.attention import (
    POSITIONS,
    SCORES,
    assert_all_close,
    attended_values,
    every_combination,
    every_score,
    every_score_and_backend,
    every_score_backend_and,
    random_inputs,
    random_score,
    values_and_gradients,
)
from support.combinations import in_pairs

BROKEN = [torch.nan, torch.inf, -torch.inf]


def with_hidden_rows(lead=(2, 3), queries=4, keys=5):
    """A mask under which query 1 sees nothing, nor does anybody in the second sequence."""
    mask = torch.rand(*lead, queries, keys) > 0.3
    mask[..., 0] = True
    mask[..., 1, :] = False
    mask[1] = False
    return mask


@every_combination
def test_a_query_that_sees_nothing_gets_zeros_in_values_weights_and_gradients(name, normalise, backend):
    inputs, parameters, mask = random_inputs(), SCORES[name].parameters(3), with_hidden_rows()
    options = {"normalise": normalise, "visible": mask, "backend": backend}
    weights = []

    def compute(query, key, value, *parameters):
        out = attend(query, key, value, score=SCORES[name].build(*parameters), **options)
        weights.append(out.weights())
        return torch.cat([out.values, out.weights()], -1)

    found, d_query, d_key, d_value, *others = values_and_gradients(compute, [*inputs, *parameters])
    hidden = ~mask.any(-1)
    assert hidden.sum() == 3 + 12
    assert (found[hidden] == 0).all()
    assert (d_query[hidden] == 0).all()
    assert (d_key[1] == 0).all()
    assert (d_value[1] == 0).all()
    assert all(tensor.isfinite().all() for tensor in (found, d_query, d_key, d_value, *others))
    shown = weights[0][~hidden].sum(-1)
    compact = name in ("boxcar", "epanechnikov", "triangular")
    assert ((shown - 1).abs() < 1e-9).all() or (compact and ((shown - 1).abs() < 1e-9).logical_or(shown == 0).all())


@every_score_and_backend
def test_when_every_row_is_hidden_nothing_but_zeros_comes_out(name, backend):
    inputs, score = random_inputs(), random_score(name, 3)
    for visible in (torch.tensor(False), from_lengths([0, 0]), causal(offset=-9)):
        found = values_and_gradients(
            lambda *given, visible=visible: attend(*given, score=score, visible=visible, backend=backend).values, inputs
        )
        assert all((tensor == 0).all() for tensor in found)


def assert_no_trace(compute, clean, given, untouched):
    """The same values in untouched rows and the same gradients in all inputs, given or not, none of them NaN."""
    upstream = torch.randn((*untouched.shape, 2), dtype=torch.float64) * untouched[..., None]
    wanted = values_and_gradients(compute, clean, upstream)
    found = values_and_gradients(compute, given, upstream)
    torch.testing.assert_close(found[0][untouched], wanted[0][untouched])
    for number, (one, other) in enumerate(zip(found[1:], wanted[1:], strict=True)):
        assert one.isfinite().all(), f"the gradient of input {number} is not finite"
        where = ~given[number].isfinite().all(-1) if number < 3 else torch.zeros(one.shape[:-1], dtype=torch.bool)
        torch.testing.assert_close(one[~where], other[~where])
        assert (one[where] == 0).all()


@every_score_backend_and(broken=BROKEN)
def test_padding_that_is_not_finite_leaves_no_trace(name, backend, broken):
    clean, parameters = random_inputs(), SCORES[name].parameters(3)
    visible = from_lengths([3, 5])
    given = [tensor.clone() for tensor in clean]
    given[1][0, :, 3:] = broken
    given[2][0, :, 4, 1] = broken

    def compute(query, key, value, *parameters):
        return attend(query, key, value, score=SCORES[name].build(*parameters), visible=visible, backend=backend).values

    assert_no_trace(compute, clean + parameters, given + parameters, torch.ones(2, 3, 4, dtype=torch.bool))


@every_score_backend_and(size=[1e200, 1e308])
def test_padding_so_large_that_it_would_overflow_leaves_no_trace(name, backend, size):
    clean, parameters = random_inputs(), SCORES[name].parameters(3)
    visible = with_hidden_rows()
    visible[..., 3:] = False
    large = [tensor.clone() for tensor in clean]
    large[0][visible.any(-1).logical_not()] = -size
    for tensor in large[1:]:
        tensor[..., 3:, :] = size

    def compute(query, key, value, *parameters):
        return attend(query, key, value, score=SCORES[name].build(*parameters), visible=visible, backend=backend).values

    wanted, found = (values_and_gradients(compute, [*inputs, *parameters]) for inputs in (clean, large))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mask", [causal(), from_lengths([3, 5]), gaussian_window(torch.arange(4.0), 1.5)], ids=str)
def test_what_is_broken_is_found_a_few_rows_at_a_time_as_well(mask, monkeypatch):
    inputs = random_inputs()
    inputs[1][0, 1, 2, 0] = torch.nan
    wanted = attend(*inputs, visible=mask).values
    monkeypatch.setattr("jumok.attention.nonfinite.PLANE", 1)
    torch.testing.assert_close(attend(*inputs, visible=mask).values, wanted, equal_nan=True)


@every_score_backend_and(broken=BROKEN, where=["key", "value", "query"])
def test_under_a_causal_mask_only_the_queries_that_see_it_become_nan(name, backend, broken, where):
    clean, parameters = random_inputs(queries=5), SCORES[name].parameters(3)
    given = [tensor.clone() for tensor in clean]
    given[["query", "key", "value"].index(where)][0, 1, 3, 0] = broken
    sees = torch.zeros(2, 3, 5, dtype=torch.bool)
    sees[0, 1, 3:] = True
    if where == "query":
        sees[0, 1, 4] = False

    def compute(query, key, value, *parameters):
        return attend(
            query, key, value, score=SCORES[name].build(*parameters), visible=causal(), backend=backend
        ).values

    assert compute(*given, *parameters)[sees].isnan().all()
    assert_no_trace(compute, clean + parameters, given + parameters, ~sees)


@every_score_backend_and(broken=BROKEN)
def test_a_broken_query_that_sees_nothing_leaves_no_trace(name, backend, broken):
    clean, parameters = random_inputs(), SCORES[name].parameters(3)
    mask = with_hidden_rows()
    given = [clean[0].clone(), *clean[1:]]
    given[0][:, :, 1] = broken

    def compute(query, key, value, *parameters):
        return attend(query, key, value, score=SCORES[name].build(*parameters), visible=mask, backend=backend).values

    assert (compute(*given, *parameters)[:, :, 1] == 0).all()
    assert_no_trace(compute, clean + parameters, given + parameters, torch.ones(2, 3, 4, dtype=torch.bool))


@every_combination
def test_weights_of_rows_that_see_nonfinite_numbers_are_nan_and_of_others_as_before(name, normalise, backend):
    inputs, score = random_inputs(queries=5), random_score(name, 3)
    wanted = attend(*inputs, score=score, normalise=normalise, visible=causal(), backend=backend).weights()
    inputs[1][0, 2, 3] = torch.nan
    out = attend(*inputs, score=score, normalise=normalise, visible=causal(), backend=backend)
    sees = torch.zeros(2, 3, 5, dtype=torch.bool)
    sees[0, 2, 3:] = True
    for found in (out.weights(), out.weights(rows=range(5)), out.weights(heads=range(3))):
        assert found[sees].isnan().all()
        torch.testing.assert_close(found[~sees], wanted[~sees])
    assert out.weights.entropy()[sees].isnan().all()
    assert out.weights.entropy()[~sees].isfinite().all()


@every_score
@pytest.mark.parametrize("normalise", ["softmax", "sparsemax", "entmax15"])
def test_without_a_mask_everybody_sees_a_nan(name, normalise):
    query, key, value = random_inputs(lead=())
    if name == "location":
        value[2] = torch.nan  # it does not read keys
    else:
        key[2] = torch.nan
    assert attend(query, key, value, score=random_score(name, 3), normalise=normalise).values.isnan().all()


MASKS = {
    "causal": causal(),
    "one key at first": causal(offset=-2),
    "lengths": from_lengths([3, 17]),
    "an empty sequence": from_lengths([0, 17]),
    "lengths of both": from_lengths([3, 17], query_lengths=[17, 5]),
    "causal and lengths": causal() & from_lengths([3, 17]),
    "causal or lengths": causal(-2) | from_lengths([0, 9]),
    "window": window(3, 2),
    "window beside the keys": window(1, offset=9),
    "window and lengths": window(3) & from_lengths([3, 17]),
    "inverted": ~from_lengths([3, 17]),
    "tensor": (torch.rand(2, 1, 17, 17, generator=torch.Generator().manual_seed(0)) > 0.3).triu(1),
    "matrix": torch.ones(17, 17, dtype=torch.bool).tril(-1),
    "row": torch.arange(17) < 9,
    "padding": from_torch_padding(torch.arange(17) > torch.tensor([[3], [16]])),
}


@pytest.mark.parametrize(
    ("mask", "where", "broken", "dtype"),
    in_pairs(tuple(MASKS), ("query", "key", "value"), BROKEN, (torch.float32, torch.float64)),
)
def test_calls_without_gradients_hide_the_same(mask, where, broken, dtype):
    """Calls that need no gradient look for NaN in another way, and all but the first skip the checks of arguments."""
    for row in (1, 16):
        inputs = random_inputs(queries=17, keys=17, value_dim=3, dtype=dtype)
        inputs[["query", "key", "value"].index(where)][:, 1, row, 0] = broken
        wanted = attend(*inputs, visible=MASKS[mask], backend="direct")
        for _ in range(2):
            found = attend(*inputs, visible=MASKS[mask])
            torch.testing.assert_close(found.values, wanted.values, equal_nan=True)
            torch.testing.assert_close(found.weights(), wanted.weights(), equal_nan=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("broken", [0, *BROKEN])
def test_calls_with_gradients_hide_the_same(mask, broken):
    inputs = random_inputs(queries=17, keys=17, value_dim=3)
    for tensor in inputs:
        tensor[:, 1, 12, 0] = broken
    upstream = torch.randn(2, 3, 17, 3, dtype=torch.float64)
    wanted = values_and_gradients(attended_values(visible=MASKS[mask], backend="direct"), inputs, upstream)
    for _ in range(2):
        found = values_and_gradients(attended_values(visible=MASKS[mask]), inputs, upstream)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("mask", [causal(), from_lengths([3, 16])], ids=["causal", "lengths"])
def test_without_gradients_hidden_numbers_so_large_that_they_would_overflow_leave_no_trace(mask):
    clean = random_inputs(queries=16, keys=17, value_dim=3, dtype=torch.float32)
    large = [tensor.clone() for tensor in clean]
    large[1][:, :, 16] = large[2][:, :, 16] = 3e38
    for _ in range(2):
        torch.testing.assert_close(attend(*large, visible=mask).values, attend(*clean, visible=mask).values)


def test_an_infinite_key_whose_scores_are_minus_infinity_makes_those_who_see_it_nan():
    query, key, value = (tensor.abs() + 0.1 for tensor in random_inputs(queries=17, keys=17, value_dim=3))
    key[0, 0, 5] = -torch.inf
    for _ in range(2):
        found = attend(query, key, value, visible=causal()).values
        assert found[0, 0, 5:].isnan().all()
        assert found.isnan().sum() == 12 * 3


few_keys = pytest.mark.parametrize(
    ("dtype", "keys"), [(torch.float32, 1), (torch.float32, 15), (torch.float32, 16), (torch.float64, 7)], ids=str
)
no_mask_of_its_own = pytest.mark.parametrize("visible", [None, causal()], ids=["everything", "causal"])


@few_keys
@no_mask_of_its_own
def test_a_query_that_is_nan_answers_nan_however_few_keys_there_are(dtype, keys, visible):
    query, key, value = random_inputs(keys=keys, value_dim=3, dtype=dtype)
    wanted = attend(query, key, value, visible=visible).values
    query[1, 2, 0, 0] = torch.nan
    found = attend(query, key, value, visible=visible, backend="sdpa").values
    assert found[1, 2, 0].isnan().all()
    found[1, 2, 0] = wanted[1, 2, 0]
    torch.testing.assert_close(found, wanted)


@few_keys
@no_mask_of_its_own
def test_where_every_key_is_nan_everybody_answers_nan(dtype, keys, visible):
    query, key, value = random_inputs(keys=keys, value_dim=3, dtype=dtype)
    assert attend(query, key * torch.nan, value, visible=visible, backend="sdpa").values.isnan().all()


@few_keys
@no_mask_of_its_own
def test_where_no_score_is_finite_the_output_is_nan_or_zero_however_few_keys_there_are(dtype, keys, visible):
    large = torch.finfo(dtype).max ** 0.9
    query, key = torch.full((2, 3, 2), large, dtype=dtype), torch.full((2, keys, 2), large, dtype=dtype)
    key[..., 0] *= -1  # -inf + inf, which is NaN; a fused multiply-add makes it -inf + large², which is -inf
    values = attend(query, key, key / large, visible=visible, backend="sdpa").values
    assert (values.isnan() | (values == 0)).all()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_under_vmap_a_query_that_is_nan_answers_nan():
    query, key, value = random_inputs(value_dim=3)
    query[1, 2, 0] = torch.nan
    found = torch.func.vmap(lambda *given: attend(*given, backend="sdpa").values)(query, key, value)
    assert found[1, 2, 0].isnan().all()
    assert found.isnan().sum() == 3


def test_answers_that_are_zero_without_a_nan_keep_their_gradients():
    query, key, value = random_inputs(value_dim=3)
    value[..., 0] = 0
    found, wanted = (
        values_and_gradients(attended_values(backend=backend), [query, key, value]) for backend in ("sdpa", "direct")
    )
    assert (found[0][..., 0] == 0).all()
    assert_all_close(found, wanted)


def test_nonfinite_broadcast_keys_are_isolated_in_their_own_shape(backend):
    query, key, value = torch.randn(2, 3, 4, 3), torch.randn(5, 3), torch.randn(2, 1, 5, 2)
    key[4], value[0, 0, 3] = torch.nan, torch.inf
    visible = from_lengths([3, 4])
    values, *gradients = values_and_gradients(
        lambda q, k, v: attend(q, k, v, visible=visible, backend=backend).values, [query, key, value]
    )
    assert all(tensor.isfinite().all() for tensor in (values, *gradients))
    assert [gradient.shape for gradient in gradients] == [query.shape, key.shape, value.shape]


def test_a_gaussian_window_keeps_nan_out_too():
    query, key, value = random_inputs(lead=())
    key[4] = value[4] = torch.nan
    centre = torch.full((4,), 1.0, dtype=torch.float64)
    values, *gradients = values_and_gradients(
        lambda q, k, v, p: attend(q, k, v, visible=gaussian_window(p, 1.0)).values, [query, key, value, centre]
    )
    assert all(tensor.isfinite().all() for tensor in (values, *gradients))


def test_nan_in_positions_beyond_the_keys_of_a_location_score_is_not_read():
    query, key, value = random_inputs(lead=())
    weight = torch.randn(POSITIONS, 3, dtype=torch.float64)
    weight[5:] = torch.nan
    assert attend(query, key, value, score=SCORES["location"].build(weight)).values.isfinite().all()
