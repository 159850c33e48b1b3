"""Measures an extinction of a replica against deleting the same records one change each, in the same run.

A replica is filled with entries; beside them lie a tenth as many in another database, which are deleted
through the service's bulk path (Arrow, 10,000 changes in a request). Then 60 % of the entries become
extinct: from the request to the end of its scan. A writer goes on all the time, one change in a request: its
latency is told for the idle service, and while each of the two works. Service, database server and this
program share the machine. Told too: how many keys a second the index judges in one process, 10,000 in a call.
Exit status 1: a figure was missed, or what is left is not what must be left. The last line is JSON.

    python benchmarks/extinction.py --entries 1000000 --dialect sqlite
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.gates import Gate
from benchmarks.replication import DIALECTS, Bench, _ended
from benchmarks.replication_bare import ENTRIES, GENERATION, LIMITS, make_layout
from spark.formats.changes.batch import ARROW_MEDIA_TYPE, encode_arrow
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction, ExtinctionIndex
from spark.formats.extinction_filter import Filter, encode_base64
from spark.formats.replica import tables_of
from spark.replication.records import entry_schema, local_schema
from spark.targets.connection import Target, connect
from spark.targets.dialects.postgresql_copy import encode_rows

ENTRIES_COUNT = 5_000_000
JUDGED_ENTRIES = 1_000_000
QUICK_ENTRIES = 20_000
EXTINCT_PERCENT = 60
BULK_ROWS = 10_000
FILL_ROWS = 100_000
VALUE_BYTES = 100
RATIO = 4.0
KEYS_PER_S = 200_000.0
INDEX_EXTINCTIONS = 300
INDEX_CALLS = 50
INDEX_KEYS = 10_000
IDLE_S = 3.0
PAUSE_S = 0.02
RID = 1
DATABASE, BULK, LIVE = b"orders", b"bulk", b"live"
CSN = Csn.of(1_790_000_000, 0, RID)


@dataclass
class Found:
    """What one kind of database showed; latencies of the writer in milliseconds, median and 95th of 100."""

    dialect: str
    entries: int
    bulk_per_s: float = 0.0
    scan_per_s: float = 0.0
    scan_s: float = 0.0
    records: int = 0
    changelog_growth: int = 0
    left_wrong: int = 0
    latency_ms: dict[str, list[float]] = field(default_factory=dict)

    def gates(self) -> list[Gate]:
        """What is asked."""
        judged = self.entries >= JUDGED_ENTRIES
        ratio = self.scan_per_s / self.bulk_per_s
        return [
            Gate(f"{self.dialect}: against one change each", ratio, RATIO, "x", judged=judged),
        ]

    def lines(self) -> list[str]:
        """What lies behind the gates."""
        shown = "; ".join(
            f"{name} {median:.1f} / {late:.1f} ms" for name, (median, late) in self.latency_ms.items()
        )
        return [
            f"\n{self.dialect}, {self.entries:,} entries: {self.records:,} extinct in {self.scan_s:.2f} s "
            f"({self.scan_per_s:,.0f}/s), one change each {self.bulk_per_s:,.0f}/s; "
            f"the changelog grew by {self.changelog_growth}",
            f"a writer meanwhile (median / 95 %): {shown}",
        ]


def fill(target: Target, count: int) -> None:
    """Entries in the order of their keys, past the service; their CSN is the RUV."""
    source = random.Random(1)
    with connect(target, application_name="lethe:bench", limits=LIMITS) as conn:
        tables = tables_of(conn)
        for database, rows in ((BULK, count // 10), (DATABASE, count)):
            for begin in range(0, rows, FILL_ROWS):
                numbers = range(begin, min(rows, begin + FILL_ROWS))
                columns = [
                    [database] * len(numbers),
                    [key_of(number) for number in numbers],
                    [source.randbytes(VALUE_BYTES) for _ in numbers],
                    [str(CSN)] * len(numbers),
                    [False] * len(numbers),
                ]
                with conn.transaction():
                    _put(conn, tables.entries, columns)
        conn.execute(
            f"insert into {tables.ruv} (rid, min_csn, max_csn) values (:rid, :csn, :csn)",
            {"rid": RID, "csn": str(CSN)},
        )
        conn.execute("analyze" if conn.dialect.name == "postgresql" else "pragma wal_checkpoint(truncate)")


def _put(conn: Any, table: str, columns: list[list[Any]]) -> None:
    names = ", ".join(ENTRIES)
    if conn.dialect.name == "postgresql":
        arrays = [pa.array(values, each.type) for values, each in zip(columns, entry_schema(), strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=entry_schema())
        conn.copy_in(f"copy {table} ({names}) from stdin (format binary)", encode_rows(batch))
        return
    conn.execute_rows(f"insert into {table} ({names}) values (?, ?, ?, ?, ?)", zip(*columns, strict=True))


def key_of(number: int) -> bytes:
    """The key of an entry."""
    return b"%012d" % number


class Writer:
    """One change in a request, again and again, until told to stop."""

    def __init__(self, bench: Bench, store: str) -> None:
        self._bench, self._store = bench, store
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.took_ms: list[float] = []
        self.failed: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def since(self, count: int) -> list[float]:
        """Median and 95th of 100 of the requests after the first `count`."""
        if self.failed is not None:
            raise self.failed
        took = sorted(self.took_ms[count:]) or [0.0]
        return [statistics.median(took), took[min(len(took) - 1, len(took) * 95 // 100)]]

    def _write(self) -> None:
        try:
            with self._bench.supplier.http() as http:
                while not self._over.wait(PAUSE_S):
                    key = encode_base64(b"%06d" % (len(self.took_ms) % 1_000))
                    change = {"database": encode_base64(LIVE), "key": key, "value": key}
                    began = time.perf_counter()
                    http.post(f"/v1/stores/{self._store}/changes", json=change).raise_for_status()
                    self.took_ms.append(1_000 * (time.perf_counter() - began))
        except BaseException as error:  # noqa: BLE001 -- the main thread raises it
            self.failed = error


def measure(bench: Bench, dialect: str, options: argparse.Namespace) -> Found:
    """Fill, delete some one by one, discard the rest; look at what is left."""
    found = Found(dialect, options.entries)
    target = bench.target(dialect)
    make_layout(target, rid=RID)
    fill(target, options.entries)
    store = f"extinct-{dialect}"
    http = bench.http[bench.supplier]
    body = {"id": store, "kind": "REPLICA", "rid": RID, "url": target.url, "generation": str(GENERATION)}
    http.post("/v1/stores", json=body).raise_for_status()
    with Writer(bench, store) as writer:
        time.sleep(options.idle)
        found.latency_ms["idle"] = writer.since(0)
        with _timed(found, writer, "bulk deletes") as seconds:
            deleted = _delete_one_by_one(bench, store, options.entries // 10)
        found.bulk_per_s = deleted / seconds[0]
        with _timed(found, writer, "scan") as seconds:
            found.records = _discard(bench, store, options.entries)
        found.scan_s, found.scan_per_s = seconds[0], found.records / seconds[0]
    _look(target, found, deleted=deleted, written=len(writer.took_ms))
    return found


@contextmanager
def _timed(found: Found, writer: Writer, name: str) -> Iterator[list[float]]:
    count, began = len(writer.took_ms), time.perf_counter()
    seconds: list[float] = []
    yield seconds
    seconds.append(time.perf_counter() - began)
    found.latency_ms[name] = writer.since(count)


def _delete_one_by_one(bench: Bench, store: str, count: int) -> int:
    http = bench.http[bench.supplier]
    for begin in range(0, count, BULK_ROWS):
        keys = [key_of(number) for number in range(begin, min(count, begin + BULK_ROWS))]
        columns = [pa.array([BULK] * len(keys)), pa.array(keys), pa.nulls(len(keys), pa.binary())]
        batch = pa.RecordBatch.from_arrays(columns, schema=local_schema())
        http.post(
            f"/v1/stores/{store}/changes",
            content=encode_arrow(batch),
            headers={"Content-Type": ARROW_MEDIA_TYPE},
        ).raise_for_status()
    return count


def _discard(bench: Bench, store: str, entries: int) -> int:
    """From the request to the end of the scan; how many records went."""
    http = bench.http[bench.supplier]
    body = {
        "databases": [encode_base64(DATABASE)],
        "start_key": encode_base64(key_of(0)),
        "end_key": encode_base64(key_of(entries * EXTINCT_PERCENT // 100)),
        "label": "benchmark",
        "confirm_keys_never_reused": True,
        "reason": "benchmark",
    }
    answer = http.post(f"/v1/stores/{store}/extinctions", json=body)
    answer.raise_for_status()
    job = _ended(http, answer.json()["id"])
    assert job["state"] == "SUCCEEDED", job["error"]
    return int(job["result"]["records"])


def _look(target: Target, found: Found, *, deleted: int, written: int) -> None:
    """What is left must be the entries that are not extinct; and one record tells of the others."""
    with connect(target, application_name="lethe:bench", limits=LIMITS, read_only=True) as conn:
        tables = tables_of(conn)
        [(left, least)] = conn.execute(
            f"select count(*), min(key) from {tables.entries} where database = :database"
            if conn.dialect.name == "sqlite"
            else "select count(*), (select key from"
            f" {tables.entries} where database = :database order by key limit 1)"
            f" from {tables.entries} where database = :database",
            {"database": DATABASE},
        )
        [(changes,)] = conn.execute(f"select count(*) from {tables.changelog}")
    gone = found.entries * EXTINCT_PERCENT // 100
    found.left_wrong += (left, bytes(least)) != (found.entries - gone, key_of(gone))
    found.left_wrong += found.records != gone
    found.changelog_growth = int(changes) - deleted - written
    found.left_wrong += found.changelog_growth != 1


def judged_per_s(*, calls: int) -> float:
    """Keys a second that one process judges, against hundreds of extinctions, some with filters."""
    source = random.Random(2)
    some = Filter.parse({"modulo": {"offset": 0, "width": 2, "divisor": 7, "remainder": 3}})
    starts = sorted(source.sample(range(10**6), INDEX_EXTINCTIONS))
    index = ExtinctionIndex(
        Extinction(
            f"ext_{number}",
            frozenset([DATABASE]),
            b"%06d" % start,
            b"%06d" % (start + 2_000),
            some if number % 3 == 0 else None,
        )
        for number, start in enumerate(starts)
    )
    keys = [b"%06d" % source.randrange(10**6) for _ in range(INDEX_KEYS)]
    began = time.perf_counter()
    for _ in range(calls):
        index.status_many(DATABASE, keys)
    return calls * INDEX_KEYS / (time.perf_counter() - began)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=ENTRIES_COUNT)
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds of the writer alone")
    parser.add_argument("--dialect", choices=DIALECTS, action="append", help="default: both")
    parser.add_argument("--engine", choices=("INLINE", "SPARK"), default="INLINE")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ENTRIES:,} entries")
    options = parser.parse_args(arguments)
    if options.quick:
        options.entries, options.idle = QUICK_ENTRIES, 0.5
    return options


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: every figure held and what is left is right."""
    options = parse(arguments)
    per_s = judged_per_s(calls=INDEX_CALLS)
    is_judged = options.entries >= JUDGED_ENTRIES
    gates = [Gate("status: keys a second", per_s, KEYS_PER_S, "", judged=is_judged)]
    document: dict[str, Any] = {"keys_per_s": per_s}
    wrong = 0
    with ExitStack() as stack:
        bench = Bench(stack, options)
        for dialect in options.dialect or DIALECTS:
            found = measure(bench, dialect, options)
            print("\n".join(found.lines()), flush=True)
            gates += found.gates()
            wrong += found.left_wrong
            document[dialect] = vars(found)
    document["gates"] = [vars(gate) | {"met": gate.is_met} for gate in gates]
    print()
    for gate in gates:
        print(gate.line())
    if wrong:
        print("WRONG: what is left is not what must be left")
    print(json.dumps(document))
    return 0 if all(gate.is_met for gate in gates) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
