"""Judges the ETA of a purge of a million rows against what then really remained.

A client looks every tenth of a second at the progress that was written last. A look is right where the ETA
is within 30 % of the time that the job then took; one that is told no end is wrong. Judged are the looks
after the first tenth of the rows was walked. Beside them stands the share of those after the first tenth of
the time: a purge of a few seconds spends more than that on its connections, and knows no pace yet.
Exit status 1: fewer than 80 % were right.

    python benchmarks/purge_eta.py --dialect sqlite --rows 400000
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from app.clock import SystemClock
from app.db import Database
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import InlineEngine
from app.jobs.rows import Job
from app.purge.task import run_purge
from app.settings import Settings
from benchmarks.purge import SETTINGS, Ground
from benchmarks.purge_lethe import JOB_ID, claimed, closing_database, store_at
from benchmarks.purge_shapes import CUTOFF, Shape
from tests.oracles.symmetricds import Place, create
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory

WITHIN = 0.3
WANTED = 0.8
UNJUDGED = 0.1
LOOK_S = 0.1
# Captured rows, with 1.2 events each and their batches.
ROWS = 1_000_000
DIALECTS = ("postgresql", "sqlite")
SHARES = (0.85, 0.3)
"""How much of the data is older than the cut-off: most of it, or a part."""

# As purge_shapes has it, for SQLite.
SQLITE_TIME = "strftime('%Y-%m-%d %H:%M:%f', '{cutoff}', (({position} - 0.85) * 360000) || ' seconds')"
SQLITE_SERIES = "with recursive g(i) as (select 1 union all select i + 1 from g where i < {count}) "
SQLITE_DATA = """
insert into sym_data (data_id, table_name, event_type, row_data, pk_data, trigger_hist_id, channel_id,
                      transaction_id, create_time)
{series} select i, 'item', 'U', '"' || i || '","' || hex(zeroblob(48)) || '"', '"' || i || '"', 1, 'default',
                'tx' || i / 10, {time} from g
"""
SQLITE_EVENTS = """
insert into sym_data_event (data_id, batch_id, create_time)
{series} select i, 2 * (i / {per_batch}) + n.node + 1, {time}
from g, (select 0 as node union all select 1) n
where i % 1000 <> 999 and (n.node = 0 or i % 5 = 0)
"""
SQLITE_BATCHES = """
insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time, last_update_time)
{series} select i, case when i % 2 = 1 then 'n1' else 'n2' end, 'default',
                case when i % 101 = 0 then 'ER' when {position} > 0.97 then 'NE' else 'OK' end, {time}, {time}
from g
"""
SQLITE_FILL = (("rows", SQLITE_DATA), ("rows", SQLITE_EVENTS), ("batches", SQLITE_BATCHES))


@dataclass
class Trace:
    """What clients were told, and when: seconds since the job began, and the row of progress."""

    told: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    began: datetime | None = None
    took_s: float = 0.0
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def walked_from_s(self) -> float:
        """When clients were told that the first tenth of the rows was walked."""
        return next(
            (at_s for at_s, row in self.told if row["done"] >= UNJUDGED * (row["total"] or 1)), self.took_s
        )

    def looks(self, from_s: float) -> Iterator[tuple[float, float | None]]:
        """What really remained and what the ETA said, of each look from then on; None: it said nothing."""
        assert self.began is not None
        at_s = from_s
        while at_s < self.took_s:
            known = [row for told_s, row in self.told if told_s <= at_s]
            eta = known[-1]["eta"] if known else None
            ends_s = None if eta is None else (datetime.fromisoformat(eta) - self.began).total_seconds()
            yield self.took_s - at_s, None if ends_s is None else ends_s - at_s
            at_s += LOOK_S

    def share(self, *, of_time: bool = False) -> float:
        """Of the looks after the first tenth of the rows, or of the time, those that were right."""
        looks = list(self.looks(self.took_s * UNJUDGED if of_time else self.walked_from_s))
        return sum(is_right(left, told) for left, told in looks) / max(1, len(looks))


def is_right(left_s: float, told_s: float | None) -> bool:
    """Whether an ETA is near enough to what remained."""
    return told_s is not None and abs(told_s - left_s) <= WITHIN * left_s


def traced(url: str, cutoff: datetime) -> Trace:
    """Run a purge as a runner would, and write down what clients see of it."""
    trace, clock = Trace(), SystemClock()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(data_dir=Path(directory), lease_self_stop_s=3600)
        with closing_database(Database(settings.effective_metadata_url)) as database:
            begun = time.perf_counter()

            def told(_job: str) -> None:
                with database.reading() as db:
                    row = db.get_one(Job, JOB_ID).progress
                if row is not None:
                    trace.told.append((time.perf_counter() - begun, dict(row)))

            store = store_at(url, database)
            context = claimed(database, settings, clock, store, cutoff=cutoff, changed=told)
            begun, trace.began = time.perf_counter(), clock.now()
            trace.result = dict(run_purge(context, engines=Engines(InlineEngine(clock))))
            trace.took_s = time.perf_counter() - begun
    return trace


def fill_sqlite(path: Path, shape: Shape) -> str:
    """A file with the data set; its URL."""
    create(Place(f"sqlite:///{path}", encoding="text_ms"))
    counts = {"rows": shape.rows, "batches": shape.batches}
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "insert into sym_node (node_id, node_group_id, external_id, sync_enabled)"
            " values ('n1', 'store', 'n1', 1), ('n2', 'store', 'n2', 1)"
        )
        for name, sql in SQLITE_FILL:
            position = f"(i * 1.0 / {counts[name]})"
            values = {
                "series": SQLITE_SERIES.format(count=counts[name]),
                "position": position,
                "time": SQLITE_TIME.format(cutoff=CUTOFF, position=position),
                "per_batch": shape.rows_per_batch,
            }
            db.execute(sql.format(**values))
    with closing(sqlite3.connect(path)) as db:
        db.execute("analyze")
    return f"sqlite:///{path}"


@contextmanager
def filled(dialect: str, shape: Shape, server: str | None = None) -> Iterator[str]:
    """The URL of a database with the data set."""
    with scratch_directory() as scratch:
        if dialect == "sqlite":
            yield fill_sqlite(scratch / "symmetric.db", shape)
            return
        own = None
        if server is None:
            own = PostgresqlServer(find_binaries(scratch), scratch, settings=SETTINGS)
            own.start()
        ground = Ground(make_url(own.url() if own is not None else str(server)))
        try:
            with ground.filled(shape) as name, ground.copied(name) as copied:
                yield ground.conninfo(copied)
        finally:
            if own is not None:
                own.stop()


def measure(dialect: str, *, rows: int, share: float, server: str | None = None) -> Trace:
    """One purge of a fresh database, of the rows older than a share of all."""
    shape = Shape(f"eta-{rows}", rows, 300, 1, None)
    with filled(dialect, shape, server) as url:
        return traced(url, CUTOFF - timedelta(hours=100 * (0.85 - share)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dialect", choices=DIALECTS, action="append", help="repeatable; default: both")
    parser.add_argument("--rows", type=int, default=ROWS, help="captured; events and batches come on top")
    parser.add_argument("--share", type=float, action="append", help="older than the cut-off; repeatable")
    parser.add_argument("--url", help="PostgreSQL server; else one from the wheel")
    parser.add_argument("--trace", type=Path, help="folder for what clients were told, as JSON")
    options = parser.parse_args(arguments)
    is_right_enough = True
    for dialect in options.dialect or DIALECTS:
        for share in options.share or SHARES:
            trace = measure(dialect, rows=options.rows, share=share, server=options.url)
            if options.trace is not None:
                text = json.dumps({"took_s": trace.took_s, "began": str(trace.began), "told": trace.told})
                (options.trace / f"{dialect}-{share}.json").write_text(text)
            judged = trace.share()
            is_right_enough = is_right_enough and judged >= WANTED
            print(
                f"{dialect:10} {options.rows:9,} rows captured, {share:.0%} old: {trace.took_s:6.1f} s,"
                f" {sum(trace.result['removed'].values()):9,} removed,"
                f" {len(list(trace.looks(trace.walked_from_s))):5} looks, {judged:6.1%} within {WITHIN:.0%},"
                f" {trace.share(of_time=True):6.1%} of those after a tenth of the time"
            )
    return 0 if is_right_enough else 1


if __name__ == "__main__":
    sys.exit(main())
