"""Who goes when the door is full, and who has taken too long, by a clock of the test's own."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from app.kit.door import Door, DoorLimits, VisitorSocket
from app.kit.log_bounds import LogBounds
from app.kit.rates import Rates


class Hands:
    """Connections of a test: the far ends are kept, so that what is closed is closed by the door."""

    def __init__(self, **limits: object) -> None:
        self.now = 0.0
        fields = {
            "connections_max": 4, "per_address_max": 3, "spare": 1,
            "headers_s": 10.0, "body_chunk_s": 15.0, "body_s": 60.0,
        }  # fmt: skip
        self.door = Door(DoorLimits(**(fields | limits)), clock=lambda: self.now)  # type: ignore[arg-type]
        self.far: dict[int, socket.socket] = {}
        self.near: list[socket.socket] = []

    def enter(self, address: str) -> VisitorSocket | None:
        near, far = socket.socketpair()
        entered = self.door.let_in(near, address)
        if entered is None:
            far.close()
            return None
        self.far[id(entered)] = far
        self.near.append(entered)
        return entered

    def is_ended(self, sock: VisitorSocket) -> bool:
        far = self.far[id(sock)]
        far.setblocking(False)
        try:
            return far.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def hands() -> Iterator[Hands]:
    found = Hands()
    yield found
    for sock in (*found.near, *found.far.values()):
        sock.close()


def _visit(hands: Hands, sock: VisitorSocket | None) -> object:
    assert sock is not None
    visit = hands.door.visit(sock.fileno())
    assert visit is not None
    return visit


def test_oldest_at_rest_goes_for_a_newcomer(hands: Hands) -> None:
    socks = [hands.enter(f"10.0.0.{number}") for number in range(4)]
    _visit(hands, socks[0]).wait_for_answer()  # type: ignore[attr-defined]
    assert hands.enter("10.0.0.9") is not None
    assert [sock is not None and hands.is_ended(sock) for sock in socks] == [False, True, False, False]


def test_address_that_is_full_loses_its_own(hands: Hands) -> None:
    other = hands.enter("10.0.0.1")
    own = [hands.enter("10.0.0.2") for _ in range(3)]
    assert hands.enter("10.0.0.2") is not None
    assert other is not None
    assert own[0] is not None
    assert (hands.is_ended(other), hands.is_ended(own[0])) == (False, True)


def test_nobody_goes_who_has_a_request_in_work(hands: Hands) -> None:
    for number in range(4):
        _visit(hands, hands.enter(f"10.0.0.{number}")).wait_for_answer()  # type: ignore[attr-defined]
    assert hands.enter("10.0.0.9") is None
    assert len(hands.door) == 4


def test_closed_sockets_are_counted_no_more(hands: Hands) -> None:
    for _ in range(20):
        sock = hands.enter("10.0.0.1")
        assert sock is not None
        sock.close()
        sock.close()
    assert len(hands.door) == 0


def test_headers_and_bodies_have_their_time(hands: Hands) -> None:
    idle, dripping, paused = (hands.enter(f"10.0.0.{number}") for number in range(3))
    assert idle is not None
    assert dripping is not None
    assert paused is not None
    body, waits = _visit(hands, dripping), _visit(hands, paused)
    body.send_body(now=0.0)  # type: ignore[attr-defined]
    waits.send_body(now=0.0)  # type: ignore[attr-defined]
    waits.is_paused = lambda: True  # type: ignore[attr-defined]
    ends = {}
    while hands.now < 100:
        hands.now += 1.0
        if not hands.is_ended(dripping):
            body.says_something(now=hands.now)  # type: ignore[attr-defined]
        hands.door.sweep()
        for name, sock in (("idle", idle), ("dripping", dripping), ("paused", paused)):
            if name not in ends and hands.is_ended(sock):
                ends[name] = hands.now
    assert ends == {"idle": 10.0, "dripping": 60.0}


def test_rate_fills_with_time() -> None:
    now = [0.0]
    rates = Rates(per_s=2.0, burst=3.0, clock=lambda: now[0])
    for _ in range(3):
        assert rates.wait_s("a") == 0
        rates.take("a")
    assert rates.wait_s("a") == 0.5
    assert rates.wait_s("b") == 0
    now[0] = 0.5
    assert rates.wait_s("a") == 0


def test_lines_of_one_kind_are_bounded_and_counted() -> None:
    now = [0.0]
    said: list[tuple[str, int]] = []
    bounds = LogBounds(say=lambda kind, left: said.append((kind, left)), lines_per_s=5, clock=lambda: now[0])
    assert sum(bounds.passes("accept failed") for _ in range(8_009)) == 5
    assert bounds.passes("something else")
    bounds.sum_up()
    assert said == []
    now[0] = 1.0
    bounds.sum_up()
    assert said == [("accept failed", 8_004)]
    assert bounds.passes("accept failed")
