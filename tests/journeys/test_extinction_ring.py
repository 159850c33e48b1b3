"""Three replicas in a ring under load, an extinction on one of them, kills of all: no extinct key is left.

Writers go on writing extinct keys until their own replica has heard of the extinction; the changes travel,
and show nowhere in the end. The three are on both databases.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.conftest import SharedServer
from tests.journeys.replicas import TERMINAL, Site
from tests.journeys.ring import (
    CHANGES_MAX,
    DATABASES,
    KEYS,
    PATIENCE_S,
    PAUSE_S,
    RIDS,
    TRY_AGAIN,
    Activity,
    Change,
    Killer,
    Ring,
    Written,
    _plain,
    _text,
    assert_audits_agree,
    assert_sessions_did_it,
    assert_whole,
    converge,
    newest,
    ring_of_three,
)
from tests.journeys.service import until

pytestmark = [pytest.mark.journey, pytest.mark.postgresql]
START, END = b"k2", b"k4"
OLD_ENTRIES = 400
# So slow that a kill meets it at work.
SLOW_SCAN = {
    "parameters": {
        "je.cleaner.extinctScanBatchSize": 50,
        "je.cleaner.extinctScanBatchDelay": "PT0.1S",
    }
}
CONVERGE_S = 120.0


@pytest.fixture
def urls(postgresql_server: SharedServer, tmp_path: Path) -> Iterator[list[str]]:
    """A new database, and two new files."""
    name = f"lethe_ring_{uuid.uuid4().hex[:12]}"
    postgresql_server.execute(f"create database {name}")
    yield [
        f"sqlite:///{tmp_path}/replica-0.db",
        postgresql_server.url(name),
        f"sqlite:///{tmp_path}/replica-2.db",
    ]
    postgresql_server.execute(f"drop database if exists {name} with (force)")


def is_extinct(key: bytes) -> bool:
    """A naive verdict."""
    return START <= key < END


class ExtinctActivity(Activity):
    """Writers that are told which of their keys are extinct, from some moment on.

    Attributes:
        refused: how many requests were, by replica.
    """

    def __init__(self, ring: Ring, seed: int) -> None:
        self.refused = dict.fromkeys(RIDS, 0)
        super().__init__(ring, seed)

    def _writer(self, site: Site, rid: int, seed: int) -> Callable[[], None]:
        rng, serial = Random(f"{seed} writer {rid}"), iter(range(10**9))

        def write() -> None:
            number = next(serial)
            keys = [f"k{rng.randrange(KEYS)}".encode() for _ in range(rng.randint(1, CHANGES_MAX))]
            if rng.random() < 0.5:
                keys = [key for key in keys if not is_extinct(key)] or [b"k1"]
            changes: tuple[Change, ...] = tuple(
                (
                    rng.choice(DATABASES),
                    key,
                    None if rng.random() < 0.2 else f"{rid}.{number}.{part}".encode(),
                )
                for part, key in enumerate(keys)
            )
            answer = _until_answered(site, f"ring-{rid}-{number}", changes)
            told = answer.json()
            with self._guard:
                if answer.status_code == 200:
                    self.written.append(Written(rid, changes, told["first_csn"], told["last_csn"]))
                else:
                    assert told["code"] == "KEY_EXTINCT", told
                    assert is_extinct(keys[told["row"]])
                    self.refused[rid] += 1
            self._ended.wait(rng.random() * 2 * PAUSE_S)

        return write


def _until_answered(site: Site, key: str, changes: tuple[Change, ...]) -> httpx.Response:
    """One request, repeated under its key until it was written, or refused for its keys."""
    body = {
        "changes": [
            {
                "database": _text(database),
                "key": _text(name),
                "value": None if value is None else _text(value),
            }
            for database, name, value in changes
        ]
    }
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = site.call("POST", f"{site.path}/changes", json=body, headers={"Idempotency-Key": key})
        if answer.status_code in (200, 409):
            return answer
        assert answer.status_code in TRY_AGAIN, answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)


def _discard(site: Site) -> str:
    """Say it once, however often that takes; its id."""
    body = {
        "databases": [_text(each) for each in DATABASES],
        "start_key": _text(START),
        "end_key": _text(END),
        "label": "old ones",
        "confirm_keys_never_reused": True,
        "reason": "they will never be used again",
    }
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = site.call(
            "POST", f"{site.path}/extinctions", json=body, headers={"Idempotency-Key": "the-one"}
        )
        if answer.status_code == 202:
            return str(answer.json()["subject"]["id"])
        # 409: not all peers have met yet, or the same request is at work still. 422: nothing was written to
        # one of the databases yet.
        is_early = answer.status_code == 422 and answer.json()["code"] == "UNKNOWN_DATABASE"
        assert is_early or answer.status_code in (409, *TRY_AGAIN), answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.2)


def _kill_while_scanning(site: Site) -> bool:
    """Kill a service whose scan has removed some and not all; whether it was met."""
    deadline = time.monotonic() + 10
    met = "select 1 from replica_extinction_slices where cursor_key is not null"
    with site.open() as conn:
        while time.monotonic() < deadline:
            if conn.execute(met):
                site.service.kill9()
                site.service.start()
                return True
            if conn.execute("select 1 from replica_extinctions where state = 'DONE'"):
                return False
            time.sleep(0.01)
    return False


def _all_done(ring: Ring, extinction_id: str) -> list[dict[str, Any]]:
    """The extinction as each service shows it, when all have scanned."""
    deadline = time.monotonic() + CONVERGE_S
    while True:
        answers = [site.call("GET", f"{site.path}/extinctions/{extinction_id}") for site in ring.sites]
        found = [answer.json() for answer in answers]
        if all(each.get("state") == "DONE" for each in found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def _assert_nothing_extinct(ring: Ring, activity: ExtinctActivity, extinction_id: str) -> None:
    changelogs = [_plain(site.changelog()) for site in ring.sites]
    entries = [_plain(site.entries()) for site in ring.sites]
    vectors = [
        site.rows("select rid, min_csn, max_csn, purged_csn from replica_ruv order by 1")
        for site in ring.sites
    ]
    assert changelogs[0] == changelogs[1] == changelogs[2]
    assert entries[0] == entries[1] == entries[2]
    records = [row for row in changelogs[0] if row[3] == "EXTINCTION"]
    assert len(records) == 1
    changes = [row for row in changelogs[0] if row[3] == "CHANGE"]
    assert entries[0] == [row for row in newest(changes) if not is_extinct(row[1])]
    assert any(is_extinct(row[5]) for row in changes)
    for site, vector in zip(ring.sites, vectors, strict=True):
        assert_whole(changelogs[0], vector)
        assert site.count("dead_letters") == 0
        assert site.rows("select id, state from replica_extinctions") == [(extinction_id, "DONE")]
        assert site.count("extinction_slices") == 0
    written = {(each.first_csn, each.last_csn): each.changes for each in activity.written}
    for (first, last), expected in written.items():
        found = [
            (row[4], row[5], row[6])
            for row in changes
            if row[0] == int(first[12:16], 16) and first <= row[1] <= last
        ]
        assert tuple(found) == expected


def _run(directory: Path, urls: list[str], *, kills: int, seed: int) -> None:
    with ring_of_three(directory, urls, **SLOW_SCAN) as ring:
        for site in ring.sites:
            site.write(OLD_ENTRIES, prefix=f"k2-{site.store}-")
        killer = Killer(ring, Random(seed))
        with ExtinctActivity(ring, seed) as activity:
            extinction_id = _discard(ring.sites[seed % 3])
            met = 0
            for number in range(kills):
                if number % 2 == 0:
                    met += _kill_while_scanning(ring.sites[(seed + number // 2) % 3])
                else:
                    killer.kill(as_supplier=number % 4 == 1)
                activity.raise_faults()
            until(lambda: sum(activity.refused.values()) > 0, timeout_s=60)  # it writes at random
            activity.stop()
        took_s = converge(ring, timeout_s=CONVERGE_S)
        shown = _all_done(ring, extinction_id)
        print(f"{len(activity.written)} requests, refused {activity.refused}; level {took_s:.1f} s after")
        print(f"scans met by a kill: {met}; removed {[each['records'] for each in shown]}")
        assert met > 0
        assert sum(activity.refused.values()) > 0
        assert [each["origin"] for each in shown].count("LOCAL") == 1
        _assert_nothing_extinct(ring, activity, extinction_id)
        assert_sessions_did_it(ring)
        assert_audits_agree(ring)
        for site in ring.sites:
            jobs = site.done("GET", f"/v1/jobs?kind=EXTINCTION&store={site.store}")["items"]
            assert {job["state"] for job in jobs} == {"SUCCEEDED"}
            assert {job["state"] for job in jobs} <= TERMINAL


def test_no_extinct_key_is_left_in_a_ring_whoever_is_killed(tmp_path: Path, urls: list[str]) -> None:
    _run(tmp_path, urls, kills=2, seed=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", [4, 5])
def test_no_extinct_key_is_left_in_a_ring_after_many_kills(
    tmp_path: Path, urls: list[str], seed: int
) -> None:
    _run(tmp_path, urls, kills=24, seed=seed)
