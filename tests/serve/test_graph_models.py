"""Graph models on a server: the API classifies a node and gives its attention, as `jumok look --node` does."""

import numpy as np
import pytest
import torch

from jumok.errors import ModelError
from jumok.model_folder import NEW_WEIGHTS, publish
from jumok.serve.models import serve_model
from jumok.tasks import NODE_CLASSIFICATION, read_task
from jumok.tasks.results import MapOptions
from support.commands import jumok, well, write
from support.graphs import raw_graph
from support.serving import serving


@pytest.fixture(scope="module")
def classifier(graph_model):
    return NODE_CLASSIFICATION.load(graph_model, device="cpu")


@pytest.fixture(scope="module")
def graphs(words, graph_model, named_graph):
    """A server with a translator, a graph whose nodes have numbers, and one whose nodes have names."""
    with serving({"words": words, "planted": graph_model, "named": named_graph}) as running:
        yield running


def test_a_node_is_classified_as_the_classifier_does(graphs, classifier):
    answer = graphs.post("/api/classify", {"node": 4}).json
    probabilities = answer["probabilities"]
    assert (answer["model"], answer["node"]) == ("planted", 4)
    assert answer["class"] == classifier.graph.class_name(int(classifier.classify(np.array([4]))[0]))
    assert answer["label"] == classifier.graph.class_name(int(classifier.graph.labels[4]))
    assert probabilities.keys() == set(map(classifier.graph.class_name, range(classifier.graph.classes)))
    assert list(probabilities.values()) == sorted(probabilities.values(), reverse=True)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-3)
    assert answer["probability"] == probabilities[answer["class"]]


def test_the_attention_of_a_node_is_that_of_jumok_look(graphs, classifier):
    answer = graphs.post("/api/attention", {"node": 4}).json
    wanted = NODE_CLASSIFICATION.map(classifier, "4", MapOptions())
    (shown,) = wanted.maps
    torch.testing.assert_close(torch.tensor(answer["weights"]), shown.weights, atol=1e-5, rtol=0)
    assert (answer["source"], answer["target"]) == (list(shown.source), list(shown.target))
    assert (answer["text"], answer["layout"]) == (shown.title, shown.layout.as_plain())
    classified = graphs.post("/api/classify", {"node": "4"}).json
    assert answer["classification"] == {name: classified[name] for name in answer["classification"]}
    assert classified["node"] == "4"


def test_a_node_can_be_given_by_its_name(graphs):
    answer = graphs.post("/api/classify", {"node": "나", "model": "named"}).json
    assert (answer["node"], answer["label"]) == ("나", "cat")
    assert graphs.post("/api/attention", {"node": "나", "model": "named"}).json["source"][0] == "나"
    nobody = graphs.post("/api/classify", {"node": "가", "model": "named"}).json
    assert nobody["label"] is None  # this node has none


def test_the_attention_of_a_node_can_be_saved_as_a_page(graphs):
    for language, title in (("en", "node 4: class"), ("ko", "노드의 어텐션: 4")):
        answer = graphs.post("/api/page", {"node": 4, "language": language})
        assert answer.headers["content-type"].startswith("text/html")
        assert f'<html lang="{language}">' in answer.text
        assert f"<title>{title}" in answer.text


@pytest.mark.parametrize("path", ["/api/classify", "/api/attention", "/api/page"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"node": 5000}, "there is no node 5000; nodes are 0 to "),
        ({"node": -1}, "there is no node -1; nodes are 0 to "),
        ({"node": "a\nb"}, "there is no node a b; nodes are 0 to "),
        ({"node": "개", "model": "named"}, "there is no node '개'; nodes are called '가', '나', '다' …"),
        ({"node": 1.5}, "node should be a valid integer, but it is 1.5"),
        ({"node": True}, "node should be a valid"),
        ({"node": 6000 * "가", "model": "named"}, "text 1 has 6000 characters, but at most 5000 are allowed"),
        ({"node": 4, "model": "words"}, "the model words reads texts, not nodes; choose another model"),
    ],
)
def test_a_node_that_is_not_there_is_refused_in_one_line(graphs, path, body, said):
    answer = graphs.post(path, body)
    assert (answer.status, answer.json.keys()) == (422, {"error"})
    assert answer.json["error"].startswith(said)
    assert len(answer.json["error"]) < 200


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (
            "target",
            "a",
            "target does not apply to the model planted, which classifies the nodes of a graph; leave it out",
        ),
        ("target_ids", [1], "target_ids does not apply to the model planted, which generates no text; leave it out"),
        ("kind", "encoder", "kind does not apply to the model planted"),
        ("beam", 2, "beam does not apply to the model planted"),
        ("words", True, "words does not apply to the model planted"),
        ("from", "en", "from or to does not apply to the model planted"),
        ("text", "a", "give one of text, image and node"),
    ],
)
def test_what_a_node_does_not_have_is_refused_not_ignored(graphs, field, value, said):
    answer = graphs.post("/api/attention", {"node": 4, field: value})
    assert answer.status == 422
    assert answer.json["error"].startswith(said)


def test_a_model_of_another_task_is_refused(graphs):
    for path, body in (
        ("/api/translate", {"text": "a", "model": "planted"}),
        ("/api/attention", {"text": "a", "model": "planted"}),
        ("/api/classify", {"node": 4, "model": "words"}),
    ):
        answer = graphs.post(path, body)
        assert answer.status == 422, path
        assert "choose another model" in answer.json["error"]
    assert graphs.post("/api/translate", {"text": "the old house"}).json["model"] == "words"
    assert graphs.post("/api/caption", {"image": ""}).status == 404


def test_a_server_without_a_graph_model_has_none_to_ask(live):
    for path in ("/api/classify", "/api/attention"):
        answer = live.post(path, {"node": 4})
        assert (answer.status, answer.json["error"][:45]) == (404, "this server has no model that reads nodes; it")


def test_models_tell_what_they_read_and_have_nodes_to_try(graphs, classifier):
    words, planted, named = graphs.get("/api/models").json["models"]
    assert (words["reads"], words["generates"]) == ("text", True)
    assert (planted["task"], planted["reads"], planted["generates"]) == ("node classification", "node", False)
    assert (planted["beam"], planted["layers"], planted["source_languages"]) == (None, None, [])
    test = [classifier.graph.name(node) for node in classifier.graph.test[:8].tolist()]
    assert planted["examples"] == test
    assert named["examples"][0] in "가나다라"  # only these have neighbours
    for model in (planted, named):
        for node in model["examples"]:
            assert graphs.post("/api/classify", {"node": node, "model": model["name"]}).status == 200


def test_a_key_is_asked_for(graph_model):
    with serving({"planted": graph_model}, key="sesame") as live:
        assert live.post("/api/classify", {"node": 4}).status == 401
        assert live.post("/api/classify", {"node": 4}, **{"X-API-Key": "sesame"}).status == 200


def test_a_node_with_a_map_too_large_for_a_page_is_refused(graphs, monkeypatch):
    monkeypatch.setattr("jumok.serve.routes.MOST", 3)
    answer = graphs.post("/api/attention", {"node": 4})
    assert answer.status == 413
    assert "weights, more than the 3 allowed" in answer.json["error"]


def test_a_map_that_came_too_late_says_nothing_about_the_speed_of_others(graphs):
    calls = iter([True, False])

    def check():
        if not next(calls):
            raise TimeoutError

    job = graphs.service.map_job(graphs.service.mapper("planted", "node"), MapOptions())
    with pytest.raises(TimeoutError):
        job(["4"], check)


@pytest.mark.slow
def test_a_network_for_whole_graphs_shows_the_attention_of_a_node_but_gives_it_no_class(tmp_path):
    raw = raw_graph(nodes=40, edges=1)
    of = np.arange(40) // 2
    edges = np.stack([np.arange(0, 40, 2), np.arange(1, 40, 2)])
    np.savez(tmp_path / "graphs.npz", edges=edges, features=raw.features, labels=raw.labels[:20], graph=of)
    recipe = f"[graph]\npath = '{tmp_path}/graphs.npz'\n[network]\npooling = 'mean'\nwidth = 8\n[training]\nsteps = 2\n"
    well("train", write(tmp_path / "graphs.toml", recipe), "--out", tmp_path / "model", "--device", "cpu")
    with serving({"whole": tmp_path / "model"}) as live:
        shown = live.post("/api/attention", {"node": 1}).json
        assert (shown["source"], shown["layout"]["predicted"]) == (["1", "0"], "")
        assert "classification" not in shown
        refused = live.post("/api/classify", {"node": 1})
        assert refused.status == 422
        assert refused.json["error"] == "the model whole gives a node no class; /api/attention shows its attention"


# A task of your own is served by its maps if it says what they read


def test_a_task_of_your_own_is_served_by_its_maps(tagger):
    folder, task = tagger
    with serving({"tagger": folder}, task=task) as live:
        (model,) = live.get("/api/models").json["models"]
        assert (model["task"], model["reads"], model["generates"]) == ("tagging", "text", False)
        assert model["examples"] == ["axe", "you"]
        shown = live.post("/api/attention", {"text": "axe"}).json
        assert (shown["text"], shown["source"]) == ("vowel consonant vowel", ["a", "x", "e"])
        assert shown["classification"]["probabilities"] == {"short": 0.75, "long": 0.25}
        assert "vowel" in live.post("/api/page", {"text": "axe"}).text
        refused = live.post("/api/translate", {"text": "axe", "model": "tagger"})
        assert refused.status == 422
        assert refused.json["error"] == "the model tagger reads texts, but writes no text; choose another model"


def test_a_task_whose_maps_are_not_for_clients_is_refused_with_what_to_do_instead(tmp_path):
    (tmp_path / NEW_WEIGHTS).touch()  # which nothing reads
    publish(tmp_path, {"recipe.toml": b"[tagger]\nwidth = 8\n"}, "", tmp_path / NEW_WEIGHTS)
    file = "tests/tasks/tagging.py"
    with pytest.raises(ModelError, match=r"tags the characters of a text, which jumok serve does not support"):
        serve_model("tagger", tmp_path, own_task=read_task(file))
    done = jumok("serve", tmp_path, "--task", file, "--port", 0)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"use jumok inspect {tmp_path} --task FILE" in done.err
