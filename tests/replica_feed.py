"""A feed into a replica without the service, in this process or in one that dies at one of its calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from spark.events.catalog import read_catalog
from spark.formats.replica import tables_of
from spark.replication.replica.entries import read_entries
from spark.replication.replica.local_write import Expected
from spark.replication.replica.replica import ensure_layout
from spark.slony_feed.carrying import Carrier, Hands
from spark.slony_feed.cursor import Cursor, Feed, read_cursor
from spark.targets.connection import Connection, Target, connect
from tests.dying import Dying
from tests.slony_cluster import SlonyCluster
from tests.slony_feed import KEYS, content

RID = 7
INCARNATION = "inc_test"
ROOT = Path(__file__).parents[1]
Rows = dict[str, dict[tuple[str, ...], dict[str, Any]]]


def nothing(*_args: Any) -> None:
    """What a test does not watch."""


def hands(*, check: Callable[[], None] = nothing) -> Hands:
    """Those of a caller that remembers nothing and has no fence."""
    return Hands(
        expected=lambda: Expected(INCARNATION, None),
        turn=nullcontext,
        fence=nothing,
        committed=nothing,
        now_s=lambda: int(time.time()),
        check=check,
    )


@contextmanager
def carrier_of(
    place: Target, node: Target, cluster: str, *, given: Hands | None = None, **feed: Any
) -> Iterator[tuple[Carrier, Connection]]:
    """A carrier with both connections, and the replica's."""
    with (
        connect(place, application_name="lethe-test") as replica,
        connect(node, application_name="lethe-test", read_only=True) as source,
    ):
        ensure_layout(replica, rid=RID, generation=None, incarnation=INCARNATION)
        catalog = read_catalog(source, cluster)
        wanted = Feed(cluster, catalog.local_node, **feed)
        yield Carrier(replica, source, catalog, wanted, given or hands()), replica


def carry_all(
    carrier: Carrier, *, job_id: str = "job_1", first_copy: bool = False, upto: int | None = None
) -> Cursor:
    """As the task does it: a copy where it is due, then every page up to the newest SYNC of now."""
    newest = carrier.newest() if upto is None else upto
    cursor = carrier.begin(job_id=job_id, first_copy=first_copy)
    while True:
        before = cursor
        with closing(carrier.carry(before, upto=newest, units_max=50)) as units:
            for moved in units:
                cursor = moved
        if cursor == before or cursor.seqno >= newest:
            return cursor


def feed_once(place: Target, cluster: SlonyCluster, **options: Any) -> Cursor:
    """One run of the feed of node 1."""
    feed = {name: options.pop(name) for name in ("sets", "tables", "prefix") if name in options}
    with carrier_of(place, Target(cluster.url(1)), cluster.name, **feed) as (carrier, _):
        return carry_all(carrier, **options)


def cursor_at(place: Target) -> Cursor | None:
    """What the replica keeps."""
    with connect(place, application_name="lethe-test") as conn:
        return read_cursor(conn)


def entries_at(place: Target) -> dict[bytes, bytes]:
    """Every live entry of a replica."""
    with connect(place, application_name="lethe-test") as conn:
        page = read_entries(conn, after=None, rows_max=10**6, tombstones=False)
    return dict(zip(page.column("key").to_pylist(), page.column("value").to_pylist(), strict=True))


def rows_of(entries: Mapping[bytes, bytes], *, prefix: str = "") -> Rows:
    """The rows among entries, each under the key that its own columns give."""
    found: Rows = {name: {} for name in KEYS}
    for name, value in entries.items():
        key = name.decode().removeprefix(prefix)
        if key.startswith("!"):
            continue
        table, *values = key.split("/")
        row = json.loads(value)
        of = unquote(table).removeprefix("public.")
        assert tuple(map(unquote, values)) == tuple(row[column] for column in KEYS[of]), key
        found[of][tuple(map(unquote, values))] = row
    return found


def changelog_is_whole(place: Target) -> int:
    """Replaying the changelog gives the entries: nothing came into one of them alone. How many changes."""
    with connect(place, application_name="lethe-test") as conn:
        tables = tables_of(conn)
        rows = conn.execute(f"select key, payload from {tables.changelog} order by csn")
    replayed = {bytes(key): None if payload is None else bytes(payload) for key, payload in rows}
    assert {key: value for key, value in replayed.items() if value is not None} == entries_at(place)
    return len(rows)


def agrees(place: Target, cluster: SlonyCluster, *, node: int = 1) -> None:
    """A replica holds what a node holds, value by value, and the sequence as of its last SYNC."""
    entries = entries_at(place)
    assert rows_of(entries) == content(cluster, node)
    [(ticket,)] = cluster.run(node, "select last_value from ticket")
    found = entries.get(b"!sequence/public.ticket")
    assert found is None or json.loads(found) == {"last_value": str(ticket)}


def die() -> NoReturn:
    """As kill -9 has it."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def run_killed(place: Target, cluster: SlonyCluster, *, at: int, after: bool, first_copy: bool) -> int | None:
    """A run in a process of its own that dies at a call; None: it had come to its end, else how it died."""
    told = {
        "place": asdict(place),
        "node": cluster.url(1),
        "cluster": cluster.name,
        "at": at,
        "after": after,
        "first_copy": first_copy,
        "job_id": f"job_{uuid.uuid4().hex}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.replica_feed", json.dumps(told)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    return done.returncode


def main(told: Mapping[str, Any]) -> None:
    """The process that dies."""
    place = Target(**told["place"])
    with carrier_of(place, Target(told["node"]), told["cluster"]) as (carrier, replica):
        replica._session = Dying(replica._session, told["at"], after=told["after"], die=die)  # type: ignore[assignment]
        carry_all(carrier, job_id=told["job_id"], first_copy=told["first_copy"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
