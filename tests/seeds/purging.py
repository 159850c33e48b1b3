"""Purges over HTTP: places of the oracles as stores of a real service, and what must be left in them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.http.service_process import NO_TLS
from tests.journeys.ground import CUTOFF, instant
from tests.journeys.service import serving
from tests.oracles.symmetricds import Place, Rows, expected_after_purge, snapshot, stranded_batches, tables
from tests.oracles.symmetricds_incoming import expected_after

JOB_MAX_S = 120.0
TERMINAL = {"SUCCEEDED", "FAILED", "ABORTED"}
TABLES = {
    "OUTGOING": ("data", "data_event", "outgoing_batch"),
    "INCOMING": ("incoming_batch",),
    "DATA_GAP": ("data_gap",),
}
SETTINGS = {"LETHE_RUNNER_POLL_INTERVAL_S": "0.5", "LETHE_PROGRESS_INTERVAL_S": "1"}


@dataclass
class Purging:
    """A service and the stores that tests have made in it."""

    http: httpx.Client
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def store(self, place: Place, **fields: Any) -> str:
        """Register a place; returns the store's id."""
        store = f"store-{next(self.numbers)}"
        known = {"schema": place.schema} if place.schema else {}
        body = {"id": store, "kind": "SYMMETRICDS", "url": place.url, "table_prefix": place.prefix}
        answer = self.http.post("/v1/stores", json=body | known | fields)
        assert answer.status_code == 201, answer.text
        return store

    def purge(self, store: str, kind: str, **fields: Any) -> dict[str, Any]:
        """Run a purge to its end, which must be a good one; returns the job."""
        body = _as_the_document(kind, fields)
        answer = self.http.post(f"/v1/stores/{store}/purges", json=body)
        assert answer.status_code == 202, answer.text
        return self.ended(answer.json()["id"])

    def ended(self, job_id: str) -> dict[str, Any]:
        """Wait for a job's good end."""
        deadline = time.monotonic() + JOB_MAX_S
        while True:
            job: dict[str, Any] = self.http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=5"}).json()
            if job["state"] in TERMINAL:
                assert job["state"] == "SUCCEEDED", job
                return job
            assert time.monotonic() < deadline, job

    def purges(self, store: str, *, of_kinds: int) -> list[dict[str, Any]]:
        """Wait until purges of so many kinds, begun by the service itself, have ended well; returns them."""
        deadline = time.monotonic() + JOB_MAX_S
        while True:
            jobs: list[dict[str, Any]] = self.http.get(f"/v1/stores/{store}/purges").json()["items"]
            assert {job["state"] for job in jobs}.isdisjoint({"FAILED", "ABORTED"}), jobs
            done = [job for job in jobs if job["state"] == "SUCCEEDED"]
            if len({job["params"]["kind"] for job in done}) >= of_kinds:
                return done
            assert time.monotonic() < deadline, jobs
            time.sleep(0.5)

    def suspend(self, store: str) -> None:
        """Let nothing begin in a store any more."""
        answer = self.http.post(f"/v1/stores/{store}:suspend", json={"reason": "the test has seen enough"})
        assert answer.status_code == 200, answer.text

    def plan(self, store: str, kind: str, **fields: Any) -> dict[str, Any]:
        """Ask what a purge would do."""
        answer = self.http.post(
            f"/v1/stores/{store}/purges",
            params={"validate_only": "true"},
            json=_as_the_document(kind, fields),
            headers={"Prefer": "wait=30"},
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def purging_service(directory: Path, settings: Mapping[str, str]) -> Iterator[Purging]:
    """A service of its own on SQLite metadata."""
    with serving(directory / "service", {**SETTINGS, **settings}) as service:
        headers = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=NO_TLS) as http:
            yield Purging(http)


def _as_the_document(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request: the document marks stranded batches, Lethe only where it is told to."""
    marks = {"stranded": "MARK"} if kind == "OUTGOING" and "plan_id" not in fields else {}
    return {"kind": kind} | marks | dict(fields)


def up_to_cutoff(place: Place) -> dict[str, str]:
    """The part of a request that names the oracles' cut-off, moved into the past."""
    return {"cutoff": instant(place).isoformat()}


def must_be_left(place: Place, kind: str, before: Rows, **options: Any) -> Rows:
    """What the oracle of a kind says."""
    if kind != "OUTGOING":
        return expected_after(kind, place, before, CUTOFF)
    return expected_after_purge(before, place.encode(CUTOFF), collation=place.collation, **options)


def assert_purged(place: Place, kind: str, before: Rows, job: dict[str, Any], **options: Any) -> None:
    """Every row of every table is as the oracle says, and the job counted what went."""
    expected = must_be_left(place, kind, before, **options)
    after = snapshot(place)
    for table in tables(place.version):
        assert after[table] == expected[table], f"{place.url}: {table}"
    removed = {table: len(before[table]) - len(expected[table]) for table in TABLES[kind]}
    assert job["result"]["removed"] == removed
    if kind == "OUTGOING":
        marked = stranded_batches(before, collation=place.collation)
        asked = options.get("stranded", "MARK") == "MARK"
        assert job["result"]["stranded"]["marked"] == (len(marked) if asked else 0)


def clock_now() -> datetime:
    """The naive time that a target's columns show in UTC, in whole seconds."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)
