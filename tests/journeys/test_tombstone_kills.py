"""kill -9 at every step of a purge of tombstones: what is left, bound, counts and archive are right.

After every death, before anything is started again: what has gone might go, the bound is at or above it, and
the ledger counts it exactly. The oracle is a list of what was put there and a rule of one line.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.agreements import acknowledge, register_agreement
from spark.replication.replica.replica import snapshot
from spark.targets.ledger import ledger_totals
from tests.journeys.crashes import CRASHING
from tests.journeys.dying_service import AT_THE_END, MOMENTS, dying_at, living
from tests.journeys.replicas import Site, register
from tests.journeys.service import Service, started, succeeded, until
from tests.spark.replication.tombstone_tables import keys_left, put_entries

pytestmark = pytest.mark.journey

DIALECTS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql))
OLD_S = int(time.time()) - 100_000
YOUNG_S = int(time.time()) - 3_600
ROWS, HELD, YOUNG = 100, 20, 10
UNIT_ROWS = 5
FEW = ("archived:1", "committed:2", "told:1")
"""What is in a file and not committed, what is committed and not counted, what lacks its manifest."""
KILLS_EACH, SEEDS_LONG = 4, 13
"""A job that has met more deaths is given up as one that kills its runner."""


@dataclass
class Purge:
    """A replica with tombstones of which some may go, and the job that removes them."""

    site: Site
    entries: Mapping[bytes, tuple[Csn, bool]]
    upto: Csn
    job_id: str = ""

    @property
    def removable(self) -> set[bytes]:
        """Deleted a day ago, and known to the consumer."""
        return {
            key
            for key, (csn, is_dead) in self.entries.items()
            if is_dead and csn.timestamp < YOUNG_S and csn <= self.upto
        }

    def greatest(self, keys: set[bytes]) -> str:
        """The CSN up to which tombstones are missing where these are."""
        return max((self.entries[key][0] for key in keys), default="")

    def check_standing(self) -> int:
        """What must be true at every moment; how many have gone."""
        with self.site.open() as conn:
            gone = set(self.entries) - keys_left(conn)
            seen = snapshot(conn)
            counted = sum(each.rows for each in ledger_totals(conn, self.job_id).values())
        assert gone <= self.removable
        assert (seen.replica.buried or "") == self.greatest(gone)
        assert counted == len(gone)
        return len(gone)

    def check_done(self, folder: Path) -> None:
        """Everything that may go has gone, and is in the archive; the result says so."""
        client, wanted = self.site.service.client, self.removable
        result = succeeded(client, self.job_id)
        assert self.check_standing() == len(wanted) == ROWS
        assert (result["removed"], result["counts"]) == ({"entries": ROWS}, "EXACT")
        assert result["buried"] == self.greatest(wanted) == self.upto
        assert (result["rows_left"], result["held_by"]) == (HELD + YOUNG, ["agr_a"])
        assert result["archive"]["rows"] == ROWS
        assert succeeded(client, client.archives.verify(self.job_id).id)["rows"] == ROWS
        file = folder / f"{self.job_id}.sqlite"
        succeeded(client, client.archives.restore_into_file(self.job_id, str(file)).id)
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
            rows = raw.execute("select database, key, csn from replica_entries").fetchall()
        kept = [(_octets(database), _octets(key), csn) for database, key, csn in rows]
        assert sorted(kept) == sorted((b"db", key, str(self.entries[key][0])) for key in wanted)


def _octets(value: bytes | str) -> bytes:
    """A restored `bytea` is PostgreSQL's own text for it."""
    return value if isinstance(value, bytes) else bytes.fromhex(value.removeprefix("\\x"))


def _purge(service: Service, url: str, rng: Random) -> Purge:
    """A replica whose consumer lacks the last deletes, and whose youngest ones are of today."""
    site = register(service, "shop", url, 1)
    site.write(1)
    csns = [Csn.of(OLD_S + number, 0, 1) for number in range(ROWS + HELD)]
    csns += [Csn.of(YOUNG_S + number, 0, 1) for number in range(YOUNG)]
    dead = [(csn, True) for csn in csns] + [(csn, False) for csn in csns[:ROWS:10]]
    keys = rng.sample([b"dead%04d" % number for number in range(len(dead))], len(dead))
    entries = dict(zip(keys, dead, strict=True))
    with site.open() as conn:
        with conn.transaction():
            put_entries(conn, entries)
            conn.execute(f"delete from {tables_of(conn).agreements}")
        register_agreement(conn, "agr_a", now_s=OLD_S)
        acknowledge(conn, "agr_a", {1: csns[ROWS - 1]})
    return Purge(site, entries, csns[ROWS - 1])


def _submit(purge: Purge) -> None:
    body = {
        "kind": "TOMBSTONES",
        "retention_minutes": 1_440,
        "max_rows_in_tx": UNIT_ROWS,
        "archive": {"format": "PARQUET"},
    }
    job = purge.site.done("POST", f"{purge.site.path}/purges", 202, json=body)
    purge.job_id = job["id"]


def _hold(folder: Path, url: str, deaths: Sequence[str], rng: Random) -> None:
    service = Service(folder / "service", CRASHING)
    dying_at(service, deaths[0])
    with started(service):
        purge = _purge(service, url, rng)
        _submit(purge)
        seen = []
        for number, death in enumerate(deaths):
            if number:
                dying_at(service, death)
                service.spawn()
            until(service.has_ended, timeout_s=90)
            service.kill9()
            seen.append(purge.check_standing())
        assert seen == sorted(seen)
        living(service)
        service.start()
        purge.check_done(folder)


@pytest.fixture(params=DIALECTS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/replica.db"
    return str(request.getfixturevalue("postgresql_url"))


def test_kills_leave_bound_rows_counts_and_archive_exact(tmp_path: Path, url: str) -> None:
    _hold(tmp_path, url, FEW, Random(1))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(SEEDS_LONG))
def test_many_kills_leave_bound_rows_counts_and_archive_exact(tmp_path: Path, url: str, seed: int) -> None:
    """A hundred kills: every moment is met, on both databases, after one unit or several."""
    rng, moments = Random(seed), sorted(MOMENTS)
    drawn = [moments[(KILLS_EACH * seed + number) % len(moments)] for number in range(KILLS_EACH)]
    drawn.sort(key=lambda moment: moment in AT_THE_END)
    often = [f"{each}:{rng.randint(1, 4) if _is_of_units(each) else 1}" for each in drawn]
    _hold(tmp_path, url, often, rng)


def _is_of_units(moment: str) -> bool:
    return moment not in (*AT_THE_END, "planned", "opened")
