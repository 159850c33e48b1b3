"""A replica exported into a file and imported into a blank one, over HTTP and by the command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.replication.snapshots.files import clear, draft_of, drafted, is_placed, measure, place
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import accepted, wait_for
from tests.http.supplying import Pair, entries, make_pair, write


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """Files and replicas know nothing of metadata."""
    return sqlite_service


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    return make_pair(http, service, roots, generations=(None, None))


def _ask(store: ConsumerStore, what: str, **body: Any) -> httpx.Response:
    return store.http.post(f"/v1/stores/{store.id}/{what}", json=body)


def _run(store: ConsumerStore, what: str, *states: str, **body: Any) -> dict[str, Any]:
    return wait_for(store.http, accepted(_ask(store, what, **body)), *states)


def test_a_replica_that_was_imported_goes_on_without_a_total_initialisation(pair: Pair, roots: Path) -> None:
    write(pair.supplier, 40, value=b"first")
    path = roots / f"{pair.supplier.id}.lethe"
    exported = _run(pair.supplier, "replica-exports", "SUCCEEDED", path=str(path))["result"]
    assert (exported["rid"], exported["entries"], exported["tombstones"]) == (1, 40, 0)
    assert (exported["bytes"], exported["sha256"]) == (
        path.stat().st_size,
        sha256(path.read_bytes()).hexdigest(),
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert exported["ruv"] == pair.supplier.ruv()["ruv"]
    write(pair.supplier, 5, prefix="later")
    imported = _run(
        pair.consumer, "replica-imports", "SUCCEEDED", path=str(path), signed_by=exported["signed_by"]
    )["result"]
    assert imported == {name: value for name, value in exported.items() if name not in ("bytes", "sha256")}
    assert pair.consumer.ruv()["status"] == "ONLINE"
    assert pair.compare()["missing"] == {"1": 5}
    assert pair.session_of(pair.run("SUCCEEDED"))["mode"] == "INCREMENTAL"
    assert entries(pair.consumer) == entries(pair.supplier)
    # It has a history of its own from here on.
    write(pair.consumer, 1, prefix="own")
    assert len(entries(pair.consumer)) == 46
    refused = _run(pair.consumer, "replica-imports", "FAILED", path=str(path))
    assert refused["error"]["code"] == "REPLICA_NOT_BLANK"
    assert len(entries(pair.consumer)) == 46
    again = _run(pair.supplier, "replica-exports", "FAILED", path=str(path))
    assert again["error"]["code"] == "SNAPSHOT_FILE_EXISTS"
    assert [name for name in os.listdir(roots) if name.startswith(f".{path.name}")] == []


def test_a_file_that_is_none_or_that_another_replica_has_signed_changes_nothing(
    pair: Pair, roots: Path
) -> None:
    write(pair.supplier, 3)
    path = roots / f"{pair.supplier.id}.lethe"
    _run(pair.supplier, "replica-exports", "SUCCEEDED", path=str(path))
    cut = roots / f"{pair.supplier.id}-cut.lethe"
    cut.write_bytes(path.read_bytes()[:700])
    pipe = roots / f"{pair.supplier.id}.pipe"
    os.mkfifo(pipe)
    for wanted, code in (
        ({"path": str(cut)}, "SNAPSHOT_DAMAGED"),
        ({"path": str(path), "signed_by": "0" * 64}, "SNAPSHOT_DAMAGED"),
        ({"path": str(roots / "nothing.lethe")}, "SNAPSHOT_FILE_REFUSED"),
        ({"path": str(roots)}, "SNAPSHOT_FILE_REFUSED"),
        ({"path": str(pipe)}, "SNAPSHOT_FILE_REFUSED"),
    ):
        job = _run(pair.consumer, "replica-imports", "FAILED", **wanted)
        assert job["error"]["code"] == code, job["error"]
    assert pair.consumer.ruv()["ruv"] in (None, {})
    # The file's own replica is no place for it, nor is another one of its number.
    same = make_replica(pair.http, rid=1, folder=roots)
    job = _run(same, "replica-imports", "FAILED", path=str(path))
    assert job["error"]["code"] == "DUPLICATE_RID"


@pytest.mark.parametrize("what", ["replica-exports", "replica-imports"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"path": "relative"}, 422),
        ({"path": "/etc/../etc/passwd"}, 422),
        ({"path": "/etc/passwd"}, 422),
        ({"path": "/tmp/x", "more": 1}, 422),
    ],
)
def test_a_place_that_is_none_is_refused_at_once(
    pair: Pair, what: str, body: dict[str, Any], status: int
) -> None:
    code = "PATH_NOT_ALLOWED" if body == {"path": "/etc/passwd"} else "INVALID_REQUEST"
    problem(_ask(pair.consumer, what, **body), status, code)


def test_the_command_exports_and_imports(pair: Pair, service: ServiceProcess, roots: Path) -> None:
    def lethe(*arguments: str, code: int = 0) -> Any:
        access = ["--url", service.url, "--data-dir", str(service.data_dir), "--json"]
        done = run_to_end(["replica", *arguments, *access])
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    write(pair.supplier, 2)
    path = str(roots / f"{pair.supplier.id}.lethe")
    exported = lethe("export", pair.supplier.id, path)["result"]
    key = exported["signed_by"]
    assert lethe("import", pair.consumer.id, path, "--signed-by", key)["result"]["entries"] == 2
    assert lethe("import", pair.consumer.id, path, code=1)["error"]["code"] == "REPLICA_NOT_BLANK"


def test_an_admin_of_some_stores_takes_no_file_of_another_one(
    pair: Pair, service: ServiceProcess, roots: Path, make_token: Callable[..., str]
) -> None:
    """The name of the file is all that the way to another store's entries would need."""
    path = str(roots / f"{pair.supplier.id}.lethe")
    url = f"/v1/stores/{pair.consumer.id}/replica-imports"
    with service.http(make_token("admin", stores=[pair.consumer.id])) as limited:
        problem(limited.post(url, json={"path": path}), 403, "TOKEN_LIMITED_TO_STORES")


# -- the file, where an attempt dies


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "export"
    for _attempt in range(2):  # the first one died behind its last byte
        with drafted(path, "job_1") as out:
            out.write(b"whole")
        assert not path.exists()
        assert not is_placed(path, "job_1")
    place(path, "job_1")
    assert (is_placed(path, "job_1"), is_placed(path, "job_2")) == (True, False)
    clear(path, "job_1")
    clear(path, "job_1")
    assert (os.listdir(tmp_path), measure(path)) == (["export"], (5, sha256(b"whole").hexdigest()))


def test_an_attempt_that_fails_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "export"

    def fail(*, is_begun_anew: bool) -> None:
        with drafted(path, "job_1") as out:
            out.write(b"clear text")
            if is_begun_anew:
                draft_of(path, "job_1").unlink()
                draft_of(path, "job_1").write_bytes(b"of the next attempt")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail(is_begun_anew=False)
    assert os.listdir(tmp_path) == []
    # What another attempt of the job has begun since is left alone.
    with pytest.raises(OSError, match="full"):
        fail(is_begun_anew=True)
    assert draft_of(path, "job_1").read_bytes() == b"of the next attempt"
    with drafted(path, "job_2") as out:
        out.write(b"whole")
    path.write_bytes(b"came meanwhile")
    with pytest.raises(FileExistsError):
        place(path, "job_2")
    assert sorted(os.listdir(tmp_path)) == [".export.job_1", "export"]


def test_a_draft_is_not_written_through_a_link(tmp_path: Path) -> None:
    path, other = tmp_path / "export", tmp_path / "other"
    other.write_bytes(b"kept")
    draft_of(path, "job_1").symlink_to(other)
    with drafted(path, "job_1") as out:
        out.write(b"whole")
    assert other.read_bytes() == b"kept"
    other.unlink()
    path.symlink_to(other)
    with pytest.raises(FileExistsError):
        place(path, "job_1")
    assert not other.exists()
