"""Records an event cleanup of Slony-I that an older version has half done, as `record.py` does purges.

The target is a copy of the recorded catalog of node 1; what must be left of it in the end is recorded with
the catalogs (`tests/data/slony/oracle`).

    python -m tests.data.checkpoints.record_cleanup CHECKOUT COMMIT
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.conftest import SharedServer
from tests.data.checkpoints.record import HERE, IDENTITY, PATIENCE_S, SLOW, Old
from tests.http.slony_cleaning import AT
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory
from tests.spark.events.catalogs import Catalogs, Templates, conninfo_of

URL = "@url@"
REQUEST = {"confirmed_before": AT, "max_rows_in_tx": 10}
BEGUN_ROWS = 30
LATER_SERVERS_ONLY = "SET transaction_timeout"
"""A dump's own setting that servers before 17 do not know."""


def dump_of(binaries: Path, url: str) -> bytes:
    """Everything in the database, Lethe's own tables too, as SQL."""
    command = [binaries / "pg_dump", "--no-owner", "--no-acl", "--dbname", conninfo_of(url)]
    done = subprocess.run(command, check=True, capture_output=True)
    lines = done.stdout.decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(LATER_SERVERS_ONLY)).encode()


def half_done(old: Old, url: str, cluster: str) -> dict[str, list[dict[str, Any]]]:
    """Begin the cleanup, kill the service in it; the rows of its metadata."""
    with old.http() as http:
        body = {"id": "s", "url": url, "kind": "SLONY", "cluster": cluster}
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
        answer = http.post("/v1/stores/s/event-cleanups", json=REQUEST | {"throttle": SLOW})
        assert answer.status_code == 202, answer.text
        path, deadline = f"/v1/jobs/{answer.json()['id']}", time.monotonic() + PATIENCE_S
        while ((http.get(path).json()["progress"] or {}).get("done") or 0) < BEGUN_ROWS:
            assert time.monotonic() < deadline, http.get(path).text
            time.sleep(0.02)
    old.kill()
    return old.tables(["jobs", "job_checkpoints", "job_claims", "counters", "alembic_version"])


def record(checkout: Path, commit: str) -> None:
    """The job and its target, as they are when the service is killed."""
    with ExitStack() as stack:
        binaries = find_binaries(stack.enter_context(scratch_directory("lethe-binaries-")))
        server = PostgresqlServer(binaries, stack.enter_context(scratch_directory()))
        server.start()
        stack.callback(server.stop)
        loaded = Catalogs(Templates(SharedServer(server.url(), None))).load("fxa", 1)
        old = Old(checkout, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(old.kill)
        tables = half_done(old, loaded.url, loaded.cluster)
        target = dump_of(Path(binaries), loaded.url)
    [identity] = {row["target_identity"] for row in tables["job_claims"]}
    found = {"commit": commit, "kind": "EVENT_CLEANUP", "cluster": loaded.cluster, "metadata": tables}
    text = json.dumps(found, indent=1, sort_keys=True).replace(loaded.url, URL).replace(identity, IDENTITY)
    (HERE / f"event_cleanup-{commit}.json").write_text(text + "\n")
    (HERE / f"event_cleanup-{commit}.target.sql.gz").write_bytes(gzip.compress(target, mtime=0))


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve(), sys.argv[2])
