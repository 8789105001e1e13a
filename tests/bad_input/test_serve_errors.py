"""Whatever is sent, the answer is a 4xx with one line that says what is wrong; the server goes on."""

import socket
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from support.refusals import names
from support.refusals import refused as command_refused
from support.serving import serving

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
def test_a_body_that_is_not_json(live, path):
    for body in (b"", b"{", b"nothing", b"\xff\xfe", b'{"text": "\xff"}', b"[" * 5000, b"NaN"):
        refused(live.post(path, body), 400, 422)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_json_of_another_form(live, path):
    for message in ([], None, 5, "text", {}, {"text": None}, {"text": 5}, {"text": [5]}, {"texts": "a"}):
        refused(live.post(path, message), 422)


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ({"text": 3}, "text … string … 3"),
        ({"text": ["1", 5]}, "text.1 "),
        ({"text": "1", "bem": 3}, '"bem" … beam?'),
        ({"texts": "1"}, '"texts" … text?'),
        ({"text": "1", "xyz": 3}, '"xyz" … model … from, to, beam, n_best … text'),
        ({}, "text"),
        ([], "the body "),
        (b'{"text": "\xff"}', "the body … JSON"),
        ({"text": "1", "beam": 0}, "beam"),
        ({"text": "1", "beam": 33}, "beam = 33 … 32"),
        ({"text": "1", "beam": 10**30}, "beam"),
        ({"text": "1", "beam": 2.5}, "beam … integer"),
        ({"text": "1", "beam": "5"}, 'beam … integer … "5"'),
        ({"text": "1", "beam": True}, "beam"),
        ({"text": "1", "n_best": 0}, "n_best"),
        ({"text": "1", "n_best": 40}, "n_best = 40"),
        ({"text": "1", "beam": 2, "n_best": 3}, "n_best = 3 … beam = 2"),
        ({"text": "1", "model": 7}, "model"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_the_value_seen(live, body, facts):
    names(refused(live.post("/api/translate", body), 400, 422), facts)


def test_a_page_in_an_unsupported_language(live):
    message = refused(live.post("/api/page", {"text": "1", "language": "fr"}), 422)
    assert message == "language should be 'en' or 'ko', but it is \"fr\""


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json2", ""])
def test_a_body_that_is_not_said_to_be_json(live, kind):
    answer = live.post("/api/translate", {"text": "12"}, **{"Content-Type": kind})
    assert "application/json" in refused(answer, 415)


@pytest.mark.parametrize(
    ("asked", "facts"), [({"layer": 1}, "layer = 1 … 1"), ({"head": 7}, "head = 7 … 1"), ({"layer": -1}, "layer … -1")]
)
def test_a_layer_or_head_that_the_model_does_not_have(live, asked, facts):
    names(refused(live.post("/api/align", {"source": "12", "target": "21", **asked}), 422), facts)


def test_an_unknown_model_and_an_unknown_path(live):
    names(refused(live.post("/api/translate", {"text": "12", "model": "<b>none</b>\n"}), 404), "reverser")


def test_a_wrong_path_or_method_is_answered_with_the_right_ones(live):
    names(refused(live.get("/api/nothing"), 404), "/api/nothing … /api/translate … /api/caption … /health")
    names(refused(live.get("/web/nothing.js"), 404), "/web/nothing.js … /api/translate")
    assert refused(live.get("/api/translate"), 405) == "/api/translate takes POST, not GET"
    assert refused(live.ask("DELETE", "/"), 405) == "/ takes GET or HEAD, not DELETE"


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


def test_a_model_without_attention_says_so(forgetful):
    with serving({"fixed": forgetful}) as live:
        assert live.get("/api/models").json["models"][0]["layers"] == 0
        assert live.post("/api/translate", {"text": "12"}).status == 200
        assert "no attention" in refused(live.post("/api/attention", {"text": "12"}), 422)


def test_the_server_is_still_there(live):
    assert live.post("/api/translate", {"text": "12"}).json["translations"][0]["text"] == "21"


def test_a_port_in_use(reverser):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        names(command_refused("serve", reverser, "--port", port), port, "in use", "--port")


def test_mistakes_before_serving(reverser, tmp_path):
    def fails(*arguments):
        return command_refused("serve", *arguments, "--port", 0)

    names(fails(tmp_path / "none"), "no model folder", tmp_path / "none")
    names(fails(reverser, reverser), "used twice", "'model'")
    names(fails("name="), "no model folder", "name=")
    names(fails(reverser, "--host", "no.such.host.invalid"), "no.such.host.invalid", "address")
    for key in ("s\xe9same", "열쇠", "open sesame", " "):
        names(fails(reverser, "--api-key", key), "API key")
    for name in ("http://example.org", "example.org:80", "*", ""):
        names(fails(reverser, "--allow-host", name), "host name")
    names(fails(reverser, "--trust-proxy", "proxy.example.org"), "proxy.example.org", "IP address")
    names(fails(reverser, "--max-queue", 3), "--max-queue 3 is below --max-texts 64; raise --max-queue")
    if sys.platform != "darwin":
        names(fails(reverser, "--device", "cuda"), "no GPU")
    said = fails(reverser, "--host", "192.0.2.1")  # reserved for documents, nobody's
    names(said, "192.0.2.1", "--host 127.0.0.1")
    assert "--port" not in said


def test_a_missing_extra_is_named(reverser, monkeypatch):
    monkeypatch.setattr("jumok.cli.serve.find_spec", lambda name: None)
    names(command_refused("serve", reverser), "pip install '.[serve]'")
