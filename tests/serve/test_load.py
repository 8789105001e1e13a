"""Many at once, too many at once, too slow, and the end: every answer belongs to its question, and none is lost."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.serving import JSON, Blocker, Live, busy, events, serving, until

pytestmark = pytest.mark.long  # each test starts or ends servers

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_of_64_clients_every_one_gets_the_answer_to_its_own_question(live):
    questions = [f"{n * 7919 % 100000}" for n in range(64)]

    def client(number):
        asked = {"text": [questions[number], str(number)], "beam": 1 + number % 3}
        return live.post("/api/translate", asked).json["translations"]

    with ThreadPoolExecutor(64) as clients:
        answers = list(clients.map(client, range(64)))
    translator = live.service.models["reverser"].generator
    for beam in (1, 2, 3):
        mine = [number for number in range(64) if 1 + number % 3 == beam]
        expected = translator.translate([questions[number] for number in mine], beam=beam)
        assert [answers[number][0]["source"] for number in mine] == [questions[number] for number in mine]
        assert [answers[number][0]["text"] for number in mine] == [one.text for one in expected]
        assert [answers[number][1]["source"] for number in mine] == [str(number) for number in mine]


def test_what_waits_is_translated_as_one_batch(reverser):
    with serving({"reverser": reverser}) as live:
        with busy(live) as blocker, ThreadPoolExecutor(20) as clients:
            asked = [clients.submit(live.post, "/api/translate", {"text": str(n)}) for n in range(20)]
            until(lambda: live.service.batcher.depth == 20)
            blocker.go_on.set()
            assert all(one.result().status == 200 for one in asked)
        text = live.get("/metrics").text
    assert "jumok_batch_items_count 2.0" in text  # what kept it busy, and all twenty together
    assert "jumok_batch_items_sum 21.0" in text


def test_a_full_queue_turns_requests_away_and_recovers(reverser):
    with serving({"reverser": reverser}, queue=4, texts=4) as live, busy(live) as blocker:
        with ThreadPoolExecutor(4) as clients:
            waiting = [clients.submit(live.post, "/api/translate", {"text": str(n)}) for n in range(4)]
            until(lambda: live.service.batcher.depth == 4)
            for path in ("/api/translate", "/api/stream", "/api/beam", "/api/attention"):
                refused = live.post(path, {"text": "12"})
                assert refused.status == 503
                assert int(refused.headers["retry-after"]) >= 1
                assert "waiting" in refused.json["error"]
            assert live.get("/health").status == 200
            blocker.go_on.set()
            assert [one.result().json["translations"][0]["source"] for one in waiting] == ["0", "1", "2", "3"]
        assert live.post("/api/translate", {"text": "12"}).json["translations"][0]["text"] == "21"


@pytest.mark.parametrize("path", ["/api/translate", "/api/stream", "/api/beam"])
def test_a_request_that_takes_too_long_is_given_up_and_leaves_the_queue(reverser, path):
    with serving({"reverser": reverser}, seconds=0.2) as live, busy(live):
        late = live.post(path, {"text": "12"})
        assert late.status == 504
        assert "0.2 seconds" in late.json["error"]
        until(lambda: live.service.batcher.depth == 0)


def test_a_look_at_its_own_translation_takes_no_longer_than_one_request_may(reverser):
    with serving({"reverser": reverser}, seconds=1) as live, busy(live) as before, ThreadPoolExecutor(1) as client:
        asked = client.submit(live.post, "/api/attention", {"text": "12"})
        until(lambda: live.service.batcher.depth == 1)
        between = Blocker()  # after the translation, before the look
        live.service.batcher.submit(between, [None])
        time.sleep(0.6)
        before.go_on.set()
        time.sleep(0.8)
        between.go_on.set()
        assert asked.result().status == 504


def streamed(live, text):
    return events(live.post("/api/stream", {"text": text}).text)


def failing(translator, when):
    """A translator's `translate` that breaks down at its end for some batches."""
    whole = translator.translate

    def translate(texts, **settings):
        found = whole(texts, **settings)
        if when(texts):
            raise RuntimeError("out of memory")
        return found

    return translate


def test_a_search_that_is_done_again_because_its_batch_failed_is_watched_from_its_beginning(reverser, monkeypatch):
    with serving({"reverser": reverser}) as live:
        translator = live.service.models["reverser"].generator
        alone = live.post("/api/beam", {"text": "123"}).json, streamed(live, "123")
        monkeypatch.setattr(translator, "translate", failing(translator, lambda texts: len(texts) > 1))
        with busy(live) as blocker, ThreadPoolExecutor(3) as clients:
            tree = clients.submit(live.post, "/api/beam", {"text": "123"})
            stream = clients.submit(streamed, live, "123")
            until(lambda: live.service.batcher.depth == 2)
            blocker.go_on.set()
            assert tree.result().json == alone[0]
            assert stream.result()[-1] == alone[1][-1]


def test_a_stream_that_breaks_off_says_so_in_its_last_event(reverser, monkeypatch):
    with serving({"reverser": reverser}) as live:
        translator = live.service.models["reverser"].generator
        monkeypatch.setattr(translator, "translate", failing(translator, lambda texts: True))
        (first, _), *_, (last, said) = streamed(live, "123")
    assert (first, last) == ("partial", "error")
    assert (said["status"], "log" in said["error"]) == (500, True)


def test_without_a_model_the_one_that_comes_along_is_served():
    command = [sys.executable, "-m", "jumok", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            notice, greeting = process.stderr.readline(), process.stderr.readline()
            live = Live(int(re.search(r":(\d+) ", greeting)[1]), None)
            (found,) = live.post("/api/translate", {"text": "18 weeks ago"}).json["translations"]
        finally:
            process.kill()
    assert "comes with jumok" in notice
    assert greeting.startswith("serving en-ko at http://127.0.0.1:")
    assert found["text"] == "18주 전"


@pytest.mark.parametrize("path", ["/api/translate", "/api/stream"])
def test_the_work_of_a_client_that_hangs_up_is_dropped(reverser, path):
    with serving({"reverser": reverser}) as live, busy(live):
        connection = http.client.HTTPConnection("127.0.0.1", live.port)
        connection.request("POST", path, json.dumps({"text": "12"}), JSON)
        until(lambda: live.service.batcher.depth == 1)
        connection.close()
        until(lambda: live.service.batcher.depth == 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_answers_what_it_has_accepted(reverser, number):
    # Beams too wide to be quick, in batches of one: the queue is not empty when the signal comes.
    command = [sys.executable, "-m", "jumok", "serve", f"one={reverser}", "--port", "0", "--batch-tokens", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            greeting = process.stderr.readline()
            live = Live(int(re.search(r":(\d+) ", greeting)[1]), None)
            with ThreadPoolExecutor(12) as clients:
                asked = [clients.submit(live.post, "/api/translate", {"text": str(n), "beam": 32}) for n in range(12)]
                until(lambda: accepted(live) == 12)
                process.send_signal(number)
                answers = [one.result() for one in asked]
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert greeting.startswith("serving one at http://127.0.0.1:")
    assert [one.json["translations"][0]["source"] for one in answers] == [str(n) for n in range(12)]


def test_a_server_that_is_told_twice_ends_at_once(reverser):
    command = [sys.executable, "-m", "jumok", "serve", str(reverser), "--port", "0", "--batch-tokens", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            live = Live(int(re.search(r":(\d+) ", process.stderr.readline())[1]), None)
            with ThreadPoolExecutor(60) as clients:
                for number in range(60):
                    clients.submit(live.post, "/api/translate", {"text": str(number), "beam": 32})
                until(lambda: waiting(live) >= 20)
                for _ in range(2):
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.1)
                assert process.wait(30) == 128 + signal.SIGINT
            assert process.stderr.read() == ""
        finally:
            process.kill()


def environment():
    return {name: value for name, value in os.environ.items() if name != "JUMOK_API_KEY"} | {
        "PYTHONPATH": str(SOURCE),
        "OMP_NUM_THREADS": "1",
    }


def waiting(live):
    return metric(live, "jumok_queue_depth")


def accepted(live):
    """Questions that wait, are being answered or have been."""
    return metric(live, "jumok_batch_items_sum") + waiting(live)  # in this order none is counted twice


def metric(live, name):
    return int(re.search(rf"{name} (\d+)", live.get("/metrics").text)[1])
