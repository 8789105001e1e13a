"""Whatever is sent, the answer is a 4xx with one line that says what is wrong; the server goes on."""

import json
import socket
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from support.commands import jumok
from support.serving import JSON, serving

ENDPOINTS = ["/api/translate", "/api/stream", "/api/beam", "/api/attention"]


@pytest.fixture(scope="module")
def live(reverser):
    with serving({"reverser": reverser}, characters=200, texts=5, body_bytes=20_000) as running:
        yield running


def refused(answer, *statuses):
    assert answer.status in statuses, answer.text
    said = answer.json
    assert said.keys() == {"error"}
    assert said["error"]
    assert "\n" not in said["error"]
    assert "Traceback" not in said["error"]
    return said["error"]


@pytest.mark.parametrize("path", [*ENDPOINTS, "/api/align", "/api/page"])
@pytest.mark.parametrize("body", [b"", b"{", b"nothing", b"\xff\xfe", b'{"text": "\xff"}', b"[" * 5000, b"NaN"])
def test_a_body_that_is_not_json(live, path, body):
    refused(live.post(path, body), 400, 422)


@pytest.mark.parametrize(
    "message", [[], None, 5, "text", {}, {"text": None}, {"text": 5}, {"text": [5]}, {"texts": "a"}]
)
def test_json_of_another_form(live, message):
    for path in ENDPOINTS:
        refused(live.post(path, message), 422)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"text": 3}, "text should be a valid string, but it is 3"),
        ({"text": ["1", 5]}, "text.1 "),
        ({"text": "1", "beam": "5"}, 'beam should be a valid integer, but it is "5"'),
        ({"text": "1", "beam": 0}, "beam "),
        ({"text": "1", "bem": 3}, 'there is no field "bem"; did you mean beam?'),
        ({"texts": "1"}, 'there is no field "texts"; did you mean text?'),
        ({"text": "1", "xyz": 3}, 'there is no field "xyz"; there are text, model, beam, n_best'),
        ({}, "text is missing"),
        ([], "the body "),
        (b'{"text": "\xff"}', "the body is not JSON"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_the_value_seen(live, body, named):
    assert refused(live.post("/api/translate", body), 400, 422).startswith(named)


def test_a_page_in_an_unsupported_language(live):
    message = refused(live.post("/api/page", {"text": "1", "language": "fr"}), 422)
    assert message == "language should be 'en' or 'ko', but it is \"fr\""


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json2", ""])
def test_a_body_that_is_not_said_to_be_json(live, kind):
    answer = live.post("/api/translate", {"text": "12"}, **{"Content-Type": kind})
    assert "application/json" in refused(answer, 415)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"beam": 0}, "beam"),
        ({"beam": -3}, "beam"),
        ({"beam": 33}, "beam = 33 is more than the 32"),
        ({"beam": 10**30}, "beam"),
        ({"beam": 2.5}, "beam"),
        ({"beam": "5"}, "beam"),
        ({"beam": True}, "beam"),
        ({"n_best": 0}, "n_best"),
        ({"n_best": 40}, "n_best = 40"),
        ({"beam": 2, "n_best": 3}, "n_best = 3 is more than beam = 2"),
        ({"model": 7}, "model"),
        ({"unknown": 7}, "unknown"),
    ],
)
def test_settings_out_of_range(live, asked, said):
    assert said in refused(live.post("/api/translate", {"text": "12", **asked}), 422)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"layer": 1}, "layer = 1 was asked for, but there are 1, counted from 0"),
        ({"head": 7}, "head = 7 was asked for"),
        ({"layer": -1}, "layer should be greater than or equal to 0, but it is -1"),
    ],
)
def test_a_layer_or_head_that_the_model_does_not_have(live, asked, said):
    assert said in refused(live.post("/api/align", {"source": "12", "target": "21", **asked}), 422)


def test_an_unknown_model_and_an_unknown_path(live):
    said = refused(live.post("/api/translate", {"text": "12", "model": "<b>none</b>\n"}), 404)
    assert "there are: reverser" in said
    refused(live.get("/api/nothing"), 404)
    refused(live.get("/api/translate"), 405)
    refused(live.ask("DELETE", "/"), 405)


@pytest.mark.parametrize("escape", ["\\ud800", "\\udfff", "a\\udc00b"])
def test_half_a_character(live, escape):
    for path in ENDPOINTS:
        body = f'{{"text": "{escape}"}}'.encode()
        assert "surrogate" in refused(live.post(path, body), 422)
    refused(live.post("/api/translate", f'{{"text": "1", "model": "{escape}"}}'.encode()), 422)
    refused(live.post("/api/translate", f'{{"text": "1", "{escape}": 1}}'.encode()), 422)


def test_too_much_of_anything(live):
    assert "201 characters" in refused(live.post("/api/translate", {"text": "1" * 201}), 422)
    assert "6 texts" in refused(live.post("/api/translate", {"text": ["1"] * 6}), 422)
    assert "20000 bytes" in refused(live.post("/api/translate", {"text": "1" * 30_000}), 413)
    refused(live.post("/api/align", {"source": "1", "target": "1" * 201}), 422)
    refused(live.post("/api/attention", {"text": "1", "target_ids": [5] * 4000}), 422)


def test_a_megabyte_sent_without_saying_how_long_it_is(live):
    with socket.create_connection(("127.0.0.1", live.port), timeout=30) as connection:
        connection.sendall(
            b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"1" * 0x10000 + b"\r\n"
        try:
            for _ in range(16):
                connection.sendall(chunk)
        except OSError:
            pass  # it hung up: enough is enough
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_never_ends(reverser):
    with (
        serving({"reverser": reverser}, seconds=0.2) as live,
        socket.create_connection(("127.0.0.1", live.port), timeout=30) as connection,
    ):
        connection.sendall(b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Content-Length: 100\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "\u0000", "\x07\x1b[31m", "\u202e12", "🙂" * 20, "가" * 50, "a\r\nb", "\ufdd0", "﷽"],
)
def test_any_text_is_translated_or_refused(live, text):
    answer = live.post("/api/translate", {"text": text})
    assert answer.status == 200
    assert answer.json["translations"][0]["source"] == text
    assert live.post("/api/stream", {"text": text}).status == 200
    for path in ("/api/beam", "/api/attention", "/api/page"):
        assert live.post(path, {"text": text}).status in (200, 422)


def test_empty_texts_stay_empty(live):
    for text in ("", "   ", "\n", "\u0000"):
        (found,) = live.post("/api/translate", {"text": text}).json["translations"]
        assert (found["text"], found["parts"]) == ("", 0)
        assert "empty" in refused(live.post("/api/attention", {"text": text}), 422)
    assert live.post("/api/translate", {"text": []}).json["translations"] == []


def test_a_target_that_cannot_be_said(live):
    both = {"text": "1", "target": "1", "target_ids": [5]}
    assert "not both" in refused(live.post("/api/attention", both), 422)
    for ids in ([-1], [10**6], [10**30], ["5"]):
        refused(live.post("/api/attention", {"text": "1", "target_ids": ids}), 422)


def test_a_model_without_attention_says_so(tmp_path):
    from support.commands import BRIEFLY, RECIPE, well, write

    recipe = write(tmp_path / "fixed.toml", RECIPE.replace("[decoder]", '[decoder]\nattention = "none"'))
    well("train", recipe, "--out", tmp_path / "fixed", "--device", "cpu", *BRIEFLY)
    with serving({"fixed": tmp_path / "fixed"}) as live:
        assert live.get("/api/models").json["models"][0]["layers"] == 0
        assert live.post("/api/translate", {"text": "12"}).status == 200
        assert "no attention" in refused(live.post("/api/attention", {"text": "12"}), 422)


def test_the_server_is_still_there(live):
    assert (
        live.ask("POST", "/api/translate", json.dumps({"text": "12"}).encode(), JSON).json["translations"][0]["text"]
        == "21"
    )


def fails(*arguments):
    done = jumok("serve", *arguments)
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("jumok: ")
    assert done.err.count("\n") == 1
    return done.err


def test_a_port_in_use(reverser):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = fails(reverser, "--port", taken.getsockname()[1])
    assert "in use" in said
    assert "--port" in said


def test_mistakes_before_serving(reverser, tmp_path):
    assert "there is no model folder" in fails(tmp_path / "none", "--port", 0)
    assert "two models are called 'model'" in fails(reverser, reverser, "--port", 0)
    assert "there is no model folder name=" in fails("name=", "--port", 0)
    assert "not an address" in fails(reverser, "--host", "no.such.host.invalid", "--port", 0)
    for key in ("s\xe9same", "열쇠", "open sesame", " "):
        assert "the API key may contain only" in fails(reverser, "--port", 0, "--api-key", key)
    for name in ("http://example.org", "example.org:80", "*", ""):
        assert "must be a host name" in fails(reverser, "--port", 0, "--allow-host", name)
    assert "must be an IP address" in fails(reverser, "--port", 0, "--trust-proxy", "proxy.example.org")
    assert "no room" in fails(reverser, "--port", 0, "--max-queue", 3)
    assert "PyTorch sees no GPU" in fails(reverser, "--port", 0, "--device", "cuda") or sys.platform == "darwin"


def test_a_missing_extra_is_named(reverser, monkeypatch):
    monkeypatch.setattr("jumok.cli.serve.find_spec", lambda name: None)
    assert "pip install 'jumok[serve]'" in fails(reverser)


def test_an_address_that_this_machine_does_not_have(reverser):
    done = jumok("serve", reverser, "--host", "192.0.2.1", "--port", "0")  # reserved for documents, nobody's
    assert done.code == 1
    assert "this machine has no such address: use --host 127.0.0.1" in done.err
    assert "--port" not in done.err
