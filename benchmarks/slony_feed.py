"""Measures how fast the changes of a Slony-I node are read, as ratios in the same run.

One log of many SYNCs. Bare: the same columns of the same rows by psycopg from a cursor of the server, in one
statement and the same order, nothing made of them. Feed: the units as `slony-changes` reads them, SYNC by
SYNC; then with their lines of NDJSON. COPY, as slon reads, is shown beside them; its bytes stay as they are.
Database server and this program share the machine. Rounds alternate; the medians are compared.
Exit status 1: a figure was missed, or rows are missing. The last line is JSON.

    python -m benchmarks.slony_feed --quick
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from app.events.feed.forms import LinesForm
from benchmarks.gates import Gate
from spark.events.catalog import read_catalog
from spark.events.feed.reading import BLOCK_ROWS, Asked, read_page
from spark.targets.connection import Connection, Target, connect
from tests.slony_cluster import SlonyCluster, bare_cluster
from tests.slony_programs import missing

ROWS, QUICK_ROWS = 600_000, 6_000
ROWS_A_SYNC: Final = 3_000
FIRST_SEQNO: Final = 6_000_000_000
FIRST_TXID: Final = 10_000
RATIO: Final = 0.5
COLUMNS: Final = (
    "log_actionseq, log_txid, log_tableid, log_tablenspname, log_tablerelname, log_cmdtype::text,"
    " log_cmdupdncols, log_cmdargs"
)
LOG: Final = """
insert into sl_log_1 select 1, %(txid)s + n / 5, 1 + n %% 3, n, 'public', 'account',
    case n %% 4 when 0 then 'I' when 3 then 'D' else 'U' end, case when n %% 4 in (1, 2) then 1 else 0 end,
    case n %% 4 when 0 then array['id', n::text, 'owner', 'owner ' || n, 'balance', '12.50']
        when 3 then array['id', n::text] else array['balance', (n %% 1000)::text, 'id', n::text] end
from generate_series(0, %(rows)s - 1) n
"""
# A node whose SYNCs saw transactions that it has not begun was restored. Each block with a handler takes one.
TRANSACTIONS: Final = """
do $$ begin
    create temp table taken (number integer);
    for number in 1 .. {count} loop
        begin
            insert into taken values (number);
        exception when others then raise;
        end;
    end loop;
end $$
"""
EVENTS: Final = """
insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)
select 1, %(seqno)s + n, now(), cast(x.t || ':' || x.t || ':' as txid_snapshot), 'SYNC'
from generate_series(0, %(rows)s / %(a_sync)s) n, lateral (select %(txid)s + n * %(a_sync)s / 5 as t) x
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0: everything that was asked is met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="so few rows that the times say nothing")
    given = parser.parse_args(arguments)
    lacking = missing()
    if lacking:
        print(lacking)
        return 1
    rows = QUICK_ROWS if given.quick else ROWS
    with bare_cluster(settings={"shared_buffers": "512MB", "work_mem": "64MB"}) as cluster:
        fill(cluster, rows)
        seconds = measured(cluster, rows, 1 if given.quick else given.rounds)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    gates = [
        Gate(
            "feed against a bare read", medians["bare"] / medians["feed"], RATIO, "x", judged=not given.quick
        ),
        Gate(
            "feed as NDJSON against a bare read", medians["bare"] / medians["lines"], RATIO, "x", judged=False
        ),
        Gate(
            "feed against COPY, not taken apart", medians["copy"] / medians["feed"], RATIO, "x", judged=False
        ),
    ]
    for name, median in medians.items():
        print(f"{name:<8}{rows / median:>12,.0f} rows/s {[round(each, 2) for each in seconds[name]]}")
    for gate in gates:
        print(gate.line())
    print(json.dumps({"rows": rows, "seconds": seconds, "gates": {gate.name: gate.value for gate in gates}}))
    return 0 if all(gate.is_met for gate in gates) else 1


def fill(cluster: SlonyCluster, rows: int) -> None:
    """A log of one origin, and a SYNC for each ROWS_A_SYNC of it."""
    values = {"rows": rows, "txid": FIRST_TXID, "seqno": FIRST_SEQNO, "a_sync": ROWS_A_SYNC}
    with closing(cluster.connect(1)) as session:
        session.execute("truncate sl_event, sl_log_1, sl_log_2")
        session.execute(TRANSACTIONS.format(count=FIRST_TXID + rows // 5 + 1))
        session.execute(LOG, values)
        session.execute(EVENTS, values)
        session.execute("vacuum analyze sl_log_1")
        session.execute("vacuum analyze sl_event")


def measured(cluster: SlonyCluster, rows: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, by rounds."""
    target = Target(cluster.url(1), schema=cluster.schema)
    ways: dict[str, Callable[[Connection], int]] = {
        "bare": bare,
        "feed": lambda conn: feed(conn, cluster.name),
        "lines": lambda conn: feed(conn, cluster.name, form=LinesForm()),
        "copy": copied,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with connect(target, application_name="benchmark", read_only=True) as conn:
                began = time.perf_counter()
                found = way(conn)
                seconds[name].append(time.perf_counter() - began)
                assert found == rows, f"{name}: {found} rows of {rows}"
    return seconds


def bare(conn: Connection) -> int:
    """The rows in the order of log_actionseq, from a cursor of the server."""
    count = 0
    with conn.transaction(read_only=True):
        conn.execute(
            f"declare bare no scroll cursor for select {COLUMNS} from sl_log_1"
            " where log_origin = 1 order by log_actionseq"
        )
        while found := conn.execute(f"fetch forward {BLOCK_ROWS} from bare"):
            count += len(found)
    return count


def copied(conn: Connection) -> int:
    """The same by COPY."""
    sql = f"copy (select {COLUMNS} from sl_log_1 where log_origin = 1 order by log_actionseq) to stdout"
    with conn.transaction(read_only=True), conn.copy_out(sql) as lines:
        return sum(1 for _ in lines)


def feed(conn: Connection, cluster: str, *, form: LinesForm | None = None) -> int:
    """Every unit, in pages of the size that a client asks for by itself."""
    catalog = read_catalog(conn, cluster)
    after, count = FIRST_SEQNO, 0
    while True:
        begun = after
        with conn.transaction(read_only=True):
            for block in read_page(conn, catalog, Asked(1, after)).blocks:
                count += sum(1 for change in block if change.kind != "SYNC")
                after = block[-1].seqno
                if form is not None:
                    form.block(block)
        if after == begun:
            return count


if __name__ == "__main__":
    sys.exit(main())
