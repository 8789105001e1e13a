"""The REST interface says what the translator says."""

import re
import shutil
import socket
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

import jumok.serve
from jumok.analysis.alignment.aligner import Aligner
from jumok.analysis.alignment.head_choice import choose_head
from jumok.analysis.alignment.word_attention import AlignmentHead, alignment_heads
from jumok.analysis.draw import page as map_page
from jumok.data import Pair, corpus_pairs
from jumok.data.corpora.built_in import corpus_values
from jumok.model_folder import BUNDLED
from jumok.serve.models import MAX_EXAMPLES, serve_model
from jumok.tasks import TRANSLATION
from jumok.tasks.translation_warnings import WarningKind
from support.serving import events, serving

TEXTS = ["12", "", "old a", "12 34"]


@pytest.fixture(scope="module")
def translators(live):
    return {name: served.generator for name, served in live.service.models.items()}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["reverser", "words"])
def test_translations_are_those_of_the_translator(live, translators, model):
    answer = live.post("/api/translate", {"text": TEXTS, "model": model, "beam": 3, "n_best": 2}).json
    expected = translators[model].translate(TEXTS, beam=3, n_best=2)
    assert answer["model"] == model
    assert [one["source"] for one in answer["translations"]] == TEXTS
    for given, wanted in zip(answer["translations"], expected, strict=True):
        best = [(one["text"], one["ids"]) for one in given["n_best"]]
        ids = [list(one.pieces[0][1]) if one.pieces else [] for one in wanted.n_best or (wanted,)]
        assert given["text"] == wanted.text
        assert given["score"] == pytest.approx(wanted.score, abs=1e-4)
        assert best == [(one.text, one_ids) for one, one_ids in zip(wanted.n_best or (wanted,), ids, strict=True)]


def test_scores_have_only_the_digits_that_no_batch_changes(live):
    asked = {"text": ["12", "345"], "n_best": 3, "beam": 3}
    translations = live.post("/api/translate", asked).json["translations"]
    scores = [one["score"] for found in translations for one in found["n_best"]]
    assert scores == [round(score, 4) for score in scores]


def test_the_first_model_answers_one_text_when_nothing_else_is_said(live):
    answer = live.post("/api/translate", {"text": "12345"}).json
    assert answer["model"] == "reverser"
    assert [one["text"] for one in answer["translations"]] == ["54321"]


def test_a_text_too_long_for_the_model_comes_in_parts(live):
    (found,) = live.post("/api/translate", {"text": "1 2 3 4 5 6 7 8 9"}).json["translations"]
    assert found["parts"] > 1
    assert found["n_best"][0]["ids"] == []
    assert live.post("/api/beam", {"text": "1 2 3 4 5 6 7 8 9"}).status == 422
    assert live.post("/api/attention", {"text": "1 2 3 4 5 6 7 8 9"}).status == 422
    first, *_ = found["pieces"]
    shown = live.post("/api/attention", {"text": first["source"], "target_ids": first["ids"], "words": True}).json
    assert (" ".join(shown["source"][:-1]), shown["text"]) == (first["source"].strip(), first["text"])
    assert " ".join(piece["text"] for piece in found["pieces"]) == found["text"]


def test_a_sentence_longer_than_those_of_training_comes_whole_with_a_warning(live):
    (found,) = live.post("/api/translate", {"text": "123456 654321"}).json["translations"]
    assert found["parts"] == 1
    assert [one["kind"] for one in found["warnings"]] == ["length"]


def test_attention_is_that_of_the_translation(live, translators):
    for model, translator in translators.items():
        answer = live.post("/api/attention", {"text": "12 34", "model": model}).json
        (found,) = translator.translate(["12 34"])
        shown = found.attention()
        assert (answer["source"], answer["target"]) == (list(shown.source), list(shown.target))
        torch.testing.assert_close(torch.tensor(answer["weights"]), shown.weights, atol=1e-5, rtol=0)
        assert answer["text"] == found.text
        wanted = [probability for _, probability in found.probabilities()]
        assert answer["probabilities"] == pytest.approx(wanted, abs=1e-4)


def test_probabilities_are_of_the_words_or_tokens_of_the_map(live):
    asked = {"text": "the old house", "model": "words"}
    both = live.post("/api/attention", asked | {"tokens": True}).json
    assert len(both["probabilities"]) == len(both["target"])
    alone = live.post("/api/attention", {"text": "12 34", "model": "reverser", "words": True, "tokens": True}).json
    assert len(alone["probabilities"]) == len(alone["target"]) == 2
    assert len(alone["tokens"]["probabilities"]) == len(alone["tokens"]["target"]) > 2
    unlikely = live.post("/api/attention", asked | {"target": "dog dog dog"}).json
    assert min(unlikely["probabilities"]) < min(both["probabilities"])
    assert "probabilities" not in live.post("/api/attention", asked | {"kind": "encoder"}).json
    assert "probabilities" in live.post("/api/attention", asked | {"kind": "decoder"}).json


def test_a_given_target_is_said_by_force(live):
    asked = {"text": "the old", "target": "dog dog dog", "model": "words"}
    answer = live.post("/api/attention", asked).json
    assert answer["target"] == ["dog", "dog", "dog", "</s>"]
    assert answer["text"] == "dog dog dog"
    weights = torch.tensor(answer["weights"])
    assert weights.shape == (2, 2, 4, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 4), atol=1e-4, rtol=0)
    tokens = live.post("/api/attention", {"text": "12 34", "words": False}).json
    assert tokens["source"] == ["▁", "1", "2", "▁", "3", "4", "</s>"]


def test_words_and_tokens_come_together_where_both_are_asked_for(live):
    words, tokens = (live.post("/api/attention", {"text": "12 34", "words": one}).json for one in (True, False))
    assert "tokens" not in words
    both = live.post("/api/attention", {"text": "12 34", "words": True, "tokens": True}).json
    assert both["tokens"] == {name: tokens[name] for name in ("source", "target", "weights", "probabilities")}
    assert {**both, "tokens": None} == {**words, "tokens": None}
    page = live.post("/api/page", {"text": "12 34", "words": True}).text
    assert '"tokens":{"source":' in page


def test_a_model_of_letters_shows_and_aligns_tokens_by_default(live):
    tokens, default = (live.post("/api/attention", {"text": "12 34", **one}).json for one in ({"words": False}, {}))
    assert default == tokens
    aligned = live.post("/api/align", {"source": "123", "target": "321"}).json
    assert (aligned["source"], aligned["target"]) == (["1", "2", "3"], ["3", "2", "1"])
    assert {target for _, target in aligned["links"]} == {0, 1, 2}


def test_the_ids_of_a_hypothesis_give_its_own_map(live):
    (found,) = live.post("/api/translate", {"text": "123", "n_best": 3, "beam": 3}).json["translations"]
    for one in found["n_best"]:
        shown = live.post("/api/attention", {"text": "123", "target_ids": one["ids"]}).json
        assert shown["text"] == one["text"]


def test_the_page_of_a_map_is_the_one_the_library_writes(live, translators):
    answer = live.post("/api/page", {"text": "12 34"})
    (found,) = translators["reverser"].translate(["12 34"])
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text.splitlines()[:3] == map_page.attention_page(found.attention()).splitlines()[:3]
    assert '"source":["▁","1","2","▁","3","4",' in answer.text


def test_a_page_speaks_the_language_asked_for(live):
    assert '<html lang="en">' in live.post("/api/page", {"text": "12 34"}).text
    assert '<html lang="ko">' in live.post("/api/page", {"text": "12 34", "language": "ko"}).text
    refused = live.post("/api/page", {"text": "12 34", "language": "kr"})
    assert refused.status == 422
    assert "language" in refused.json["error"]


def test_alignment_is_that_of_jumok_align_with_the_usual_look(live, translators):
    pair = Pair("the old  house", "house old")
    answer = live.post("/api/align", {"source": pair.source, "target": pair.target, "model": "words"}).json
    trained = translators["words"].trained
    (links,) = Aligner(trained.model, trained.tokenizers, AlignmentHead(0, None, True)).align([pair])
    assert answer["links"] == sorted(map(list, links))
    assert (answer["source"], answer["target"]) == (["the", "old", "house"], ["house", "old"])
    assert answer["pharaoh"] == " ".join(f"{source}-{target}" for source, target in sorted(links))


@pytest.mark.slow
def test_a_model_of_a_built_in_corpus_aligns_with_the_look_chosen_on_that():
    with serving({"en-ko": BUNDLED}) as bundled:
        asked = {"source": "Friday, December 23, 1988", "target": "1988년 12월 23일 금요일"}
        assert bundled.post("/api/align", asked).json["pharaoh"] == "0-3 1-1 2-2 3-0"
        trained = TRANSLATION.load(BUNDLED, device="cpu").trained
        pairs = list(corpus_pairs("phrases", 200, split="valid"))
        look = choose_head(trained.model, trained.tokenizers, pairs, alignment_heads(trained.model))
        assert bundled.service.models["en-ko"].aligner.head == look


@pytest.mark.parametrize(
    ("layer", "head", "look"),
    [
        (1, 0, AlignmentHead(1, 0, False)),
        (-1, -1, AlignmentHead(1, 1, False)),
        (None, None, AlignmentHead(0, None, False)),
    ],
)
def test_a_model_that_was_taught_to_align_aligns_with_what_was_taught(words, layer, head, look):
    served = taught(words, guided_layer=layer, guided_head=head, guided_shift=False)
    assert served.aligner.head == look


def test_a_layer_that_is_asked_for_is_of_the_pass_that_translates(words):
    served = taught(words, guided_context="full", guided_null=True)
    assert served.aligner.head == AlignmentHead(0, None, True, informed=True, null=True)
    assert served.aligner_with(1, None).head == AlignmentHead(1, None, True)


def taught(folder, **changes):
    """The model as if its recipe had guided alignment."""
    served = serve_model("words", folder, "cpu")
    trained = served.generator.trained
    recipe = replace(
        trained.recipe,
        data=replace(trained.recipe.data, alignments="train.links"),
        training=replace(trained.recipe.training, guided_alignment=0.1, **changes),
    )
    served.generator.trained = trained._replace(recipe=recipe)
    return served


@pytest.mark.parametrize(("layer", "head"), [(0, None), (1, 0), (1, 1), (None, 1)])
def test_an_alignment_looks_with_the_layer_and_head_asked_for(live, translators, layer, head):
    pair = Pair("the old house", "house old")
    asked = {"source": pair.source, "target": pair.target, "model": "words", "layer": layer, "head": head}
    answer, trained = live.post("/api/align", asked).json, translators["words"].trained
    (links,) = Aligner(trained.model, trained.tokenizers, AlignmentHead(layer or 0, head, True)).align([pair])
    assert answer["links"] == sorted(map(list, links))
    assert (answer["layer"], answer["head"]) == (layer or 0, head)


def test_an_empty_translation_has_no_links(live):
    assert live.post("/api/align", {"source": "12", "target": " "}).json["links"] == []
    assert "empty" in live.post("/api/align", {"source": " ", "target": "12"}).json["error"]


@pytest.mark.parametrize("model", ["reverser", "words"])
def test_the_beam_is_a_tree_that_leads_to_what_was_found(live, model):
    asked = {"text": "4321", "model": model, "beam": 3, "n_best": 3}
    tree = live.post("/api/beam", asked).json
    (found,) = live.post("/api/translate", asked).json["translations"]
    steps = tree["steps"]
    for before, step in pairwise(steps):
        for node in step:
            parent = before[node["parent"]]
            assert not parent["ended"]
            assert node["log_prob"] <= parent["log_prob"] + 1e-4
            assert node["text"].startswith(parent["text"].rstrip())
    ends = {node["rank"]: node for step in steps for node in step if node["rank"] is not None}
    assert all(node["ended"] for node in ends.values())
    assert [ends[rank]["text"] for rank in range(len(found["n_best"]))] == [one["text"] for one in found["n_best"]]
    for rank, one in enumerate(found["n_best"]):
        assert ends[rank]["score"] == pytest.approx(one["score"], abs=1e-4)


def test_a_stream_grows_and_ends_in_the_translation(live):
    answer = live.post("/api/stream", {"text": "4321"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *partial, (last, done) = events(answer.text)
    assert [name for name, _ in partial] == ["partial"] * len(partial)
    assert [data["text"] for _, data in partial][:4] == ["1", "12", "123", "1234"]
    assert last == "done"
    (found,) = live.post("/api/translate", {"text": "4321"}).json["translations"]
    assert done == {"model": "reverser", **found}


def test_a_stream_of_nothing_is_done_at_once(live):
    assert [name for name, _ in events(live.post("/api/stream", {"text": "\u0000 \u0007"}).text)] == ["done"]


def test_models_say_what_they_are(live):
    known = live.get("/api/models").json
    first, second = known["models"]
    assert (first["name"], first["layers"], first["heads"]) == ("reverser", 1, 1)
    assert (second["name"], second["layers"], second["heads"]) == ("words", 2, 2)
    assert (first["kinds"], second["kinds"]) == (["cross"], ["cross", "encoder", "decoder"])
    assert first["parameters"] == sum(
        p.numel() for p in live.service.models["reverser"].generator.trained.model.parameters()
    )
    assert first["longest"] == 7
    assert first["examples"]
    assert all(text.isdecimal() for text in first["examples"])
    assert known["limits"]["texts"] == 64


def test_health_answers(live):
    assert live.get("/health").json["status"] == "ok"


def test_metrics_count_requests_errors_batches_latency_and_tokens(reverser):
    with serving({"reverser": reverser}) as live:
        live.post("/api/translate", {"text": ["123", "45"]})
        live.post("/api/translate", {"text": 5})
        live.get("/nowhere/at/all")
        text = live.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    found = {
        (one.name, *sorted(one.labels.values())): one.value for family in families.values() for one in family.samples
    }
    assert found["jumok_requests_total", "/api/translate", "200"] == 1
    assert found["jumok_requests_total", "/api/translate", "422"] == 1
    assert found["jumok_requests_total", "404", "other"] == 1
    assert found["jumok_errors_total", "/api/translate"] == 1
    assert found["jumok_queue_depth",] == 0
    assert found["jumok_batch_items_sum",] == 2
    assert found["jumok_request_seconds_count", "/api/translate"] == 2
    tokenizer = TRANSLATION.load(reverser, device="cpu").trained.tokenizers.source
    read = sum(len(tokenizer.encode(text)) - 2 for text in ("123", "45"))
    assert found["jumok_tokens_total", "reverser", "source"] == read
    assert found["jumok_tokens_total", "reverser", "target"] > 0


def test_examples_of_a_folder_come_from_its_own_file(reverser, tmp_path):
    folder = shutil.copytree(reverser, tmp_path / "model")
    (folder / "examples.txt").write_text("12\n\n  34 \n", encoding="utf-8")
    assert serve_model("one", folder, "cpu").examples == ("12", "34")


def test_a_model_of_a_built_in_corpus_shows_examples_of_different_kinds():
    served = serve_model("en-ko", BUNDLED, "cpu")
    values = corpus_values("phrases", 200, split="test", source="en", target="ko", longest=12)
    kinds = {pair.source: value.kind for value, pair in values}
    shown = [kinds[text] for text in served.examples]
    assert len(shown) == len(set(shown)) == MAX_EXAMPLES


def test_the_page_and_its_files_come_from_the_package_with_safe_headers(live):
    page = live.get("/")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    for name in ("app.js", "page.css", "parts.js", "attention.js", "matrix.js", "attention.css", "icon.svg"):
        assert live.get(f"/web/{name}").status == 200
    assert live.get("/web/app.js", **{"If-None-Match": live.get("/web/app.js").headers["etag"]}).status == 304
    for path in ("/web/../app.py", "/web/..%2fapp.py", "/web/%2e%2e/app.py", "/web/", "/web//etc/passwd"):
        assert live.get(path).status == 404


def test_a_key_is_asked_for_where_models_are_used(reverser):
    with serving({"reverser": reverser}, key="sesame") as live:
        assert live.get("/").status == live.get("/health").status == 200
        for wrong in ({}, {"X-API-Key": "open"}, {"X-API-Key": ""}, {"X-API-Key": "s\xe9same"}):
            answer = live.post("/api/translate", {"text": "12"}, **wrong)
            assert answer.status == 401
            assert "X-API-Key" in answer.json["error"]
        assert live.get("/metrics").status == live.get("/api/models").status == 401
        described = live.get("/openapi.json", **{"X-API-Key": "sesame"}).json
        assert described["components"]["securitySchemes"]["key"]["name"] == "X-API-Key"
        assert live.post("/api/translate", {"text": "12"}, **{"X-API-Key": "sesame"}).status == 200


def test_other_sites_may_call_only_where_allowed(live, reverser):
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in live.ask("OPTIONS", "/api/translate", headers=asked).headers
    with serving({"reverser": reverser}, key="k", origins=("https://example.org",)) as open_to_one:
        allowed = open_to_one.ask("OPTIONS", "/api/translate", headers=asked)
        assert allowed.headers["access-control-allow-origin"] == "https://example.org"
        other = open_to_one.ask("OPTIONS", "/api/translate", headers={**asked, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


def test_only_names_of_this_server_are_answered_to(reverser):
    with serving({"reverser": reverser}, hosts=("Translate.Example.org",)) as live:
        mine = f"localhost:{live.port}", "LOCALHOST.", "app.localhost:1", "10.0.0.7:80", "[::1]:8000", "[fe80::1]"
        for host in (*mine, socket.gethostname(), "translate.example.org", "translate.EXAMPLE.org:8000"):
            assert live.get("/api/models", Host=host).status == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "notlocalhost", "localhost.evil.example:8", ""):
            for path in ("/", "/api/models", "/health", "/metrics", "/openapi.json"):
                answer = live.get(path, Host=host)
                assert (answer.status, answer.text.count("\n")) == (421, 0), host
            assert "--allow-host" in answer.json["error"]


def test_the_bare_address_of_the_interface_lists_what_there_is(live):
    answer = live.get("/api")
    assert answer.status == 200
    described = live.get("/openapi.json").json["paths"]
    wanted = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert answer.json["paths"].keys() == wanted
    assert answer.json["paths"]["POST /api/translate"].startswith("Translate one or more texts")


def test_self_attention_is_given_where_the_model_has_some(live):
    body = {"text": "the old house", "model": "words", "kind": "encoder"}
    encoder = live.post("/api/attention", body).json
    assert (encoder["kind"], encoder["target"]) == ("encoder", encoder["source"])
    assert "self-attention of the encoder" in live.post("/api/page", body).text
    refused = live.post("/api/attention", {"text": "12", "model": "reverser", "kind": "decoder"})
    assert (refused.status, refused.json) == (
        422,
        {"error": "the model reverser has no attention of kind decoder, only cross"},
    )


def test_the_page_has_a_sentence_for_every_kind_of_warning_in_both_languages():
    strings = (Path(jumok.serve.__file__).parent / "web/strings.js").read_text(encoding="utf-8")
    sentences = re.findall(r"doubts: \{(.*?)\n  \}", strings, re.DOTALL)
    kinds = set(get_args(WarningKind))
    assert [set(re.findall(r"^    (\w+): ", sentence, re.MULTILINE)) for sentence in sentences] == [kinds, kinds]
