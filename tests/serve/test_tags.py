"""A tag in a request goes in front of the text, and the server lists the tags of a model."""

from pathlib import Path

import pytest

import jumok
from support.serving import serving

pytestmark = pytest.mark.slow
HALF = {"kind": "rnn", "width": 16, "embedding": 8}


def test_a_request_names_a_tag_of_the_model(tmp_path: Path) -> None:
    recipe = {
        "data": {"corpus": "reverse", "size": 40, "valid_size": 4, "tag": "<back>"},
        "tokenizer": {"kind": "char"},
        "encoder": HALF,
        "decoder": HALF,
        "training": {"steps": 2, "warmup": 1, "metric": "loss"},
        "decoding": {"beam": 2, "max_length": 8},
    }
    translator = jumok.train(recipe, out=tmp_path / "model", device="cpu", draw=False).model
    with serving({"model": tmp_path / "model"}) as live:
        (model,) = live.get("/api/models").json["models"]
        assert model["tags"] == ["<back>"]
        (answer,) = live.post("/api/translate", {"text": "123", "tag": "back"}).json["translations"]
        (wanted,) = translator.translate(["123"], tag="back")
        assert (answer["source"], answer["text"]) == ("123", wanted.text)
        assert answer["pieces"][0]["source"] == "<back> 123"
        shown = live.post("/api/attention", {"text": "123", "tag": "<back>"}).json
        assert shown["source"][0] == "<back>"
        refused = live.post("/api/translate", {"text": "123", "tag": "front"})
        assert refused.status == 422
        assert refused.json["error"] == "the model has no tag 'front'; its tags are <back>"
