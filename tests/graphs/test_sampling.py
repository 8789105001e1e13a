"""Sampled neighbourhoods: no more than asked for, all of it where all is asked for, the same for the same draws."""

import numpy as np
import pytest

from jumok.graphs.sampling import ALL, sample
from support.graphs import stored


def edges_into(graph, node):
    return set(np.asarray(graph.sources[graph.starts[node] : graph.starts[node + 1]]).tolist())


@pytest.mark.parametrize("fanout", [(3,), (2, 4), (ALL, 1), (ALL, ALL)])
def test_every_node_within_reach_gets_as_many_of_its_own_neighbours_as_asked_for(tmp_path, fanout):
    graph = stored(tmp_path, nodes=60, edges=200)
    asked = np.array([5, 17, 40])
    found = sample(graph, asked, fanout, np.random.default_rng(1))
    assert found.nodes[:3].tolist() == asked.tolist()
    assert len(set(found.nodes.tolist())) == len(found.nodes)
    for step, count in enumerate(fanout):
        first, last = (found.reach[step - 1][0] if step else 0), found.reach[step][0]
        for place in range(first, last):
            sources = found.nodes[found.edge_index[0, found.edge_index[1] == place]].tolist()
            wanted = edges_into(graph, found.nodes[place])
            assert len(set(sources)) == len(sources) == (len(wanted) if count == ALL else min(count, len(wanted)))
            assert set(sources) <= wanted
    assert found.reach[-1] == (len(found.nodes), found.edge_index.shape[1])
    assert np.array_equal(graph.sources[found.edges], found.nodes[found.edge_index[0]])


def test_draws_decide_and_every_neighbour_is_as_likely(tmp_path):
    graph = stored(tmp_path, nodes=12, edges=300)
    one, same, other = (sample(graph, np.array([0]), (4, 4), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.edges, same.edges)
    assert not np.array_equal(one.edges, other.edges)
    counts = np.zeros(12)
    for seed in range(600):
        counts[sample(graph, np.array([0]), (3,), np.random.default_rng(seed)).nodes[1:]] += 1
    around = [node for node in edges_into(graph, 0) if node != 0]
    expected = 600 * 3 / len(edges_into(graph, 0))
    assert all(0.75 * expected < counts[node] < 1.25 * expected for node in around)


def test_a_node_without_neighbours_is_a_neighbourhood(tmp_path):
    graph = stored(tmp_path, nodes=30, edges=1)
    alone = next(node for node in range(30) if not edges_into(graph, node))
    found = sample(graph, np.array([alone]), (5, 5), np.random.default_rng(0))
    assert found.nodes.tolist() == [alone]
    assert found.edge_index.shape == (2, 0)
