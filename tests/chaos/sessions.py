"""Replication between two replicas, with writers and extinctions: nothing lost, nothing twice, no more."""

from __future__ import annotations

import base64
import time
from contextlib import closing
from itertools import pairwise
from typing import Any

from lethe_client import Change

from spark.targets.connection import Target, connect
from tests.chaos.work import Work
from tests.journeys.replicas import GENERATION
from tests.journeys.ring import newest

DATABASE = b"db"
KEYS = 60
LEVEL_MAX_S = 120.0


class Sessions(Work):
    """Changes of one replica go to the other whenever something is unsent; ranges of keys become extinct."""

    name = "sessions"

    def prepare(self) -> None:
        """A supplier and a consumer, each a file, and the agreement between them."""
        self.written: list[tuple[tuple[str, str], list[Change]]] = []
        self.extinct: list[str] = []
        self.jobs: list[str] = []
        self.urls = [f"sqlite:///{self.directory}/replica-{rid}.db" for rid in (1, 2)]
        for rid, url in enumerate(self.urls, 1):
            self.client.stores.create(f"replica-{rid}", url, kind="REPLICA", rid=rid, generation=GENERATION)
        reference = self.fleet.directory / "secrets" / "peer.token"
        reference.write_text(self.fleet.token)
        reference.chmod(0o600)
        self.client.secrets.create("peer", f"file:{reference}", stores=["replica-1"], hosts=["127.0.0.1"])
        self.agreement = self.client.agreements.create(
            "replica-1",
            url=self.fleet.services[0].url,
            consumer_store="replica-2",
            token="secret:peer",
            interval="PT1S",
            batch_rows=20,
        ).id

    def turn(self) -> None:
        """A request with some changes; now and then the keys of a generation are said to be extinct."""
        generation = self.done // 25
        changes = [
            Change(
                database=DATABASE,
                key=f"g{generation:04}-{self.rng.randrange(KEYS)}".encode(),
                value=None if self.rng.random() < 0.2 else f"{self.done}.{part}".encode(),
            )
            for part in range(self.rng.randint(1, 10))
        ]
        told = self.client.changes.write("replica-1", changes, idempotency_key=f"chaos-{self.done}")
        self.written.append(((told.first_csn, told.last_csn), changes))
        if self.done % 25 == 24:
            self._discard(f"g{generation:04}")
        self.over.wait(self.rng.random() * 0.6)

    def _discard(self, prefix: str) -> None:
        body = {
            "databases": [_text(DATABASE)],
            "start_key": _text(prefix.encode()),
            "end_key": _text(prefix.encode() + b"~"),
            "label": prefix,
            "confirm_keys_never_reused": True,
            "reason": "chaos",
        }
        job = self.post("/v1/stores/replica-1/extinctions", body)
        self.extinct.append(prefix)
        self.counts["extinctions"] += 1
        self.jobs.append(str(job["id"]))

    def finish(self) -> None:
        """Both are level, each request is there once and whole, and no extinct key shows on either."""
        for job_id in self.jobs:
            self.succeeded(job_id)
        deadline = time.monotonic() + LEVEL_MAX_S
        while self._records(2) != self._records(1) or not self._are_scanned():
            assert time.monotonic() < deadline, self._why()
            time.sleep(0.3)
        records = self._records(1)
        for rid in sorted({row[0] for row in records}):
            chain = [(row[1], row[2]) for row in records if row[0] == rid]
            assert chain[0][1] is None
            assert [prev for _, prev in chain[1:]] == [csn for csn, _ in chain[:-1]]
            assert all(earlier[0] < later[0] for earlier, later in pairwise(chain))
        self._assert_written_once([row for row in records if row[3] == "CHANGE"])
        wanted = [
            row
            for row in newest([row for row in records if row[3] == "CHANGE"])
            if not any(row[1].startswith(prefix.encode()) for prefix in self.extinct)
        ]
        for number in (1, 2):
            assert self._entries(number) == wanted, f"replica-{number}"
        self.counts["changes"] = sum(len(changes) for _, changes in self.written)

    def _assert_written_once(self, records: list[tuple[Any, ...]]) -> None:
        rest = [(row[1], row[5], row[6]) for row in records]
        for (first, last), changes in sorted(self.written, key=lambda each: each[0]):
            mine, rest = rest[: len(changes)], rest[len(changes) :]
            assert [(key, value) for _, key, value in mine] == [(each.key, each.value) for each in changes]
            assert (mine[0][0], mine[-1][0]) == (first, last)
        assert rest == [], "records that nobody has written"

    def _records(self, number: int) -> list[tuple[Any, ...]]:
        return self._rows(
            number, "select rid, csn, prev, kind, database, key, payload from replica_changelog order by 1, 2"
        )

    def _entries(self, number: int) -> list[tuple[Any, ...]]:
        found = self._rows(
            number, "select database, key, value, csn, is_tombstone from replica_entries order by 1, 2"
        )
        return [(*row[:4], bool(row[4])) for row in found]

    def _are_scanned(self) -> bool:
        return all(
            [row[0] for row in self._rows(number, "select state from replica_extinctions")]
            == ["DONE"] * len(self.extinct)
            for number in (1, 2)
        )

    def _rows(self, number: int, sql: str) -> list[tuple[Any, ...]]:
        target = Target(self.urls[number - 1], table_prefix="replica_")
        with closing(connect(target, application_name="chaos", read_only=True)) as conn:
            return [
                tuple(bytes(each) if isinstance(each, memoryview) else each for each in row)
                for row in conn.execute(sql)
            ]

    def _why(self) -> str:
        shown = self.client.agreements.get("replica-1", self.agreement)
        return f"not level: {shown} {[len(self._records(number)) for number in (1, 2)]}"


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
