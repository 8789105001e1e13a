"""A key is asked for wherever the page says so, and cannot be guessed by trying."""

import pytest

from jumok.serve.auth import MAX_CLIENTS, MAX_WRONG_KEYS, PERIOD, WrongKeys, client_address
from jumok.serve.errors import TooManyKeysError
from support.serving import serving

RIGHT = {"X-API-Key": "sesame"}


@pytest.mark.parametrize("path", ["/api", "/api/models", "/openapi.json", "/metrics"])
def test_what_the_server_says_of_itself_asks_for_the_key(locked, path):
    assert locked.get(path).status == 401
    assert locked.get(path, **RIGHT).status == 200


def test_the_openapi_description_shows_where_a_key_is_required(locked):
    paths = locked.get("/openapi.json", **RIGHT).json["paths"]
    secured = {
        path for path, methods in paths.items() for one in methods.values() if one.get("security") == [{"key": []}]
    }
    assert secured == paths.keys() - {"/health"}


@pytest.fixture(scope="module")
def locked(reverser):
    with serving({"reverser": reverser}, key="sesame", proxies=("127.0.0.1",)) as running:
        yield running


def test_whoever_tries_keys_has_to_wait_and_others_do_not(locked):
    guesser, other = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
    for number in range(MAX_WRONG_KEYS):
        assert locked.get("/api/models", **guesser, **{"X-API-Key": f"guess {number}"}).status == 401
    for key in ({"X-API-Key": "guess"}, RIGHT):
        refused = locked.get("/api/models", **guesser, **key)
        assert refused.status == 429
        assert 1 <= int(refused.headers["retry-after"]) <= PERIOD
        assert "wrong keys" in refused.json["error"]
    assert locked.get("/health", **guesser).status == 200
    assert locked.get("/api/models", **other, **RIGHT).status == 200


def test_asking_without_a_key_is_no_guess(locked):
    mine = {"X-Forwarded-For": "192.0.2.3"}
    for _ in range(MAX_WRONG_KEYS + 5):
        assert locked.get("/api/models", **mine).status == 401
    assert locked.get("/api/models", **mine, **RIGHT).status == 200


def test_only_a_proxy_that_is_trusted_says_who_asks(reverser):
    with serving({"reverser": reverser}, key="sesame") as live:
        for number in range(MAX_WRONG_KEYS):
            live.get("/api/models", **{"X-API-Key": "guess", "X-Forwarded-For": f"192.0.2.{number}"})
        assert live.get("/api/models", **RIGHT).status == 429


def test_after_a_minute_a_client_may_try_again():
    now = 0.0
    wrong = WrongKeys(lambda: now)
    for _ in range(MAX_WRONG_KEYS):
        wrong.check("a")
        wrong.add("a")
    wrong.check("b")
    with pytest.raises(TooManyKeysError):
        wrong.check("a")
    now = PERIOD + 1
    wrong.check("a")
    for number in range(2 * MAX_CLIENTS):
        wrong.add(str(number))
    assert len(wrong._times) == MAX_CLIENTS


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_network_is_one_client(host, client):
    assert client_address({"client": (host, 1)}) == client
