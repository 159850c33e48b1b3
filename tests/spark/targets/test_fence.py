import threading
import time

import pytest

from spark.targets.advisory import hold, holders, release
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import FenceRaised, TargetLockTimeout
from spark.targets.fence import check_fence, raise_fence, read_fence
from spark.targets.ledger import ensure_ledger
from tests.spark.targets.conftest import Connect

FENCE = "purge:outgoing"


@pytest.fixture
def conn(target: Target, opened: Connect) -> Connection:
    found = opened(target)
    ensure_ledger(found)
    return found


def test_tokens_only_grow(conn: Connection) -> None:
    assert read_fence(conn, FENCE) is None
    raise_fence(conn, FENCE, token=3, owner="job_a")
    raise_fence(conn, FENCE, token=3, owner="job_a")
    raise_fence(conn, FENCE, token=5, owner="job_b")
    with pytest.raises(FenceRaised) as caught:
        raise_fence(conn, FENCE, token=4, owner="job_a")
    assert (caught.value.token, caught.value.fence_token) == (4, 5)
    with pytest.raises(FenceRaised):
        raise_fence(conn, FENCE, token=5, owner="job_a")
    assert read_fence(conn, FENCE) == (5, "job_b")


def test_unit_goes_on_only_with_the_token_of_the_fence(conn: Connection) -> None:
    raise_fence(conn, FENCE, token=4, owner="job_a")
    with conn.transaction():
        check_fence(conn, FENCE, token=4)
    for token in (3, 5):
        with pytest.raises(FenceRaised) as caught, conn.transaction():
            check_fence(conn, FENCE, token=token)
        assert caught.value.fence_token == 4
    with pytest.raises(FenceRaised) as caught, conn.transaction():
        check_fence(conn, "purge:unknown", token=4)
    assert caught.value.fence_token is None


def test_claim_waits_for_the_unit_in_flight_and_then_refuses_the_stale_one(
    conn: Connection, target: Target, opened: Connect
) -> None:
    raise_fence(conn, FENCE, token=1, owner="job_a")
    claimer = opened(target, limits=SessionLimits(lock_timeout_ms=200))
    with conn.transaction():
        check_fence(conn, FENCE, token=1)
        started = time.monotonic()
        with pytest.raises(TargetLockTimeout):
            raise_fence(claimer, FENCE, token=2, owner="job_b")
        assert 0.15 < time.monotonic() - started < 2
    raise_fence(claimer, FENCE, token=2, owner="job_b")
    with pytest.raises(FenceRaised), conn.transaction():
        check_fence(conn, FENCE, token=1)


def test_claim_goes_through_when_the_unit_ends_in_time(
    conn: Connection, target: Target, opened: Connect
) -> None:
    raise_fence(conn, FENCE, token=1, owner="job_a")
    claimer = opened(target, limits=SessionLimits(lock_timeout_ms=10_000))
    claim = threading.Thread(target=raise_fence, args=(claimer, FENCE), kwargs={"token": 2, "owner": "job_b"})
    with conn.transaction():
        check_fence(conn, FENCE, token=1)
        claim.start()
        time.sleep(0.2)
        assert claim.is_alive()
    claim.join(10)
    assert read_fence(conn, FENCE) == (2, "job_b")


def test_units_share_the_fence(postgresql: Target, opened: Connect) -> None:
    conn, other = opened(postgresql), opened(postgresql)
    ensure_ledger(conn)
    raise_fence(conn, FENCE, token=1, owner="job_a")
    with conn.transaction(), other.transaction():
        check_fence(conn, FENCE, token=1)
        check_fence(other, FENCE, token=1)


def test_claims_at_once_leave_the_greatest_and_tell_every_loser(
    conn: Connection, target: Target, opened: Connect
) -> None:
    limits = SessionLimits(lock_timeout_ms=10_000)
    tokens = list(range(1, 9))
    connections = {token: opened(target, limits=limits) for token in tokens}
    barrier = threading.Barrier(len(tokens))
    won: list[int] = []
    lost: list[int] = []
    seen: list[tuple[int, int | None]] = []

    def claim(token: int) -> None:
        barrier.wait()
        try:
            raise_fence(connections[token], FENCE, token=token, owner=f"job_{token}")
            won.append(token)
        except FenceRaised as exc:
            lost.append(token)
            seen.append((token, exc.fence_token))

    threads = [threading.Thread(target=claim, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won + lost) == tokens
    assert [token for token, fence in seen if fence is None or fence <= token] == []
    assert 8 in won
    assert read_fence(conn, FENCE) == (8, "job_8")


def test_equal_tokens_of_two_owners_have_one_winner(
    conn: Connection, target: Target, opened: Connect
) -> None:
    connections = [opened(target, limits=SessionLimits(lock_timeout_ms=10_000)) for _ in range(2)]
    barrier = threading.Barrier(2)
    outcomes: list[str] = []

    def claim(index: int) -> None:
        barrier.wait()
        try:
            raise_fence(connections[index], FENCE, token=7, owner=f"job_{index}")
            outcomes.append("won")
        except FenceRaised:
            outcomes.append("lost")

    threads = [threading.Thread(target=claim, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost", "won"]


def test_two_stores_on_one_database_collide_on_the_advisory_lock(postgresql: Target, opened: Connect) -> None:
    first = opened(postgresql, name="job_a:u:1")
    other_url = Target(postgresql.url.replace("+psycopg", ""), password=postgresql.password, schema="public")
    second = opened(other_url)
    hold(first, FENCE)
    hold(first, FENCE)
    with pytest.raises(TargetLockTimeout, match="job_a:u:1"):
        hold(second, FENCE)
    assert [holder.application_name for holder in holders(second, FENCE)] == ["job_a:u:1"]
    hold(second, "another resource")
    first.close()
    for _ in range(50):
        if not holders(second, FENCE):
            break
        time.sleep(0.1)
    hold(second, FENCE)
    release(second, FENCE)
    assert holders(second, FENCE) == []


def test_stores_in_two_schemas_do_not_collide(postgresql: Target, opened: Connect) -> None:
    first = opened(postgresql)
    first.execute("create schema other")
    hold(first, FENCE)
    hold(opened(Target(postgresql.url, password=postgresql.password, schema="other")), FENCE)


def test_advisory_lock_on_sqlite_is_nothing(sqlite: Target, opened: Connect) -> None:
    first, second = opened(sqlite), opened(sqlite)
    hold(first, FENCE)
    hold(second, FENCE)
    assert holders(first, FENCE) == []
