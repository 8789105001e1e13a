"""Every mistake in a call of attention: an error of ours that names the argument, what was seen and what was wanted."""

import pytest
import torch

from jumok.attention import (
    additive,
    alibi,
    attend,
    boxcar,
    causal,
    concat,
    cosine,
    distribution,
    epanechnikov,
    explain,
    from_lengths,
    from_torch_mask,
    from_torch_padding,
    gaussian,
    gaussian_window,
    general,
    location,
    packed,
    positional,
    scaled_dot,
    score_pairs,
    triangular,
    window,
)
from jumok.errors import ArgumentError, BackendError, JumokError
from support.attention import SCORES, raises

both = pytest.mark.parametrize("function", [attend, explain])


@both
@pytest.mark.parametrize("name", ["key", "value"])
def test_types_and_devices_that_differ(function, q, k, v, name):
    given = {"query": q, "key": k, "value": v}
    with raises(name, "torch.float64", "query", "torch.float32"):
        function(**{**given, name: given[name].double()})
    with raises(name, "meta", "query", "cpu"):
        function(**{**given, name: given[name].to("meta")})


@both
def test_keys_without_values(function, q, k, v):
    with raises("key", "5", "value", "4"):
        function(q, k, v[..., :4, :])


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine", "gaussian", "boxcar", "epanechnikov", "triangular"])
def test_widths_that_differ(q, k, v, score):
    for function in (attend, explain):
        with raises("query", "8", "key", "7", "width", f'score "{score}"'):
            function(q, k[..., :7], v, score=score)


@pytest.mark.parametrize("name", [name for name, case in SCORES.items() if case.shapes(8)])
def test_leading_axes_of_parameters_that_do_not_broadcast(q, k, v, name):
    score = SCORES[name].build(*SCORES[name].parameters(8, lead=(5,), dtype=torch.float32))
    for call in (lambda: attend(q, k, v, score=score), lambda: score_pairs(q, k, score)):
        with raises("leading axes", "broadcast", "[5]", "[2, 3]", f'score "{name}"'):
            call()


def test_scores_alone_check_what_they_are_given(q, k):
    with raises("key", "torch.float64"):
        score_pairs(q, k.double())
    with raises("query", "8", "key", "3"):
        score_pairs(q, k[..., :3])
    with raises("leading axes", "[2, 3]", "[3, 3]"):
        score_pairs(q, torch.zeros(3, 3, 5, 8))


def test_an_unknown_normaliser_of_scores():
    with raises("normalise", "'softmin'", "softmax"):
        distribution(torch.zeros(2, 3), "softmin")


@pytest.mark.parametrize("kernel", [gaussian, boxcar, epanechnikov, triangular])
def test_bandwidths_that_are_not_positive_and_finite(kernel):
    for wrong in (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 0, -2):
        with raises("bandwidth", "greater than 0", str(wrong)):
            kernel(wrong)
        with raises("bandwidth", "greater than 0", str(float(wrong))):
            kernel(torch.tensor([1.0, wrong, 2.0]))


@pytest.mark.parametrize("score", [scaled_dot, cosine])
def test_scales_that_are_not_finite(score):
    for wrong in (float("nan"), float("inf"), -float("inf")):
        with raises("scale", "finite", str(wrong)):
            score(wrong)


def test_a_bandwidth_of_another_kind(q, k, v):
    with raises("bandwidth", "number", "'wide'"):
        gaussian("wide")
    with raises("bandwidth", "floating point", "torch.int64"):
        attend(q, k, v, score=gaussian(torch.tensor([1, 2, 3])))
    with raises("bandwidth", "meta", "cpu"):
        attend(q, k, v, score=gaussian(torch.ones(3, device="meta")))


@both
def test_dropout_out_of_range(function, q, k, v):
    for wrong in (-0.1, 1.0, 1.5, float("nan")):
        with raises("dropout", str(wrong), "0", "1"):
            function(q, k, v, dropout=wrong)


@pytest.mark.parametrize("backend", ["direct", "sdpa"])
def test_heads_rows_and_counts_out_of_range(q, k, v, backend):
    weights = attend(q, k, v, backend=backend).weights
    for asked, facts in (
        ({"heads": [0, 3]}, ["heads", "3"]),
        ({"heads": [-4]}, ["heads", "3", "-4"]),
        ({"rows": [4]}, ["rows", "4"]),
        ({"rows": 3}, ["rows", "list", "3"]),
    ):
        with raises(*facts):
            weights(**asked)
    for k_largest in (0, 6, -1):
        with raises(f"k = {k_largest}", "1 to 5"):
            weights.top_k(k_largest)
    with raises("heads", "no head axis"):
        attend(q[0, 0], k[0, 0], v[0, 0], backend=backend).weights(heads=[0])


def test_functions_that_score_or_normalise_wrongly(q, k, v):
    def transposed(query, key):
        return key @ query.mT

    def first_two(scores):
        return scores[..., :2].softmax(-1)

    for options, facts in (
        ({"score": transposed}, ["score transposed", "[2, 3, 5, 4]"]),
        ({"score": lambda query, key: torch.zeros(7, 1, 4, 5)}, ["score", "[7, 1, 4, 5]"]),
        ({"score": lambda query, key: 1.0}, ["score", "float"]),
        ({"normalise": first_two}, ["normalise first_two", "[2, 3, 4, 2]"]),
    ):
        with raises("[2, 3, 4, 5]", *facts):
            attend(q, k, v, **options)
    with torch.no_grad(), raises("normalise <lambda>", "NoneType"):
        attend(q, k, v, normalise=lambda scores: None)
    with raises("positional", "function", "'dot'"):
        positional("dot")


@pytest.mark.parametrize("name", ["query", "key", "value", "visible"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_that_are_sparse(name):
    x = torch.randn(4, 4)
    given = {"query": x, "key": x, "value": x, "visible": x > 0}
    for made, kind in ((torch.Tensor.to_sparse, "sparse_coo"), (torch.Tensor.to_sparse_csr, "sparse_csr")):
        with raises(f"{name} must be a dense tensor, but it is {kind}", f"{name}.to_dense()"):
            attend(**{**given, name: made(given[name])})


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_tensors_that_are_nested(layout):
    nested = torch.nested.nested_tensor([torch.zeros(2, 4), torch.zeros(3, 4)], layout=layout)
    with raises("query", "nested", "to_padded_tensor(query, 0.0)", "from_lengths"):
        attend(nested, nested, nested)


def test_a_backend_that_cannot_run(q, k, v):
    with raises("sdpa", "gaussian", "not a dot product", "direct", error=BackendError):
        attend(q, k, v, score="gaussian", backend="sdpa")
    with raises("sdpa", "softmax only", error=BackendError):
        explain(q, k, v, normalise="mean", backend="sdpa")


def test_every_error_is_ours_and_also_pythons():
    assert issubclass(ArgumentError, JumokError)
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(BackendError, RuntimeError)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda x: attend(x, x, x, normalise=["softmax"]), ["normalise", "['softmax']"]),
        (lambda x: attend(x, x, x, dropout="a"), ["dropout", "'a'"]),
        (lambda x: from_lengths("ab"), ["lengths", "'ab'"]),
        (lambda x: from_lengths([[1], [1, 2]]), ["lengths", "[[1], [1, 2]]"]),
        (lambda x: from_lengths([1], query_lengths=[-1]), ["query_lengths must not be negative", "-1"]),
        (lambda x: attend(x, x, x, visible=from_lengths([1, 2])), ["lengths has shape [2]"]),
        (lambda x: packed("ab"), ["lengths", "'ab'"]),
        (lambda x: packed([[1]]), ["lengths of packed sequences", "[1, 1]"]),
        (lambda x: packed([1, 2], [3]), ["2 sequences", "key_lengths has 1"]),
        (lambda x: attend(x, x, x, visible=packed([9, 9])), ["add up to 18", "queries"]),
        (lambda x: scaled_dot(soft_cap=-1), ["soft_cap", "greater than 0", "-1"]),
        (lambda x: scaled_dot(change=3), ["change", "function", "3"]),
        (lambda x: scaled_dot(slopes=x, offset="a"), ["offset", "integer", "'a'"]),
        (lambda x: alibi(0), ["heads = 0"]),
        (lambda x: attend(x, x, x, score=scaled_dot(bias=[1.0])), ["bias of score", "tensor", "list"]),
        (lambda x: attend(x, x, x, score=scaled_dot(bias=torch.ones(9, 9))), ["bias has shape [9, 9]", "queries"]),
        (lambda x: attend(x, x, x, score=scaled_dot(bias=torch.ones(1, 1).double())), ["bias", "float64", "float32"]),
        (
            lambda x: attend(*[x.expand(3, 5, 4)] * 3, score=scaled_dot(sinks=torch.ones(7))),
            ["leading axes", "sinks of score", "[7]"],
        ),
        (lambda x: attend(x, x, x, score=scaled_dot(sinks=x[0, 0]), normalise="mean"), ["sinks", "softmax"]),
        (lambda x: attend(x, x, x, score=scaled_dot(change=lambda *_: torch.ones(9, 9))), ["change returned [9, 9]"]),
        (lambda x: causal("a"), ["offset", "integer", "'a'"]),
        (lambda x: window("a"), ["before = 'a'"]),
        (lambda x: window(1, centre=[1.0]), ["centre", "tensor", "list"]),
        (lambda x: gaussian_window(3.0, 2.0), ["centre", "tensor", "float"]),
        (lambda x: gaussian_window(x[0], "a"), ["reach", "number", "'a'"]),
        (lambda x: from_torch_padding([[True]]), ["key_padding_mask", "tensor", "list"]),
        (lambda x: from_torch_mask([[True]], true_means="hidden"), ["attn_mask", "tensor", "list"]),
        (lambda x: attend(x, x, x).weights(rows=["a"]), ["rows", "list", "'a'"]),
        (lambda x: attend(x, x, x).weights(rows=[0.5]), ["rows", "list", "0.5"]),
        (lambda x: attend(x, x, x).weights(rows=torch.ones(5) > 0), ["rows", "list", "True"]),
        (lambda x: attend(x, x, x).weights.top_k(1.5), ["k must be an integer, but it is 1.5"]),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(call, parts):
    with raises(*parts):
        call(torch.rand(5, 4))


@both
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_tensors_of_the_wrong_kind_type_or_axes(function, q, k, v, name):
    given = {"query": q, "key": k, "value": v}
    for wrong, facts in (
        ([[1.0, 2.0]], ["tensor", "list"]),
        (given[name].long(), ["floating point", "torch.int64"]),
        (given[name].bool(), ["floating point", "torch.bool"]),
        (given[name].to(torch.complex64), ["floating point", "torch.complex64"]),
        (torch.zeros(()), ["[..., time, dim]", "[]"]),
        (torch.zeros(8), ["[..., time, dim]", "[8]"]),
        (torch.cat([given[name]] * 2, dim=1), ["leading axes", f"{name} [2, 6]", "[2, 3]"]),
    ):
        with raises(name, *facts):
            function(**{**given, name: wrong})


@both
@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"score": "bilinear"}, ["score", "'bilinear'", "scaled_dot", "additive"]),
        ({"score": None}, ["score", "None", "scaled_dot"]),
        ({"score": 3}, ["score", "3"]),
        ({"score": gaussian}, ["score", "gaussian", "(...)"]),
        ({"score": additive}, ["score", "additive", "(...)"]),
        ({"score": general}, ["score", "general", "(...)"]),
        ({"normalise": "softmin"}, ["normalise", "'softmin'", "softmax", "sparsemax", "entmax15", "mean"]),
        ({"normalise": None}, ["normalise", "None"]),
        ({"backend": "flash"}, ["backend", "'flash'", "auto", "sdpa", "blocked", "direct"]),
        ({"score": additive(torch.zeros(7))}, ["v", "7", "8", "additive"]),
        ({"score": additive(torch.zeros(()))}, ["v of score", "1 axes", "[]"]),
        ({"score": general(torch.zeros(8, 7))}, ["general", "weight", "[8, 7]", "[..., 8, 8]"]),
        ({"score": general(torch.zeros(1))}, ["weight of score", "2 axes", "[1]"]),
        ({"score": concat(torch.zeros(6), torch.zeros(6, 8))}, ["concat", "weight", "[6, 8]", "[..., 6, 16]"]),
        ({"score": concat(torch.zeros(1), torch.zeros(1))}, ["weight of score", "2 axes", "[1]"]),
        ({"score": location(torch.zeros(9, 7))}, ["location", "weight", "7", "8"]),
        ({"score": location(torch.zeros(4, 8))}, ["location", "weight", "4 positions", "5 keys"]),
        ({"score": location(torch.zeros(1))}, ["weight of score", "2 axes", "[1]"]),
    ],
)
def test_unknown_names_and_parameters_of_the_wrong_shape(function, q, k, v, options, facts):
    with raises(*facts):
        function(q, k, v, **options)


@both
@pytest.mark.parametrize("name", ["general", "additive", "concat", "location"])
def test_parameters_that_are_missing_or_of_another_type_or_device(function, q, k, v, name):
    case = SCORES[name]
    parameters = case.parameters(8, dtype=torch.float32)
    with raises(f'"{name}"', "parameters", f"score={name}(...)"):
        function(q, k, v, score=name)
    for change, facts in (
        (torch.Tensor.long, ["floating point", "torch.int64"]),
        (torch.Tensor.double, ["torch.float64", "query", "torch.float32"]),
        (lambda parameter: parameter.to("meta"), ["meta", "query", "cpu"]),
        (torch.Tensor.tolist, ["tensor", "list"]),
    ):
        with raises(f'score "{name}"', *facts):
            function(q, k, v, score=case.build(*map(change, parameters)))
