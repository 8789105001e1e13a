"""What is timed: every system does the same work."""

import pytest
import torch

from jumok.bench import attention, decoding, graphs, peers, regression, results, training
from jumok.bench.peers import PlainRnn, PlainTransformer, RnnShape, TransformerShape, jumok_rnn, jumok_transformer
from jumok.bench.regression import Case

CPU = torch.device("cpu")
SUBJECTS = {"attention": attention, "decoding": decoding, "graphs": graphs, "regression": regression}
SUBJECTS |= {"training": training}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_every_subject_has_works_that_differ_and_begin_with_jumok(subject, size):
    works = list(SUBJECTS[subject].works(CPU, size))
    assert len({work.name for work in works}) == len(works) > 1
    assert {next(iter(work.systems)) for work in works} == {"jumok"}


@pytest.mark.parametrize("case", [Case("gaussian", 300, 40, 2, 0.1), Case("epanechnikov", 300, 40, 1, 0.1),
                                  Case("boxcar", 300, 40, 1, 0.2)], ids=str)  # fmt: skip
def test_libraries_of_regression_predict_the_same(case):
    case = case._replace(dtype="float64")
    wanted = torch.as_tensor(regression.jumok_prediction(case, CPU)())
    torch.testing.assert_close(regression.cdist_prediction(case, CPU)(), wanted)
    torch.testing.assert_close(torch.as_tensor(regression.scikit_learn_prediction(case)()), wanted)
    if case.kernel == "gaussian":
        torch.testing.assert_close(torch.as_tensor(regression.statsmodels_prediction(case)()[0]), wanted)


@pytest.mark.filterwarnings("error")
def test_statsmodels_does_not_warn_above_the_table():
    regression.statsmodels_prediction(Case("gaussian", 30, 4, 1, 0.1))()


def test_decoding_times_the_default_engine_of_a_cpu_and_our_own(monkeypatch):
    pytest.importorskip("ctranslate2")
    transformer, *_ = decoding.works(CPU, "small")
    ours, own, *_ = transformer.systems.items()
    found = [prepare()() for _, prepare in (ours, own)]
    assert [name for name, _ in (ours, own)] == ["jumok", "jumok, own engine"]
    assert [{len(best.ids) for best in rows[0]} for rows in found] == [{6}, {6}]
    monkeypatch.setattr(decoding, "is_installed", lambda: False)
    transformer, *_ = decoding.works(CPU, "small")
    assert "jumok, own engine" not in transformer.systems


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_transformers_have_equally_many_weights():
    shape = TransformerShape(2, 64, 500)
    ours, plain, marian = count(jumok_transformer(shape)), PlainTransformer(shape), peers.marian(shape)
    positions = plain.places.weight.numel()
    assert count(plain) - positions == ours  # Marian's positions are not learned but count, and it has an output bias
    assert abs(count(marian) - 2 * 512 * 64 - ours) < 0.02 * ours


@pytest.mark.parametrize("attention", ["additive", "general"])
def test_recurrent_models_have_equally_many_weights(attention):
    shape = RnnShape(16, 32, 500)
    assert abs(count(PlainRnn(shape, attention)) / count(jumok_rnn(shape, attention)) - 1) < 0.05


@pytest.mark.slow
def test_every_system_of_training_learns():
    for work in training.works(CPU, "small"):
        for system, prepare in work.systems.items():
            step = prepare()
            assert step is not None, system
            step()


@pytest.mark.parametrize("kind", ["GAT", "GATv2"])
def test_the_plain_form_of_graph_attention_mixes_neighbours_by_weights_that_sum_to_one(kind, monkeypatch):
    shape, seen = graphs.GraphShape(20, 60, 2, 3), []
    monkeypatch.setattr(graphs, "_trained", lambda layer, *_: seen.append(layer) or print)
    graphs._plain(kind, shape, CPU)
    _, target = graphs._edges(shape, CPU)
    # Equal features of all nodes: the mean of equal values is that value wherever there is an edge.
    values = seen[0](torch.ones(20, 6))
    reached = target.unique()
    torch.testing.assert_close(values[reached], values[reached[:1]].expand(len(reached), -1))
    assert values[reached].abs().sum() > 0


def test_a_subject_can_be_timed_from_python():
    timings = results.measure("attention", CPU, "small", seconds=0)
    found = results.results("attention", timings, CPU, "small")
    assert {row["id"] for row in found["rows"]} == {f"attention/{timing.work}" for timing in timings}
    assert {row["unit"] for row in found["rows"]} >= {"ms", "times jumok's"}
    assert found["versions"]["torch"] == torch.__version__
