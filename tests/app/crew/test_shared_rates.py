"""Buckets that processes share: they count together, and no process holds up another."""

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from app.kit.rates import Rates
from app.kit.shared_rates import SET_BYTES, SETS, WAYS, SharedRates, SharedTable


@pytest.fixture
def table() -> Iterator[SharedTable]:
    made = SharedTable.create()
    yield made
    made.close()


def _forked(act: object) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    return pid


def test_one_process_counts_as_one_that_shares_nothing(table: SharedTable) -> None:
    now = [1_000.0]
    own = Rates(per_s=0.7, burst=5, clock=lambda: now[0])
    shared = SharedRates(table, "x", per_s=0.7, burst=5, clock=lambda: now[0])
    chosen = random.Random(7)
    for _ in range(3_000):
        key = f"key {chosen.randrange(40)}"
        now[0] += chosen.choice([0.0, 0.01, 0.4, 2.0])
        assert shared.wait_s(key) == pytest.approx(own.wait_s(key))
        if chosen.random() < 0.7:
            own.take(key)
            shared.take(key)


def test_processes_count_together_and_limits_by_their_names(table: SharedTable) -> None:
    def take(name: str) -> None:
        rates = SharedRates(table, name, per_s=0.000_1, burst=1_000)
        for _ in range(200):
            rates.take("ann")
            time.sleep(0.001)  # as requests do something besides

    for pid in [_forked(lambda: take("logins")) for _ in range(4)]:
        assert os.waitpid(pid, 0)[1] == 0
    left = SharedRates(table, "logins", per_s=0.000_1, burst=1_000)
    taken = sum(left.wait_s("ann") == 0 and left.take("ann") is None for _ in range(1_000))
    assert 200 <= taken <= 240  # one that met another may have counted as one with it
    assert SharedRates(table, "others", per_s=1, burst=1).wait_s("ann") == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_process_that_holds_a_bucket_holds_up_nobody(table: SharedTable, number: int) -> None:
    rates = SharedRates(table, "x", per_s=1, burst=2)
    came, told = os.pipe()

    def hold() -> None:
        with table.held(rates._digest("ann")):
            os.write(told, b".")
            time.sleep(60)

    pid = _forked(hold)
    os.read(came, 1)
    os.kill(pid, number)
    began = time.monotonic()
    rates.take("ann")
    rates.take("ann")
    assert time.monotonic() - began < 0.5
    assert rates.wait_s("ann") > 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(came)
    os.close(told)


def test_whoever_was_heard_of_longest_ago_is_forgotten_first(table: SharedTable) -> None:
    now = [1.0]
    rates = SharedRates(table, "x", per_s=0.001, burst=1, clock=lambda: now[0])
    rates.take("first")
    wanted = int.from_bytes(rates._digest("first")[:4], "little") % SETS
    same, number = [], 0
    while len(same) < WAYS:
        number += 1
        if int.from_bytes(rates._digest(f"{number}")[:4], "little") % SETS == wanted:
            same.append(f"{number}")
    for key in same[:-1]:
        now[0] += 1
        rates.take(key)
    assert rates.wait_s("first") > 0
    now[0] += 1
    rates.take(same[-1])
    assert rates.wait_s("first") == 0
    assert all(rates.wait_s(key) > 0 for key in same)
    assert SET_BYTES % WAYS == 0
