"""A consumer is called at an address that was judged; its name is for TLS and the Host header alone."""

import httpx
import pytest

from app.outgoing.hosts import JudgedTransport, place_of_url
from app.replication.peer.answers import PeerHostRefused
from app.replication.peer.client import ConsumerAddress, PeerClient
from spark.targets.errors import TargetHostNotAllowed


class Resolver:
    """Answers with the next list at each look."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    def __call__(self, _host: str, _port: int) -> list[str]:
        return self.answers.pop(0)


class Way(httpx.BaseTransport):
    """Writes down where requests go; some addresses do not answer."""

    def __init__(self, *, away: frozenset[str] = frozenset()) -> None:
        self.away = away
        self.seen: list[tuple[str, str, str]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append((request.url.host, request.headers["host"], request.extensions["sni_hostname"]))
        if request.url.host in self.away:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, json={})


def get(way: Way, *answers: list[str]) -> httpx.Response:
    transport = JudgedTransport(way, (("east.example:8765",), ("10.0.0.0/8",)), look_up=Resolver(*answers))
    with httpx.Client(transport=transport, trust_env=False) as client:
        return client.get("https://east.example:8765/v1/replicas")


def test_request_goes_to_the_address_and_shows_the_name() -> None:
    way = Way()
    answer = get(way, ["10.0.0.5"])
    assert way.seen == [("10.0.0.5", "east.example:8765", "east.example")]
    assert str(answer.request.url) == "https://east.example:8765/v1/replicas"


def test_next_address_is_taken_where_one_is_away_and_none_that_is_not_allowed() -> None:
    way = Way(away=frozenset({"10.0.0.5"}))
    get(way, ["192.0.2.1", "10.0.0.5", "10.0.0.6"])
    assert [host for host, _, _ in way.seen] == ["10.0.0.5", "10.0.0.6"]


@pytest.mark.parametrize("found", ["127.0.0.1", "192.0.2.66", "169.254.169.254"])
def test_name_that_resolves_elsewhere_later_is_sent_nothing(found: str) -> None:
    way = Way()
    transport = JudgedTransport(way, (("10.0.0.0/8",),), look_up=Resolver(["10.0.0.5"], [found]))
    with httpx.Client(transport=transport, trust_env=False) as client:
        client.get("http://east.example:8765/")
        with pytest.raises(TargetHostNotAllowed):
            client.get("http://east.example:8765/")
    assert [host for host, _, _ in way.seen] == ["10.0.0.5"]


def test_consumer_whose_host_is_not_allowed_is_refused_not_waited_for() -> None:
    address = ConsumerAddress(
        url="http://127.0.0.1:1", store="orders", token="lethe_secret", hosts=(("east.example",),)
    )
    assert "lethe_secret" not in repr(address)
    with PeerClient(address) as client, pytest.raises(PeerHostRefused):
        client.ruv()


def test_place_of_a_url_has_its_schemes_port() -> None:
    assert place_of_url("https://east.example/base") == ("east.example", 443)
    assert place_of_url("http://[::1]:8765") == ("::1", 8765)
