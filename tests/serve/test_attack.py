"""What one client may do to all others: make them wait a moment, not more."""

import http.client
import json
import re
from contextlib import closing

import pytest

from support.serving import JSON, serving, until

HEAVY = {"text": ["a 1 " * 1250] * 52, "beam": 32}
"""Within every limit of a request, and many minutes of work."""


def heavy_request(live):
    """Sent, and its answer not waited for."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("POST", "/api/translate", json.dumps(HEAVY), JSON)
    until(lambda: live.service.batcher.depth > 40)
    return connection


def batches(live):
    return int(float(re.search(r"jumok_batch_items_count (\S+)", live.get("/metrics").text)[1]))


@pytest.mark.long
def test_a_short_text_waits_for_a_batch_or_two_of_a_request_of_many_minutes_which_ends_when_its_client_hangs_up(
    reverser,
):
    with serving({"reverser": reverser}) as live:
        attack = heavy_request(live)
        for _ in range(3):
            before = batches(live)
            answer = live.post("/api/translate", {"text": "12"})
            assert (answer.status, answer.json["translations"][0]["text"]) == (200, "21")
            assert batches(live) - before <= 4
        attack.close()
        until(lambda: live.service.batcher.depth == 0, 10)


@pytest.mark.long
def test_a_request_of_many_minutes_ends_at_its_deadline_and_is_then_refused_at_once(reverser):
    with serving({"reverser": reverser}, seconds=3) as live:
        with closing(heavy_request(live)) as attack:
            assert attack.getresponse().status == 504
        until(lambda: live.service.batcher.depth == 0, 10)
        assert live.post("/api/translate", {"text": "12"}).status == 200
        refused = live.post("/api/translate", HEAVY)
        assert refused.status == 413
        assert re.search(r"costs \d+ \(tokens times beam\), more than the \d+", refused.json["error"])


@pytest.mark.long
def test_a_long_text_in_pieces_is_what_the_translator_makes_of_it(live):
    text = "1 2 3. 4 5 6 7 8 9. 10 11 12 " * 5
    (found,) = live.post("/api/translate", {"text": text}).json["translations"]
    (wanted,) = live.service.models["reverser"].generator.translate([text])
    assert (found["source"], found["text"], found["parts"]) == (text, wanted.text, len(wanted.pieces))
    assert found["score"] == pytest.approx(wanted.score, abs=1e-4)
