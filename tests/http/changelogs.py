"""Replicas whose changelog is purged over HTTP, and records as they were logged at other times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.csn import Csn
from spark.replication.agreements import acknowledge, register_agreement
from spark.targets.connection import Connection, Target
from tests.http.replica_stores import make_replica
from tests.http.shop import accepted, wait_for
from tests.spark.replication.replica_tables import (
    left_in_changelog,
    opened,
    postgresql_target,
    put_records,
    vectors,
)

OLD_S = int(time.time()) - 100_000
RID = 1
FENCE = "public.replica_changelog"


@dataclass(frozen=True)
class Replica:
    """A registered replica and its target."""

    http: httpx.Client
    id: str
    target: Target

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        """A connection of the test's own."""
        with opened(self.target) as conn:
            yield conn

    def log(self, records: Sequence[tuple[Csn, int]]) -> None:
        """Records as they were logged at other times."""
        with self.opened() as conn, conn.transaction():
            put_records(conn, records)

    def acknowledge(self, agreement_id: str, ruv: dict[int, Csn]) -> None:
        """As an agreement and its sessions do."""
        with self.opened() as conn:
            register_agreement(conn, agreement_id, now_s=OLD_S)
            acknowledge(conn, agreement_id, ruv)

    def left(self) -> set[Csn]:
        """What the changelog holds."""
        with self.opened() as conn:
            return left_in_changelog(conn)

    def purged(self) -> dict[int, Csn]:
        """Its purge vector."""
        with self.opened() as conn:
            return dict(vectors(conn)[2])

    def purge(self, **fields: Any) -> httpx.Response:
        """Ask for a purge CHANGELOG."""
        return self.http.post(f"/v1/stores/{self.id}/purges", json={"kind": "CHANGELOG"} | fields)

    def plan(self, **fields: Any) -> httpx.Response:
        """Ask for a plan."""
        return self.http.post(
            f"/v1/stores/{self.id}/purges",
            params={"validate_only": "true"},
            json={"kind": "CHANGELOG"} | fields,
            headers={"Prefer": "wait=20"},
        )

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Jobs of the store wait."""
        assert self.http.post(f"/v1/stores/{self.id}:suspend", json={"reason": "a test"}).status_code == 200
        yield
        assert self.http.post(f"/v1/stores/{self.id}:resume").status_code == 200

    def done(self, **fields: Any) -> dict[str, Any]:
        """Purge, and the result."""
        job = wait_for(self.http, accepted(self.purge(**fields)))
        assert job["state"] == "SUCCEEDED", job
        result: dict[str, Any] = job["result"]
        return result


MakeChangelog = Callable[..., Replica]


def changelog_maker(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> MakeChangelog:
    """Makes replicas that have written one change already, on the kind of target that a fixture asks for."""

    def made(**fields: Any) -> Replica:
        if request.param == "sqlite":
            store = make_replica(http, rid=RID, folder=roots, **fields)
            target = Target(f"sqlite:///{store.path}", table_prefix="replica_")
        else:
            url = request.getfixturevalue("postgresql_url")
            store = make_replica(http, rid=RID, url=url, **fields)
            target = postgresql_target(url)
        change = {"database": "ZGI=", "key": "a2V5", "value": "dg=="}
        assert http.post(f"/v1/stores/{store.id}/changes", json=change).status_code == 200
        return Replica(http, store.id, target)

    return made


def csn(number: int, rid: int) -> Csn:
    """In the past of the own change."""
    return Csn.of(OLD_S + number, 0, rid)


def old(rid: int, count: int, *, logged_at_s: int = OLD_S) -> list[tuple[Csn, int]]:
    return [(csn(number, rid), logged_at_s) for number in range(count)]
