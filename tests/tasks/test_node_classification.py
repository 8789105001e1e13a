"""Training on graphs: neighbourhoods of everything are the whole graph, and a resumed run is the same in every bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from jumok.errors import ConfigError, TrainingError
from jumok.graphs.batches import GraphBatches, predict
from jumok.graphs.graph import GraphConfig
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.sampling import ALL, SamplingConfig
from jumok.graphs.store import write_graph
from jumok.tasks import make_recipe
from jumok.tasks.node_classification import NodeClassificationTask, consistency_loss, held_out_scores
from jumok.tasks.recipes import GraphRecipe, GraphTraining
from jumok.tasks.run import train
from support.graphs import raw_graph, stored
from support.runs import Remarks, assert_same_run, interrupt

NETWORK = GatConfig(width=8, heads=2, dropout=0.2, attention_dropout=0.2, value_dropout=0.2, l2=0.001)
CPU = torch.device("cpu")


def network_of(graph, config=NETWORK):
    torch.manual_seed(1)
    return GraphAttentionNetwork(config, features=graph.width, classes=graph.classes, edge_width=graph.edge_width)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_neighbourhoods_of_everything_give_the_loss_and_gradients_of_the_whole_graph(tmp_path, layers, kind):
    graph = stored(tmp_path, nodes=50, edges=110)
    config = replace(NETWORK, layers=layers, kind=kind, dropout=0.0, attention_dropout=0.0, value_dropout=0.0)
    found = []
    for sampling in (SamplingConfig(), SamplingConfig(fanout=(ALL,) * layers, batch=7)):
        model = network_of(graph, config)
        batches = GraphBatches(graph, graph.train, sampling, layers=layers)
        losses = [
            NodeClassificationTask().loss(model, batches.batch(0, step), CPU, GraphTraining(label_smoothing=0.1)).total
            for step in range(batches.steps(0))
        ]
        sum(losses).backward()
        found.append([sum(losses), *(weight.grad for weight in model.parameters())])
    assert len(found[0]) > 1
    for whole, sampled in zip(*found, strict=True):
        assert torch.allclose(whole, sampled, rtol=1e-4, atol=1e-5)


def test_features_of_edges_are_the_same_in_a_neighbourhood(tmp_path):
    draws = np.random.default_rng(2).normal(size=(90, 3)).astype(np.float32)
    graph = write_graph(tmp_path, raw_graph(edges=90, edge_features=draws), GraphConfig(path="x"))
    model = network_of(graph).eval()
    for sampling in (SamplingConfig(), SamplingConfig(fanout=(ALL, ALL), batch=5)):
        batches = GraphBatches(graph, graph.test, sampling, layers=2, training=False)
        scores = held_out_scores(model, batches)
        assert scores["loss"] == pytest.approx(
            held_out_scores(model, GraphBatches(graph, graph.test, SamplingConfig(), layers=2))["loss"], rel=1e-5
        )


def test_batches_are_a_function_of_seed_epoch_and_step_and_an_epoch_has_every_node_once(tmp_path):
    graph = stored(tmp_path, nodes=50)
    sampling = SamplingConfig(fanout=(2, 2), batch=8)
    one, same, other = (GraphBatches(graph, graph.train, sampling, layers=2, seed=seed) for seed in (1, 1, 2))
    list(map(same.batch, [0, 0], [2, 1]))  # what was read before changes nothing
    for epoch, step in ((0, 0), (3, 1)):
        assert torch.equal(one.batch(epoch, step).x, same.batch(epoch, step).x)
        assert torch.equal(one.batch(epoch, step).edge_index, same.batch(epoch, step).edge_index)
    assert not torch.equal(one.batch(0, 0).labels, other.batch(0, 0).labels) or not torch.equal(
        one.batch(0, 0).edge_index, other.batch(0, 0).edge_index
    )
    labels = torch.cat([one.batch(5, step).labels for step in range(one.steps(5))])
    assert sorted(labels.tolist()) == sorted(graph.labels[graph.train].tolist())


def test_layers_are_cut_to_what_the_next_one_needs(tmp_path):
    graph = stored(tmp_path, nodes=50, edges=200)
    batch = GraphBatches(graph, graph.train, SamplingConfig(fanout=(3, 3), batch=2), layers=2).batch(0, 0)
    out = predict(network_of(graph), batch)
    assert [len(weights()) for weights in out.attention] == [batch.hops[0].edges, batch.hops[1].edges]
    assert batch.hops[0].nodes == len(batch.x) > batch.hops[1].nodes > len(batch.items)


RECIPE = GraphRecipe(
    graph=GraphConfig(built_in="planted", size=60, undirected=False),
    network=NETWORK,
    sampling=SamplingConfig(),
    training=GraphTraining(
        steps=12, validate_every=4, metric="loss", warmup=0, schedule="constant", log_every=3, keep=2, ema=0.9
    ),
)


@pytest.mark.parametrize(
    "sampling", [SamplingConfig(), SamplingConfig(fanout=(2, 2), batch=16)], ids=["whole", "sampled"]
)
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, sampling):
    recipe = replace(RECIPE, sampling=sampling)
    train(recipe, out=tmp_path / "whole", device="cpu", report=Remarks())
    stopped = train(recipe, out=tmp_path / "parts", device="cpu", report=Remarks({5: interrupt}))
    assert stopped.stopped == "interrupted"
    train(recipe, out=tmp_path / "parts", device="cpu", report=Remarks(), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
def test_an_interrupted_run_with_consistency_goes_on_to_the_same_bits(tmp_path):
    network = replace(NETWORK, layers=1, input_layer=True, hops=(3,), node_dropout=0.5)
    training = replace(RECIPE.training, consistency=1.0, passes=3, temperature=0.3)
    recipe = replace(RECIPE, network=network, training=training)
    train(recipe, out=tmp_path / "whole", device="cpu", report=Remarks())
    train(recipe, out=tmp_path / "parts", device="cpu", report=Remarks({5: interrupt}))
    train(recipe, out=tmp_path / "parts", device="cpu", report=Remarks(), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_consistency_counts_all_nodes_and_cross_entropy_only_those_with_labels(tmp_path):
    graph = stored(tmp_path, nodes=50)
    quiet = replace(NETWORK, dropout=0.0, attention_dropout=0.0, value_dropout=0.0, l2=0.0)
    model, batch = network_of(graph, quiet), GraphBatches(graph, graph.train, SamplingConfig(), layers=2).batch(0, 0)
    plain, drawn = (
        NodeClassificationTask().loss(model, batch, CPU, GraphTraining(consistency=weight)) for weight in (0.0, 2.0)
    )
    apart = consistency_loss([predict(model, batch).logits], 0.5)  # without dropout all passes are the same
    assert torch.allclose(drawn.total, plain.total + 2.0 * len(batch.items) * apart)
    assert torch.allclose(drawn.cross_entropy, plain.cross_entropy)


@pytest.mark.parametrize(
    ("section", "change", "said"),
    [
        (
            "training",
            {"consistency": 1.0},
            r"training.consistency = 1.0 needs all nodes in every step.*fanout = \[5, 5\]",
        ),
        (
            "network",
            {"hops": [1, 4]},
            r"network.hops = \[1, 4\] reaches 5 hops, but sampling.fanout = \[5, 5\] samples 2",
        ),
        (
            "network",
            {"degree_exponent": 0.5},
            r"network.degree_exponent = 0.5 needs all neighbours of a node, but sampling.fanout = \[5, 5\]",
        ),
    ],
)
def test_sampling_is_refused_with_settings_that_need_the_whole_graph(section, change, said):
    with pytest.raises(ConfigError, match=said):
        make_recipe({"graph": {"built_in": "planted"}, section: change, "sampling": {"fanout": [5, 5]}})


@pytest.mark.parametrize("setting", [{"passes": 4}, {"temperature": 0.3}, {"confidence": 0.3}])
def test_settings_of_consistency_are_refused_without_it(setting):
    ((name, value),) = setting.items()
    said = rf"training.{name} = {value} has no effect, because training.consistency = 0.0; leave it out"
    with pytest.raises(ConfigError, match=said):
        make_recipe({"graph": {"built_in": "planted"}, "training": setting})
    make_recipe({"graph": {"built_in": "planted"}, "training": {**setting, "consistency": 1.0}})


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "value_dropout", "node_dropout"])
def test_consistency_is_refused_without_dropout_of_any_kind(name):
    without = {"dropout": 0.0, "attention_dropout": 0.0}
    recipe = {"graph": {"built_in": "planted"}, "training": {"consistency": 1.0}}
    with pytest.raises(ConfigError, match=r"training.consistency = 1.0 needs passes with different dropout"):
        make_recipe({**recipe, "network": without})
    make_recipe({**recipe, "network": {**without, name: 0.1}})


def test_a_resume_with_another_network_or_graph_is_refused(tmp_path):
    train(RECIPE, out=tmp_path, device="cpu", report=Remarks())
    for changed, said in (
        (replace(RECIPE, network=replace(NETWORK, dropout=0.3)), r"network.dropout was 0.2 and is now 0.3"),
        (replace(RECIPE, graph=replace(RECIPE.graph, size=70)), r"graph.size was 60 and is now 70"),
    ):
        with pytest.raises(ConfigError, match=said):
            train(changed, out=tmp_path, device="cpu", report=Remarks(), resume=True)


def test_memory_that_does_not_suffice_is_said_with_what_to_set(tmp_path):
    graph = stored(tmp_path)
    with pytest.raises(TrainingError, match=r"out of memory with 40 nodes.*sampling.fanout"):
        NodeClassificationTask().halves(GraphBatches(graph, graph.train, SamplingConfig(), layers=2).batch(0, 0))


@pytest.mark.parametrize("name", ["fanout", "evaluation_fanout"])
def test_a_fanout_has_one_number_for_each_layer(name):
    with pytest.raises(ConfigError, match=rf"sampling.{name} = \[5\] has 1 numbers, but network.layers = 2"):
        make_recipe({"graph": {"built_in": "planted"}, "sampling": {"fanout": [5, 5], name: [5]}})


def test_neighbours_are_not_sampled_where_graphs_are_classified():
    with pytest.raises(ConfigError, match=r"sampling.fanout applies only to node classification"):
        make_recipe({"graph": {"built_in": "planted"}, "network": {"pooling": "mean"}, "sampling": {"fanout": [5, 5]}})
