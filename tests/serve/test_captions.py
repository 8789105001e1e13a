"""Captioners on a server: the API returns what the captioner says, and refuses what is no image."""

import io
import struct
import zlib
from base64 import b64decode, b64encode

import numpy as np
import pytest
import torch
from PIL import Image

from jumok.images.scenes import scene
from jumok.serve.models import MAX_EXAMPLES
from jumok.serve.service import MAX_IMAGE_SIDE
from jumok.tasks import CAPTIONING
from support.serving import serving

PIXELS = scene(3, split="test").picture(64)


def image_file(pixels, kind="PNG"):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def base64(content):
    return b64encode(content).decode()


PICTURE = base64(image_file(PIXELS))


def test_captions_are_those_of_the_captioner(both, captioner):
    answer = both.post("/api/caption", {"image": PICTURE, "beam": 3, "n_best": 2}).json
    (wanted,) = CAPTIONING.load(captioner, device="cpu").caption([PIXELS], beam=3, n_best=2)
    assert (answer["model"], answer["text"]) == ("scenes", wanted.text)
    assert answer["score"] == pytest.approx(wanted.score, abs=1e-4)
    assert [(one["text"], tuple(one["ids"])) for one in answer["n_best"]] == [
        (one.text, one.ids) for one in wanted.n_best
    ]


def test_attention_is_that_of_the_caption_over_the_image(both, captioner):
    answer = both.post("/api/attention", {"image": PICTURE}).json
    (caption,) = CAPTIONING.load(captioner, device="cpu").caption([PIXELS])
    wanted = caption.attention()
    assert (answer["text"], answer["target"]) == (caption.text, list(wanted.target))
    shares = [share for _, share in caption.probabilities()]
    assert answer["probabilities"] == pytest.approx(shares[:-1], abs=1e-4)  # a map over an image has no end
    torch.testing.assert_close(torch.tensor(answer["weights"]), wanted.weights, atol=1e-5, rtol=0)
    place = answer["layout"]
    assert place["kind"] == "image"
    assert place["rows"] * place["columns"] == len(answer["source"])
    drawn = Image.open(io.BytesIO(b64decode(place["image"].partition(",")[2])))
    assert drawn.size == (place["width"], place["height"])


def test_a_given_caption_has_its_own_attention(both):
    by_text = both.post("/api/attention", {"image": PICTURE, "target": "a red circle"}).json
    assert (by_text["text"], by_text["target"]) == ("a red circle", ["a", "red", "circle"])
    best = both.post("/api/caption", {"image": PICTURE, "beam": 2, "n_best": 2}).json["n_best"]
    for one in best:
        assert both.post("/api/attention", {"image": PICTURE, "target_ids": one["ids"]}).json["text"] == one["text"]


def test_the_attention_of_a_caption_can_be_saved_as_a_page(both):
    answer = both.post("/api/page", {"image": PICTURE, "target": "a red circle", "language": "ko"})
    assert answer.headers["content-type"].startswith("text/html")
    assert '<html lang="ko">' in answer.text
    assert "<title>a red circle" in answer.text


def test_data_urls_and_large_photos_are_accepted(both):
    url = f"data:image/png;base64,{PICTURE}"
    assert both.post("/api/caption", {"image": url}).json == both.post("/api/caption", {"image": PICTURE}).json
    large = np.kron(PIXELS, np.ones((20, 30, 1), np.uint8))  # 1280 × 1920
    answer = both.post("/api/attention", {"image": base64(image_file(large, "JPEG"))})
    assert answer.status == 200
    assert max(answer.json["layout"]["width"], answer.json["layout"]["height"]) <= MAX_IMAGE_SIDE


@pytest.mark.parametrize(
    "image",
    ["", "no base64!", base64(b"no image"), base64(image_file(PIXELS)[:200]), base64(b"<svg/>"), 5, None, [PICTURE]],
)
def test_what_is_no_image_is_refused_in_one_line(both, image):
    for path in ("/api/caption", "/api/attention", "/api/page"):
        answer = both.post(path, {"image": image})
        assert answer.status == 422
        assert answer.json.keys() == {"error"}
        assert "\n" not in answer.json["error"]
        assert len(answer.json["error"]) < 300


def black_png(side):
    """A PNG of side × side black pixels, made without holding them."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    packed, hundred_rows = zlib.compressobj(1), bytes(100 * (1 + side // 8))
    pixels = b"".join(packed.compress(hundred_rows) for _ in range(side // 100)) + packed.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_a_png_made_row_by_row_is_one():
    assert not np.asarray(Image.open(io.BytesIO(black_png(800)))).any()


@pytest.mark.long
def test_an_image_that_takes_gigabytes_to_decode_is_refused(both):
    answer = both.post("/api/caption", {"image": base64(black_png(60_000))})
    assert answer.status == 422
    assert "pixels" in answer.json["error"]
    assert both.post("/api/caption", {"image": PICTURE}).status == 200


@pytest.mark.slow
def test_images_have_a_limit_of_their_own_and_texts_keep_theirs(words, captioner):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)  # 12 kB, whatever the format
    with serving({"words": words, "scenes": captioner}, body_bytes=2000, image_bytes=8000) as live:
        assert live.post("/api/caption", {"image": base64(image_file(PIXELS, "JPEG"))}).status == 200
        refused = live.post("/api/caption", {"image": base64(image_file(noise))})
        assert refused.status in (413, 422)
        assert "bytes" in refused.json["error"]
        assert live.post("/api/translate", {"text": "a " * 3000}).status == 413
    with serving({"words": words}, body_bytes=2000) as without:
        assert without.post("/api/caption", {"image": base64(image_file(noise))}).status == 413


def test_a_model_of_another_task_is_refused(both):
    for path, body in (
        ("/api/translate", {"text": "the old house", "model": "scenes"}),
        ("/api/stream", {"text": "the old house", "model": "scenes"}),
        ("/api/align", {"source": "a", "target": "b", "model": "scenes"}),
        ("/api/caption", {"image": PICTURE, "model": "words"}),
        ("/api/attention", {"image": PICTURE, "model": "words"}),
        ("/api/attention", {"text": "the old house", "model": "scenes"}),
    ):
        answer = both.post(path, body)
        assert answer.status == 422, path
        assert "choose another model" in answer.json["error"]
    assert both.post("/api/translate", {"text": "the old house"}).json["model"] == "words"


@pytest.mark.parametrize("body", [{}, {"text": "a", "image": PICTURE}])
def test_attention_needs_a_text_or_an_image(both, body):
    answer = both.post("/api/attention", body)
    assert (answer.status, answer.json["error"]) == (422, "give one of text, image and node")


def test_a_task_that_no_model_has_is_not_found(live, captioner):
    for image in (PICTURE, "no image"):
        answer = live.post("/api/caption", {"image": image})
        assert answer.status == 404
        assert "image is not" not in answer.json["error"]
    with serving({"scenes": captioner}) as alone:
        answer = alone.post("/api/translate", {"text": "a"})
        assert answer.status == 404
        assert "it has: scenes" in answer.json["error"]


def test_models_tell_their_task_and_have_images_to_try(both):
    words, scenes = both.get("/api/models").json["models"]
    assert (words["task"], scenes["task"]) == ("translation", "captioning")
    assert (scenes["layers"], scenes["heads"], scenes["corpus"], scenes["longest"]) == (1, 1, "scenes", None)
    assert scenes["target_language"] == "en"
    assert len(scenes["examples"]) == MAX_EXAMPLES
    assert both.post("/api/caption", {"image": scenes["examples"][0]}).status == 200


def test_captions_count_tokens(words, captioner):
    with serving({"words": words, "scenes": captioner}) as live:
        ids = live.post("/api/caption", {"image": PICTURE}).json["n_best"][0]["ids"]
        assert f'jumok_tokens_total{{model="scenes",side="target"}} {len(ids)}.0' in live.get("/metrics").text


def test_large_bodies_wait_while_memory_is_full_and_small_ones_do_not(both, monkeypatch):
    noise = base64(image_file(np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)))
    monkeypatch.setattr("jumok.serve.guard.MAX_BUFFERED", 100_000)
    refused = both.post("/api/caption", {"image": noise})
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert both.post("/api/caption", {"image": PICTURE}).status == 200
    monkeypatch.undo()
    assert both.post("/api/caption", {"image": noise}).status == 200
