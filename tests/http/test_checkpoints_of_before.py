"""Jobs that the version before has begun, and was killed in, go on in this one to the same end.

The job's row, its checkpoints and its half-done target are the older service's (tests/data/checkpoints).
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.verbs.table import VERBS
from spark.targets.connection import Target, connect, identity
from tests.data.checkpoints.record import IDENTITY, PATH, digest
from tests.data.checkpoints.record_cleanup import URL
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.slony_cleaning import REMOVED, assert_recorded
from tests.spark.events.catalogs import LoadedCatalog, conninfo_of, load_dump

DATA = Path(__file__).parents[1] / "data" / "checkpoints"
CLEANUPS = sorted(DATA.glob("event_cleanup-*.json"))
RECORDED = sorted(set(DATA.glob("*.json")) - set(CLEANUPS))
ELSEWHERE = {"ERASURE", "EXTINCTION", "LOG_SWITCH"}
"""In the fixtures of former versions: `tests/migrations/landed.py` and `peers.py`."""
SINCE = {
    *("CHANNELS", "EXTRACT_REQUEST", "INCOMING_ERROR", "REGISTRATION_REQUEST"),
    *("STATISTICS", "STRANDED", "TOMBSTONES", "TRIGGER_HIST"),
}
"""No landed version had jobs of these."""
PATIENCE_S = 90.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service whose metadata is written to while it is down."""
    found = ServiceProcess(tmp_path / "service", settings={"LETHE_SPARK__ENABLED": "false"}).start()
    yield found
    found.kill9()


def test_every_kind_that_removes_something_is_recorded_or_named() -> None:
    recorded = {json.loads(file.read_text())["kind"] for file in [*RECORDED, *CLEANUPS]}
    kinds = {kind for verb in VERBS if verb.obeys_windows for kind in verb.acts or {verb.kind}}
    assert kinds == recorded | ELSEWHERE | SINCE
    assert not recorded & (ELSEWHERE | SINCE)


@dataclass(frozen=True)
class Half:
    """A job that is half done, and its target on a file here."""

    store: str
    path: Path
    recorded: dict[str, Any]
    left: list[str]

    @property
    def job(self) -> dict[str, Any]:
        """Its row."""
        [found] = self.recorded["metadata"]["jobs"]
        return dict(found)


def _half(file: Path, folder: Path) -> Half:
    path = folder / f"{file.stem}.db"
    target = json.loads(gzip.decompress(file.with_suffix(".target.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("\n".join(target["target"]))
    assert digest(path) != target["left"]
    with closing(connect(Target(f"sqlite:///{path}"), application_name="asks")) as conn:
        text = file.read_text().replace(PATH, str(path)).replace(IDENTITY, identity(conn))
    return Half(file.stem.replace("_", "-"), path, json.loads(text), target["left"])


def test_jobs_of_the_version_before_go_on_to_the_same_end(service: ServiceProcess, tmp_path: Path) -> None:
    halves = [_half(file, tmp_path) for file in RECORDED]
    with service.http() as http:
        for half in halves:
            body = {"id": half.store, "url": f"sqlite:///{half.path}"} | half.recorded["store"]
            answer = http.post("/v1/stores", json=body)
            assert answer.status_code == 201, answer.text
    service.stop()
    for half in halves:
        _put_back(service.data_dir, half)

    service.start()
    with service.http() as http:
        for half in halves:
            http.patch(f"/v1/jobs/{half.job['id']}/throttle", json={"rows_per_s": None})
        for half in halves:
            done = wait_for(http, half.job["id"], timeout_s=PATIENCE_S)
            assert done["state"] == "SUCCEEDED", done
            assert (done["result"]["counts"], done["result"]["removed"]) == (
                "EXACT",
                half.recorded["removed"],
            )
            assert done["attempt"] > half.job["attempt"]
            assert digest(half.path) == half.left, half.store


@pytest.mark.postgresql
@pytest.mark.parametrize("file", CLEANUPS, ids=lambda file: str(file.stem))
def test_a_cleanup_of_the_version_before_goes_on_to_the_same_end(
    service: ServiceProcess, postgresql_url: str, file: Path
) -> None:
    with psycopg.connect(conninfo_of(postgresql_url)) as raw:
        load_dump(raw, file.with_suffix(".target.sql.gz").read_bytes())
    with closing(connect(Target(postgresql_url, schema="_lab"), application_name="asks")) as conn:
        text = file.read_text().replace(URL, postgresql_url).replace(IDENTITY, identity(conn))
    half = Half("node", Path(), json.loads(text), [])
    loaded = LoadedCatalog(postgresql_url, half.recorded["cluster"])
    with service.http() as http:
        body = {"id": half.store, "url": loaded.url, "kind": "SLONY", "cluster": loaded.cluster}
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
    service.stop()
    _put_back(service.data_dir, half)

    service.start()
    with service.http() as http:
        http.patch(f"/v1/jobs/{half.job['id']}/throttle", json={"rows_per_s": None})
        done = wait_for(http, half.job["id"], timeout_s=PATIENCE_S)
    assert (done["state"], done["result"]["counts"]) == ("SUCCEEDED", "EXACT"), done
    assert done["result"]["removed"] == REMOVED
    assert done["attempt"] > half.job["attempt"]
    assert_recorded(loaded)


def _put_back(data_dir: Path, half: Half) -> None:
    """The rows of the version before, as migrations leave them: what is new has its default."""
    metadata = half.recorded["metadata"]
    [file] = [path for path in data_dir.iterdir() if path.suffix == ".db"]
    with closing(sqlite3.connect(file)) as connection, connection:
        changed = {"store": half.store, "lease_expires_at": half.job["created_at"]}
        _insert(connection, "jobs", half.job | changed)
        for name in ("job_checkpoints", "job_claims"):
            for row in metadata[name]:
                _insert(connection, name, row)
        [counter] = metadata["counters"]
        connection.execute(
            "update counters set value = max(value, ?) where name = ?", (counter["value"], counter["name"])
        )


def _insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    known = {name for _, name, *_ in connection.execute(f"pragma table_info({table})")}
    assert set(row) <= known, f"{table} has lost {set(row) - known}"
    columns, marks = ", ".join(row), ", ".join("?" for _ in row)
    connection.execute(f"insert into {table} ({columns}) values ({marks})", list(row.values()))
