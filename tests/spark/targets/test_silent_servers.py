"""Servers that take a connection and fall silent: whoever reads from one is not held for ever."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy.engine import make_url

from spark.targets import target as targets
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetError, TargetStatementTimeout, TargetUnreachable
from tests.journeys.tcp_proxy import Silencing, ended

LIMITS = SessionLimits(statement_timeout_ms=1_000, connect_timeout_s=2)
MARGIN_S = 0.5
GIVEN_UP = {"postgresql": TargetUnreachable, "mysql": TargetStatementTimeout}
"""MySQL limits the time of SELECT alone: there our own patience is the limit of a statement."""
MANY_ROWS = "select n, repeat('x', 1000) from generate_series(1, 100000) n"


@pytest.fixture(params=["postgresql", "mysql"])
def real(request: pytest.FixtureRequest) -> Target:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Target)
    return found


@pytest.fixture
def short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "ANSWER_MARGIN_S", MARGIN_S, raising=False)


@pytest.fixture
def silencing(real: Target, short_margin: None) -> Iterator[Silencing]:
    port = make_url(real.url).port
    assert port is not None
    with Silencing(port) as proxy:
        yield proxy


@pytest.fixture
def behind(real: Target, silencing: Silencing) -> Target:
    url = make_url(real.url).set(host="127.0.0.1", port=silencing.port)
    return replace(real, url=url.render_as_string(hide_password=False))


def opened(target: Target) -> Connection:
    return connect(target, application_name="lethe-test", limits=LIMITS)


def test_server_that_is_silent_in_the_middle_of_a_query_is_given_up(
    behind: Target, silencing: Silencing
) -> None:
    with opened(behind) as conn:
        assert conn.execute("select 1") == [(1,)]
        silencing.fall_silent()
        began_s = time.monotonic()
        found = ended(lambda: conn.execute("select 2"))
        assert isinstance(found, GIVEN_UP[behind.dialect])
        assert time.monotonic() - began_s >= LIMITS.statement_timeout_ms / 1000
        assert conn.closed
        assert isinstance(ended(lambda: conn.execute("select 3")), TargetUnreachable)


def test_server_that_is_silent_right_after_the_handshake_is_unreachable(
    behind: Target, silencing: Silencing
) -> None:
    opened(behind).close()

    class AfterHello(Silencing):
        def _client_said(self, server: socket.socket, data: bytes) -> bool:
            if b"statement_time" in data:  # the first settings of the session
                self.fall_silent()
            return super()._client_said(server, data)

    with AfterHello(silencing.server_port) as proxy:
        url = make_url(behind.url).set(port=proxy.port).render_as_string(hide_password=False)
        assert isinstance(ended(lambda: opened(replace(behind, url=url))), TargetUnreachable)
        assert proxy.after_bytes == 0


def test_commit_without_an_answer_has_an_end(behind: Target, silencing: Silencing) -> None:
    def act() -> None:
        with opened(behind) as conn, conn.transaction():
            conn.execute("select 1")
            silencing.fall_silent()

    assert isinstance(ended(act), GIVEN_UP[behind.dialect])


@pytest.mark.parametrize("how", ["stream", "copy"])
def test_rows_that_stop_in_their_middle_are_unreachable(
    postgresql: Target, how: str, short_margin: None
) -> None:
    with Silencing(make_url(postgresql.url).port or 0) as proxy:
        url = make_url(postgresql.url).set(host="127.0.0.1", port=proxy.port)
        seen = 0

        def act() -> None:
            nonlocal seen
            with opened(replace(postgresql, url=url.render_as_string(hide_password=False))) as conn:
                proxy.fall_silent(after_bytes=500_000)
                if how == "stream":
                    for _row in conn.stream(MANY_ROWS):
                        seen += 1
                else:
                    with conn.copy_out(f"copy ({MANY_ROWS}) to stdout") as rows:
                        for _row in rows:
                            seen += 1

        assert isinstance(ended(act), TargetUnreachable)
        assert 100 < seen < 1_000


def test_reader_that_takes_its_time_between_two_rows_is_served(
    postgresql: Target, short_margin: None
) -> None:
    limits = replace(LIMITS, statement_timeout_ms=60_000)
    with connect(postgresql, application_name="lethe-test", limits=limits) as conn:
        conn._session.answer_within(0.3)
        seen = 0
        for _row in conn.stream(MANY_ROWS):
            seen += 1
            if seen in (1, 50_000):
                time.sleep(1.0)
        assert seen == 100_000


def test_statement_that_may_take_longer_is_waited_for(postgresql: Target, short_margin: None) -> None:
    with opened(postgresql) as conn:
        with conn.transaction():
            conn.allow(4_000)
            conn.execute("select pg_sleep(2.5)")
        assert conn.execute("show statement_timeout") == [("1s",)]
        with pytest.raises(TargetError) as caught:
            conn.execute("select pg_sleep(3)")
        assert caught.value.code == "TARGET_STATEMENT_TIMEOUT"
