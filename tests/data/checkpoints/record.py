"""Records a job that an older version has half done: its row, its checkpoints, its target, and the end of it.

The service of a checkout of that version runs one purge of each kind on a SQLite file and is killed in it; a
second run, not killed, tells what must be left. `README.md` tells which commits the files here are of.

    python -m tests.data.checkpoints.record CHECKOUT COMMIT KIND...
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx

from spark.formats.csn import Csn
from spark.targets.connection import Target
from tests.http.service_process import environment
from tests.http.targets import CUTOFF, copy_reference
from tests.ports import free_port
from tests.spark.replication.replica_tables import opened, put_records

HERE = Path(__file__).parent
PATIENCE_S = 120.0
LOGGED_S = 1_760_000_000
PATH, IDENTITY = "@path@", "@identity@"
SLOW = {"rows_per_s": 40}
"""So slow that some units are done, and some are not, when the service is killed."""


def digest(path: Path) -> list[str]:
    """Every row of the tables that are not Lethe's own, as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return [line for line in connection.iterdump() if "lethe_" not in line]


def units(path: Path) -> int:
    """Units that the ledger knows."""
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.OperationalError):
        return int(connection.execute("select count(*) from lethe_unit_ledger").fetchone()[0])
    return 0


def rows_target(path: Path) -> None:
    """A table of which two thirds are old."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table event (id integer primary key, at text, word text)")
        values = ((n, f"20{20 if n % 3 else 37}-01-01 00:00:00", f"word {n}") for n in range(300))
        connection.executemany("insert into event values (?, ?, ?)", values)


def gaps_target(path: Path) -> None:
    """Gaps that were filled long ago."""
    copy_reference(path, "2.x")
    with closing(sqlite3.connect(path)) as connection, connection:
        [row] = connection.execute("select * from sym_data_gap where status = 'SK' limit 1").fetchall()
        names = [name for _, name, *_ in connection.execute("pragma table_info(sym_data_gap)")]
        for number in range(120):
            new = dict(zip(names, row, strict=True)) | {
                "start_id": 10**9 + 10 * number,
                "end_id": 10**9 + 10 * number + 5,
            }
            marks = ", ".join("?" for _ in names)
            connection.execute(f"insert into sym_data_gap values ({marks})", list(new.values()))


def log_records(http: httpx.Client, path: Path) -> None:
    """Changes of another replica that were logged long ago."""
    change = {"database": "ZGI=", "key": "a2V5", "value": "dg=="}
    answer = http.post("/v1/stores/s/changes", json=change)
    assert answer.status_code == 200, answer.text
    with opened(Target(f"sqlite:///{path}", table_prefix="replica_")) as conn, conn.transaction():
        put_records(conn, [(Csn.of(LOGGED_S + number, 0, 2), LOGGED_S) for number in range(300)])


CASES: dict[str, tuple[Callable[[Path], object], dict[str, Any], dict[str, Any]]] = {
    "OUTGOING": (
        copy_reference,
        {"kind": "SYMMETRICDS"},
        {"cutoff": CUTOFF, "stranded": "MARK", "max_rows_in_tx": 20},
    ),
    "INCOMING": (
        lambda path: copy_reference(path, "2.x"),
        {"kind": "SYMMETRICDS"},
        {"cutoff": CUTOFF, "max_rows_in_tx": 5},
    ),
    "DATA_GAP": (gaps_target, {"kind": "SYMMETRICDS"}, {"cutoff": CUTOFF, "max_rows_in_tx": 10}),
    "CHANGELOG": (
        lambda _path: None,
        {"kind": "REPLICA", "rid": 1},
        {"retention_minutes": 60, "max_rows_in_tx": 20},
    ),
    "ROWS": (
        rows_target,
        {"kind": "SQL"},
        {"table": "event", "time_column": "at", "cutoff": CUTOFF, "max_rows_in_tx": 10},
    ),
}


class Old:
    """`lethe serve` of the checkout."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.data, self.port = folder / "data", free_port()
        kept = environment({"LETHE_SPARK__ENABLED": "false"})
        code = "from app.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", "--data-dir", str(self.data), "--port", str(self.port)],
            env=kept | {"PYTHONPATH": os.pathsep.join((str(checkout), str(checkout / "client")))},
            cwd=checkout,
            stdout=(folder / "log").open("ab"),
            stderr=subprocess.STDOUT,
        )

    def http(self) -> httpx.Client:
        """A client, once it is ready."""
        deadline = time.monotonic() + PATIENCE_S
        base = f"http://127.0.0.1:{self.port}"
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{base}/readyz").status_code == 200:
                    token = (self.data / "admin.token").read_text().strip()
                    return httpx.Client(
                        base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=30
                    )
            assert time.monotonic() < deadline, "it does not start"
            time.sleep(0.1)

    def kill(self) -> None:
        """Without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def tables(self, names: list[str]) -> dict[str, list[dict[str, Any]]]:
        """Rows of its metadata."""
        [file] = [path for path in self.data.iterdir() if path.suffix == ".db"]
        with closing(sqlite3.connect(file)) as connection:
            connection.row_factory = sqlite3.Row
            return {
                name: [dict(row) for row in connection.execute(f"select * from {name}")] for name in names
            }


def record(checkout: Path, commit: str, kind: str) -> None:
    """One kind."""
    make, store, fields = CASES[kind]
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        body, stocked = {"kind": kind} | fields, folder / "stocked.db"
        for is_killed in (False, True):
            (folder / str(is_killed)).mkdir()
            path = folder / str(is_killed) / "target.db"
            if is_killed:
                shutil.copyfile(stocked, path)
            else:
                make(path)
            old = Old(checkout, folder / str(is_killed))
            try:
                with old.http() as http:
                    answer = http.post("/v1/stores", json={"id": "s", "url": f"sqlite:///{path}"} | store)
                    assert answer.status_code == 201, answer.text
                    if kind == "CHANGELOG" and not is_killed:
                        log_records(http, path)
                    if not is_killed:
                        with (
                            closing(sqlite3.connect(path)) as here,
                            closing(sqlite3.connect(stocked)) as there,
                        ):
                            here.backup(there)
                    slow = {"throttle": SLOW} if is_killed else {}
                    answer = http.post("/v1/stores/s/purges", json=body | slow)
                    assert answer.status_code == 202, answer.text
                    job_id = answer.json()["id"]
                    while (job := http.get(f"/v1/jobs/{job_id}").json())["state"] != "SUCCEEDED":
                        assert job["state"] in ("QUEUED", "RUNNING"), job
                        if is_killed and units(path) >= 3:
                            break
                        time.sleep(0.02)
                    else:
                        assert not is_killed, "it ended too soon"
                        removed, left = job["result"]["removed"], digest(path)
            finally:
                old.kill()
        names = ["jobs", "job_checkpoints", "job_claims", "counters", "alembic_version"]
        tables = old.tables(names)
        [identity] = [row["target_identity"] for row in tables["job_claims"]]
        text = json.dumps(
            {
                "commit": commit,
                "kind": kind,
                "store": store,
                "removed": removed,
                "metadata": tables,
            },
            indent=1,
            sort_keys=True,
        )
        name = f"{kind.lower()}-{commit}"
        (HERE / f"{name}.json").write_text(text.replace(str(path), PATH).replace(identity, IDENTITY) + "\n")
        with closing(sqlite3.connect(path)) as connection:
            found = {"target": list(connection.iterdump()), "left": left}
        (HERE / f"{name}.target.gz").write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))


if __name__ == "__main__":
    for each in sys.argv[3:]:
        record(Path(sys.argv[1]).resolve(), sys.argv[2], each)
        print(each)
