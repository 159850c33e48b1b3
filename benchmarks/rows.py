"""Measures the purge ROWS against pt-archiver (percona-toolkit) on MariaDB: same rows gone and archived.

Both sides run on a copy of the same table inside a private server with durable commits, taking turns, each
with a writer beside it that inserts rows and changes others, and times each write. Lethe's side is all of it:
a service of its own, asked over HTTP, with ledger, fence and archive (Parquet, fsynced before each commit),
from the request to the end of the job. pt-archiver writes its file without fsync, from the start of its
process to its end; it runs in the two ways that people run it: in bulk (--bulk-delete --limit N
--commit-each) and row by row. What both have archived is counted afterwards. Where there are more rounds the
first is not counted: it registers the store and makes the ledger. Exit status 1: less than twice as fast as
pt-archiver in bulk, a writer's p99 worse than beside it, or rows that differ.

    python -m benchmarks.rows --rows 300000 --rounds 2
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random
from statistics import median

import pymysql

from benchmarks.gates import Gate
from benchmarks.purge_writers import Latency
from spark.targets.archive.archive import read_manifest_json, read_rows
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.mariadb_server import PrivateMariadb, private_mariadb

SETTINGS = {"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "512M", "max-allowed-packet": "64M"}
CUTOFF = "2025-01-01"
OLD_SHARE = 0.7
LIMIT = 1_000
PAUSE_S = 0.002
BEGUN = "begun"
PURGE_MAX_S = 1_200.0
TABLE_SQL = """
create table ticket (id bigint primary key auto_increment, closed datetime(6) not null,
    status varchar(20) not null, customer int not null, subject varchar(200), body text,
    amount decimal(12,2), flags tinyint not null,
    key (closed), key (customer)) engine=innodb
"""
FILL_SQL = """
insert into ticket (id, closed, status, customer, subject, body, amount, flags)
select seq, timestampadd(second, seq, '2020-01-01'), elt(1 + seq % 4, 'done', 'open', 'kept', 'lost'),
    seq % 5000, concat('subject ', md5(seq)), repeat(md5(seq), 4), seq / 7, seq % 100 from seq_1_to_{rows}
"""
AGE_SQL = "update ticket set closed = '2030-01-01' where id > {old}"
INSERT_SQL = "insert into ticket (closed, status, customer, flags) values ('2031-01-01', 'new', 1, 0)"
UPDATE_SQL = "update ticket set amount = amount + 1 where id = {id}"


@dataclass(frozen=True)
class Round:
    """One run of one side."""

    side: str
    seconds: float
    gone: int
    archived: int
    inserts: Latency
    updates: Latency


class Writer:
    """Inserts young rows and changes rows that stay, one after the other, and times each.

    It is a process of its own: what waits for a job beside it would hold the interpreter's lock just when an
    answer comes, and only on our side.
    """

    def __init__(self, server: PrivateMariadb, *, first: int, last: int) -> None:
        processes = get_context("spawn")
        self._ended = processes.Event()
        self._receiving, sending = processes.Pipe(duplex=False)
        words = (server.port, first, last, self._ended, sending)
        self._process = processes.Process(target=write_until_it_ends, args=words, daemon=True)
        self._samples: list[tuple[float, float, float]] = []

    def __enter__(self) -> Writer:
        self._process.start()
        assert self._receiving.recv() == BEGUN
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._samples = self._receiving.recv()
        self._process.join()

    def since(self, began: float) -> tuple[Latency, Latency]:
        """Latencies of inserts and of updates from a moment of `time.perf_counter()` to its end."""
        samples = [each for each in self._samples if each[0] >= began]
        return Latency.of([each[1] for each in samples]), Latency.of([each[2] for each in samples])


def write_until_it_ends(port: int, first: int, last: int, ended: Event, sending: Connection) -> None:
    """The process of a Writer: sends BEGUN, and at the end (began, seconds of insert, of update) of all."""
    rng, samples = Random(7), []
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user="root", database="live", autocommit=True, ssl_disabled=True
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        sending.send(BEGUN)
        while not ended.wait(PAUSE_S):
            began = time.perf_counter()
            insert = _timed(cursor, INSERT_SQL)
            update = _timed(cursor, UPDATE_SQL.format(id=rng.randint(first, last)))
            samples.append((began, insert, update))
    sending.send(samples)


def _timed(cursor: pymysql.cursors.Cursor, sql: str) -> float:
    began = time.perf_counter()
    cursor.execute(sql)
    return time.perf_counter() - began


def _refill(server: PrivateMariadb, *, rows: int, old: int) -> None:
    server.execute("create database if not exists live")
    server.execute("drop table if exists live.ticket")
    with contextlib.closing(server.connect("live")) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE_SQL)
        cursor.execute(FILL_SQL.format(rows=rows))
        cursor.execute(AGE_SQL.format(old=old))
        cursor.execute("analyze table ticket")


def _left(server: PrivateMariadb, *, rows: int) -> tuple[int, int]:
    """How many of the first rows are left, and a checksum of them."""
    checksum = "coalesce(sum(crc32(concat(id, status, subject))), 0)"
    sql = f"select count(*), {checksum} from live.ticket where id <= {rows}"
    [(count, found)] = server.execute(sql)
    return int(count), int(found)


def _pt_archiver(server: PrivateMariadb, folder: Path, *, in_bulk: bool) -> Callable[[], int]:
    """Run it; counts the rows in its file."""
    file = folder / "rows.txt"
    options = ["--bulk-delete", "--commit-each"] if in_bulk else ["--txn-size", str(LIMIT)]
    subprocess.run(
        [
            "pt-archiver",
            "--source",
            f"h=127.0.0.1,P={server.port},u=root,D=live,t=ticket,i=PRIMARY",
            "--where",
            f"closed < '{CUTOFF}'",
            "--file",
            str(file),
            "--limit",
            str(LIMIT),
            *options,
            "--no-check-charset",
            "--no-version-check",
        ],
        check=True,
    )

    def count() -> int:
        with file.open("rb") as lines:
            return sum(1 for _ in lines)

    return count


def _lethe(service: ServiceProcess, server: PrivateMariadb) -> Callable[[], int]:
    """Purge over HTTP; counts the rows of its archive."""
    with service.http() as http:
        if http.get("/v1/stores/live").status_code == 404:
            made = http.post("/v1/stores", json={"id": "live", "kind": "SQL", "url": server.url("live")})
            assert made.status_code == 201, made.text
        body = {
            "kind": "ROWS",
            "table": "ticket",
            "time_column": "closed",
            "cutoff": f"{CUTOFF}T00:00:00Z",
            "archive": {"format": "PARQUET"},
            "engine": "INLINE",
        }
        job = wait_for(http, accepted(http.post("/v1/stores/live/purges", json=body)), timeout_s=PURGE_MAX_S)
    assert job["state"] == "SUCCEEDED", job
    print(f"  units {job['result']['units']}, longest {job['result']['longest_hold_ms']} ms", flush=True)
    entries = read_manifest_json(Path(job["result"]["archive"]["directory"]))
    return lambda: sum(1 for entry in entries for _ in read_rows(entry.path))


def _round(
    side: str, server: PrivateMariadb, rows: int, act: Callable[[], Callable[[], int]]
) -> tuple[Round, tuple[int, int]]:
    old = int(rows * OLD_SHARE)
    _refill(server, rows=rows, old=old)
    with Writer(server, first=old + 1, last=rows) as writer:
        time.sleep(0.5)
        began = time.perf_counter()
        count = act()
        seconds = time.perf_counter() - began
    left = _left(server, rows=rows)
    found = Round(side, seconds, rows - left[0], count(), *writer.since(began))
    print(
        f"{side:<12}{seconds:8.2f} s {found.gone / seconds:10.0f} rows/s"
        f"  gone {found.gone} archived {found.archived}"
        f"  insert p50 {found.inserts.p50_ms:.1f} p99 {found.inserts.p99_ms:.1f} ms"
        f"  update p50 {found.updates.p50_ms:.1f} p99 {found.updates.p99_ms:.1f} ms",
        flush=True,
    )
    return found, left


@contextlib.contextmanager
def _service(folder: Path, settings: Mapping[str, str]) -> Iterator[ServiceProcess]:
    service = ServiceProcess(
        folder / "service", settings={"LETHE_SPARK__ENABLED": "false", **settings}
    ).start()
    try:
        yield service
    finally:
        service.stop()


def measure(rows: int, rounds: int, settings: Mapping[str, str]) -> list[Gate]:
    """All sides in turns; what was asked of the figures."""
    found: dict[str, list[Round]] = {"lethe": [], "pt bulk": [], "pt by row": []}
    lefts = set()
    with (
        tempfile.TemporaryDirectory(prefix="lethe-rows-") as named,
        private_mariadb(settings=SETTINGS) as server,
        _service(Path(named), settings) as service,
    ):
        for number in range(rounds):
            sides: list[tuple[str, Callable[[], Callable[[], int]]]] = [
                ("lethe", lambda: _lethe(service, server)),
                ("pt bulk", lambda: _pt_archiver(server, _fresh(Path(named)), in_bulk=True)),
            ]
            if number == 0:
                sides.append(("pt by row", lambda: _pt_archiver(server, _fresh(Path(named)), in_bulk=False)))
            for side, act in sides if number % 2 == 0 else sides[::-1]:
                ran, left = _round(side, server, rows, act)
                found[side].append(ran)
                lefts.add(left)
    if rounds > 1:
        del found["lethe"][0], found["pt bulk"][0]
    return _gates(found, lefts, rows)


def _fresh(folder: Path) -> Path:
    made = folder / "pt"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    return made


def _gates(found: dict[str, list[Round]], lefts: set[tuple[int, int]], rows: int) -> list[Gate]:
    def middle(side: str, figure: Callable[[Round], float]) -> float:
        return median(map(figure, found[side]))

    old = int(rows * OLD_SHARE)
    wrong = sum((each.gone, each.archived) != (old, old) for side in found.values() for each in side)
    seconds = {side: middle(side, lambda each: each.seconds) for side in found}
    bulk = middle("pt bulk", lambda each: max(each.inserts.p99_ms, each.updates.p99_ms))
    ours = middle("lethe", lambda each: max(each.inserts.p99_ms, each.updates.p99_ms))
    return [
        Gate("runs whose rows differ", wrong + len(lefts) - 1, 0, "", at_least=False),
        Gate("times as fast as pt-archiver in bulk", seconds["pt bulk"] / seconds["lethe"], 2, "x"),
        Gate("times as fast as pt-archiver by row", seconds["pt by row"] / seconds["lethe"], 2, "x"),
        Gate("a writer's p99 beside it, of that beside bulk", ours / bulk, 1.0, "x", at_least=False),
    ]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, help="of Lethe; the service's own number by default")
    asked = parser.parse_args()
    if shutil.which("pt-archiver") is None:
        print("pt-archiver is not installed: apt-get install percona-toolkit")
        return 1
    settings = {} if asked.workers is None else {"LETHE_PURGE_WORKERS": str(asked.workers)}
    gates = measure(asked.rows, asked.rounds, settings)
    for gate in gates:
        print(gate.line())
    return 0 if all(gate.is_met for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
