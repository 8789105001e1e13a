"""Connections that say nothing, little, or too many at once: others are served, and the log stays small."""

import http.client
import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from jumok.serve.connections import Connection, connection_to_close, possible_connections
from jumok.serve.server import MAX_REPEATS, PERIOD, RepeatFilter
from support.serving import JSON, Live, busy, serving, until

SOURCE = Path(__file__).resolve().parents[2] / "src"
HEAD = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n"


def connect(live, first=b""):
    connection = socket.create_connection(("127.0.0.1", live.port), timeout=10)
    connection.sendall(first)
    return connection


def closed(connection):
    """What came before the other side closed."""
    received = b""
    try:
        while more := connection.recv(1000):
            received += more
    except ConnectionResetError:
        pass
    return received


def send_slowly(connection, pieces):
    for piece in pieces:
        connection.sendall(piece)
        time.sleep(0.01)


@pytest.mark.parametrize("first", [b"", HEAD[:30], HEAD, HEAD + b"\r\n{"], ids=["silent", "line", "headers", "body"])
def test_more_connections_than_allowed_that_never_finish_a_request_stop_nobody(reverser, first):
    with serving({"reverser": reverser}, connections=8) as live, ExitStack() as opened:
        for _ in range(30):
            opened.enter_context(connect(live, first))
        started = time.monotonic()
        for _ in range(3):
            assert live.post("/api/translate", {"text": "12"}).status == 200
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("first", [b"", HEAD[:30], HEAD])
def test_a_head_that_does_not_come_to_its_end_is_waited_for_only_so_long(reverser, first):
    with serving({"reverser": reverser}, head_seconds=0.3) as live, connect(live, first) as slow:
        assert closed(slow).startswith(b"HTTP/1.1 408")


@pytest.mark.slow
def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_any_other(reverser):
    with serving({"reverser": reverser}, head_seconds=0.5) as live, connect(live) as slow:
        started = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_slowly(slow, [bytes([byte]) for byte in HEAD * 10])
        assert time.monotonic() - started < 5


@pytest.mark.slow
def test_the_second_request_of_a_connection_has_its_own_time(reverser):
    with serving({"reverser": reverser}, head_seconds=0.4) as live:
        kept = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
        for _ in range(4):
            kept.request("GET", "/health")
            assert json.loads(kept.getresponse().read())["status"] == "ok"
            time.sleep(0.2)
        kept.sock.sendall(b"GET /hea")
        assert closed(kept.sock).startswith(b"HTTP/1.1 408")
        kept.close()


def test_where_every_connection_is_at_work_a_newcomer_is_told_to_come_back(reverser):
    with serving({"reverser": reverser}, connections=3) as live, busy(live), ExitStack() as opened:
        for _ in range(3):
            working = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
            opened.callback(working.close)
            working.request("POST", "/api/translate", json.dumps({"text": "12"}), JSON)
        until(lambda: live.service.batcher.depth == 3)
        refused = live.get("/health")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "too many connections" in refused.json["error"]


def test_the_client_with_the_most_connections_loses_one_silent_ones_first():
    def connection(address, since, busy):
        made = Connection.__new__(Connection)  # without a socket
        made.address, made.since, made.refused = address, since, False
        made.cycle = SimpleNamespace(response_complete=not busy, more_body=False)
        return made

    many, few = [connection("many", since, since > 2) for since in range(5)], connection("few", 0, False)
    newcomer = connection("new", 9, False)
    assert connection_to_close([few, *many, newcomer], newcomer) is many[0]
    at_work = [connection("many", since, True) for since in range(3)]
    assert connection_to_close([*at_work, connection("few", 9, True), newcomer], newcomer) is at_work[-1]
    assert connection_to_close([connection("few", 1, True), newcomer], newcomer) is newcomer


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_given_up(reverser, monkeypatch):
    monkeypatch.setattr("jumok.serve.server.SENDING_SECONDS", 0.1)
    with serving({"reverser": reverser}, seconds=0.2) as live, socket.socket() as deaf:
        # Before it connects: a window that shrinks later would hide what the server acknowledges.
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.settimeout(10)
        deaf.connect(("127.0.0.1", live.port))
        page = b"GET /web/attention.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_slowly(deaf, [page] * 6000)


def test_there_are_never_more_connections_than_files_may_be_open():
    resource = pytest.importorskip("resource")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert possible_connections(5) == 5
    if files != resource.RLIM_INFINITY:
        assert possible_connections(10**9) < files


def test_of_messages_that_repeat_the_log_has_a_few_and_their_number():
    now = 0.0
    repeats, written = RepeatFilter(lambda: now), []

    def log(message, *given):
        record = logging.LogRecord("x", logging.ERROR, "a.py", 7, message, given, None)
        if repeats.filter(record):
            written.append(record.getMessage())

    for _ in range(1000):
        log("no %s", "files")
    assert written == ["no files"] * MAX_REPEATS
    now = PERIOD + 1
    log("no %s", "files")
    assert written[-1] == "no files (995 more were not logged)"


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="needs ulimit")
def test_300_silent_connections_with_256_files_neither_end_service_nor_fill_the_log(tmp_path):
    log = tmp_path / "log"
    command = f"ulimit -n 256; exec {sys.executable} -m jumok serve --port 0 --device cpu 2> {log}"
    with subprocess.Popen(["bash", "-c", command], env={**os.environ, "PYTHONPATH": str(SOURCE)}) as process:
        try:
            until(lambda: log.exists() and "serving" in log.read_text(), 60, lambda: time.sleep(0.1))
            live = Live(int(re.search(r":(\d+) ", log.read_text())[1]), None)
            with ExitStack() as opened:
                for _ in range(300):
                    opened.enter_context(connect(live))
                assert live.post("/api/translate", {"text": "18 weeks ago"}).status == 200
                time.sleep(1)
            assert log.stat().st_size < 10_000
        finally:
            process.kill()
