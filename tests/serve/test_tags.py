"""A tag in a request goes in front of the text; the server lists the tags of a model, and the page offers them."""

from pathlib import Path
from typing import Any

import pytest

import jumok
from support.serving import serving, visits

pytestmark = pytest.mark.slow
HALF = {"kind": "rnn", "width": 16, "embedding": 8}


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with a tag."""
    folder = tmp_path_factory.mktemp("tagged") / "model"
    recipe = {
        "data": {"corpus": "reverse", "size": 40, "valid_size": 4, "tag": "<back>"},
        "tokenizer": {"kind": "char"},
        "encoder": HALF,
        "decoder": HALF,
        "training": {"steps": 2, "warmup": 1, "metric": "loss"},
        "decoding": {"beam": 2, "max_length": 8},
    }
    jumok.train(recipe, out=folder, device="cpu", draw=False)
    return folder


def test_a_request_names_a_tag_of_the_model(tagged: Path) -> None:
    with serving({"model": tagged}) as live:
        (model,) = live.get("/api/models").json["models"]
        assert model["tags"] == ["<back>"]
        (answer,) = live.post("/api/translate", {"text": "123", "tag": "back"}).json["translations"]
        (wanted,) = jumok.load(tagged, device="cpu").translate(["123"], tag="back")
        assert (answer["source"], answer["text"]) == ("123", wanted.text)
        assert answer["pieces"][0]["source"] == "<back> 123"
        shown = live.post("/api/attention", {"text": "123", "tag": "<back>"}).json
        assert shown["source"][0] == "<back>"
        refused = live.post("/api/translate", {"text": "123", "tag": "front"})
        assert refused.status == 422
        assert refused.json["error"] == "the model has no tag 'front'; its tags are <back>"


@pytest.mark.long
def test_the_page_offers_the_tags_of_a_model_and_sends_the_chosen_one(tagged: Path, browser: Any) -> None:
    expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
    with serving({"model": tagged}) as live, visits(browser, live, model="model") as visit:
        page, sent = visit(), list[str]()
        page.on("request", lambda request: sent.append(request.post_data or ""))
        expect(page.locator("#tags")).to_be_visible()
        assert page.locator("#tag option").all_inner_texts() == ["no tag", "<back>"]
        page.select_option("#tag", "<back>")
        page.fill("#text", "123")
        expect(page.locator("#map .jumok-cell").first).to_be_visible()
        assert any('"tag":"<back>"' in body for body in sent)
