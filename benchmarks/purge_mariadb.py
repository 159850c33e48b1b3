"""Measures the outgoing purge against the document's literal statements on MariaDB.

The data sets are those of purge.py, made inside a private server with durable commits. Both sides run on
fresh copies of the same database, taking turns; the rows they leave must be equal. The purge runs with two
workers, ledger and fence on, archive off. Exit status 1: the purge was slower than the statements, or the
rows differ.

    python -m benchmarks.purge_mariadb --shape dense-1m --rounds 1
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import median

from benchmarks.purge_lethe import Run, run_in_child
from benchmarks.purge_shapes import CUTOFF, SHAPES, Shape
from benchmarks.purge_writers import PAUSE_S, Latency
from tests.mariadb_server import PrivateMariadb, private_mariadb
from tests.oracles.symmetricds import Place, create, literal_purge

SETTINGS = {"innodb-buffer-pool-size": "1G", "innodb-log-file-size": "1G", "max-allowed-packet": "64M"}
WRITER_SHAPE = "dense-1m"
IDLE_S = 3.0
TABLES = ("sym_node", "sym_data", "sym_data_event", "sym_outgoing_batch")
POSITION_HOURS = "timestampadd(second, floor(360000 * ({position} - 0.85)), '{cutoff}')"
# The same rows as in purge_shapes.
DATA_SQL = """
insert into sym_data (data_id, table_name, event_type, row_data, pk_data, trigger_hist_id, channel_id,
                      transaction_id, create_time)
select seq * {stride}, 'item', 'U', concat('"', seq, '","', repeat(md5(seq), 3), '"'), concat('"', seq, '"'),
       1, 'default', concat('tx', seq div 10), case when seq % 50000 = 0 then null else {time} end
from seq_1_to_{rows}
"""
EVENT_SQL = """
insert into sym_data_event (data_id, batch_id, create_time)
select s.seq * {stride}, 2 * (s.seq div {rows_per_batch}) + n.node + 1, {time}
from seq_1_to_{rows} s, (select 0 as node union all select 1) n
where s.seq % 1000 <> 999 and (n.node = 0 or s.seq % 5 = 0)
"""
BATCH_SQL = """
insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time, last_update_time)
select seq, case when seq % 211 = 0 then 'off' when seq % 2 = 1 then 'n1' else 'n2' end, 'default',
       case when seq % 101 = 0 then 'ER' when seq % 103 = 0 then 'IG' when seq % 997 = 0 then null
            when seq % 211 = 0 then 'NE' when {position} > 0.97 then 'NE' else 'OK' end, {time}, {time}
from seq_1_to_{batches}
"""
NODE_SQL = """
insert into sym_node (node_id, node_group_id, external_id, sync_enabled)
values ('n1', 'store', 'n1', 1), ('n2', 'store', 'n2', 1), ('off', 'store', 'off', 0)
"""
LEFT_SQL = """
select (select concat(count(*), '/', coalesce(sum(crc32(data_id)), 0)) from sym_data),
       (select concat(count(*), '/', coalesce(sum(crc32(concat(data_id, '/', batch_id))), 0))
        from sym_data_event),
       (select concat(count(*), '/', coalesce(sum(crc32(concat_ws('/', batch_id, node_id, status))), 0))
        from sym_outgoing_batch)
"""
INSERT_SQL = (
    "insert into sym_data (table_name, event_type, row_data, trigger_hist_id, channel_id, create_time) "
    "values ('item', 'I', '\"1\"', 1, 'default', now(6))"
)
UPDATE_SQL = (
    "update sym_outgoing_batch set status = status, last_update_time = now(6) where batch_id = {batch}"
)


@dataclass
class Outcome:
    """What was measured on one data set."""

    shape: Shape
    literal_s: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    remaining: set[tuple[object, ...]] = field(default_factory=set)

    @property
    def ratio(self) -> float:
        """How many times faster than the literal statements, by medians."""
        return median(self.literal_s) / median(run.seconds for run in self.runs)

    @property
    def verdict(self) -> str:
        """OK, or what is wrong."""
        if len(self.remaining) != 1:
            return "ROWS DIFFER"
        return "OK" if self.ratio > 1 else "SLOWER"


class Writer(threading.Thread):
    """SymmetricDS beside the purge: captures rows and changes batches, and times each write."""

    def __init__(self, server: PrivateMariadb, database: str, highest_batch: int) -> None:
        """Work begins with `start`."""
        super().__init__(daemon=True)
        self._server, self._database, self._highest = server, database, highest_batch
        self._ended = threading.Event()
        self.samples: dict[str, list[float]] = {"insert sym_data": [], "update batch": []}
        self.errors = 0

    def run(self) -> None:
        """Write until told to end; what the server refuses is counted."""
        rng = Random(7)
        with closing(self._server.connect(self._database)) as connection:
            while not self._ended.wait(PAUSE_S):
                self._write(connection, "insert sym_data", INSERT_SQL)
                batch = rng.randrange(1, self._highest + 1)
                self._write(connection, "update batch", UPDATE_SQL.format(batch=batch))

    def _write(self, connection: object, kind: str, sql: str) -> None:
        begun = time.perf_counter()
        try:
            connection.cursor().execute(sql)  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001 -- a deadlock or a wait that was given up
            self.errors += 1
        self.samples[kind].append(time.perf_counter() - begun)

    def finish(self) -> dict[str, Latency]:
        """End the work; its latencies."""
        self._ended.set()
        self.join()
        return {kind: Latency.of(samples) for kind, samples in self.samples.items()}


class Ground:
    """A server with the filled database of one data set, and copies of it to purge."""

    def __init__(self, server: PrivateMariadb) -> None:
        """Take a started server."""
        self.server = server

    def run(self, database: str | None, *statements: str) -> list[tuple[object, ...]]:
        """Run statements one after the other; the rows of the last."""
        with closing(self.server.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A database with empty tables."""
        self.run(None, f"drop database if exists {name}", f"create database {name}")
        try:
            create(Place(self.server.url(name)))
            yield name
        finally:
            self.run(None, f"drop database if exists {name}")

    @contextmanager
    def filled(self, shape: Shape) -> Iterator[str]:
        """A database with the data set."""
        with self.database("bench_filled") as name:
            values = {"stride": shape.stride, "rows": shape.rows, "rows_per_batch": shape.rows_per_batch}
            data, batch = f"seq / {shape.rows}", f"seq / {shape.batches}"
            data_time = POSITION_HOURS.format(position=data, cutoff=CUTOFF)
            batch_time = POSITION_HOURS.format(position=batch, cutoff=CUTOFF)
            self.run(
                name,
                NODE_SQL,
                DATA_SQL.format(**values, time=data_time),
                EVENT_SQL.format(**values, time=data_time),
                BATCH_SQL.format(position=batch, time=batch_time, batches=shape.batches),
            )
            yield name

    @contextmanager
    def copied(self, filled: str) -> Iterator[str]:
        """A fresh copy, analysed."""
        with self.database("bench_run") as name:
            for table in TABLES:
                self.run(
                    name, f"insert into {table} select * from {filled}.{table}", f"analyze table {table}"
                )
            yield name


def measure(ground: Ground, shape: Shape, *, rounds: int) -> Outcome:
    """Run both sides in turn and collect their times."""
    outcome = Outcome(shape)
    with ground.filled(shape) as filled:
        for number in range(rounds):
            sides = [partial(_run_literal, ground, outcome), partial(_run_lethe, ground, outcome)]
            for side in sides if number % 2 == 0 else reversed(sides):
                with ground.copied(filled) as database:
                    side(database)
                    outcome.remaining.update(ground.run(database, LEFT_SQL))
    return outcome


def _run_literal(ground: Ground, outcome: Outcome, database: str) -> None:
    begun = time.perf_counter()
    literal_purge(Place(ground.server.url(database)), CUTOFF)
    outcome.literal_s.append(time.perf_counter() - begun)


def _run_lethe(ground: Ground, outcome: Outcome, database: str) -> None:
    outcome.runs.append(run_in_child(ground.server.url(database)))


def measure_writer(ground: Ground, shape: Shape) -> None:
    """Print the latencies of a writer: idle, beside the literal statements, and beside the purge."""
    sides: dict[str, Callable[[str], object]] = {
        "idle": lambda _database: time.sleep(IDLE_S),
        "literal": lambda database: literal_purge(Place(ground.server.url(database)), CUTOFF),
        "lethe": lambda database: run_in_child(ground.server.url(database)),
    }
    with ground.filled(shape) as filled:
        for name, side in sides.items():
            with ground.copied(filled) as database:
                writer = Writer(ground.server, database, shape.batches)
                writer.start()
                try:
                    side(database)
                finally:
                    found = writer.finish()
            for kind, latency in found.items():
                print(
                    f"writer beside {name:<9}{kind:<16}{latency.count:>7,} writes,"
                    f" p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms, max {latency.max_ms:.1f} ms,"
                    f" {writer.errors} refused"
                )


def print_outcome(one: Outcome) -> None:
    """One line for a data set."""
    lethe, job = median(run.seconds for run in one.runs), median(run.job_seconds for run in one.runs)
    longest, units = max(run.longest_ms for run in one.runs), one.runs[-1].units
    print(
        f"{one.shape.name:<18}{one.shape.rows:>10,} rows {one.shape.batches:>8,} batches"
        f"  literal {median(one.literal_s):.2f} s  lethe {lethe:.2f} s ({job:.2f} s the whole job)"
        f"  {one.ratio:.2f}x  {units} units, the longest {longest:.0f} ms  {one.verdict}",
        flush=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; 0: the purge was faster everywhere, and the same rows were left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name in SHAPES if name != "dense-5m"]
    parser.add_argument(
        "--shape", action="append", choices=list(SHAPES), help="data set; default: all but 5m"
    )
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side; the median counts")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the rows")
    parser.add_argument("--no-writer", action="store_true", help="leave the concurrent writer out")
    options = parser.parse_args(arguments)
    verdicts = []
    with private_mariadb(settings=SETTINGS) as server:
        ground = Ground(server)
        for name in options.shape or names:
            shape = SHAPES[name].scaled(options.scale)
            outcome = measure(ground, shape, rounds=options.rounds)
            print_outcome(outcome)
            verdicts.append(outcome.verdict)
            if name == WRITER_SHAPE and not options.no_writer:
                measure_writer(ground, shape)
    return 0 if all(verdict == "OK" for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
