"""Extinctions took no `plan_id`: what was reviewed was one number, and what went whatever matched by then."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from lethe_samples.je_writer.environment import Environment
from tests.http.discarding import b64, discard
from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.problem import pointers, problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.supplying import entries, write

MakeReplica = Callable[..., ConsumerStore]
IN_RANGE = {"start_key": b64(b"k"), "end_key": b64(b"l")}


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is discarded lies at the target."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def make(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> MakeReplica:
    """Makes a replica on either kind of target."""

    def made(**fields: Any) -> ConsumerStore:
        if request.param == "sqlite":
            return make_replica(http, rid=1, folder=roots, **fields)
        return make_replica(http, rid=1, url=request.getfixturevalue("postgresql_url"), **fields)

    return made


@pytest.fixture
def store(make: MakeReplica) -> ConsumerStore:
    """A replica with ten entries in the range and one beside it."""
    found = make()
    write(found, 10)
    write(found, 1, prefix="a")
    return found


def plan(store: ConsumerStore, **fields: Any) -> dict[str, Any]:
    answer = store.http.post(
        f"/v1/stores/{store.id}/extinctions",
        params={"validate_only": "true"},
        json={"databases": [b64(b"db")], "label": "old", "confirm_keys_never_reused": True}
        | IN_RANGE
        | fields,
        headers={"Prefer": "wait=30"},
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def execute(store: ConsumerStore, plan_id: str, **fields: Any) -> httpx.Response:
    return discard(store, **(IN_RANGE | {"plan_id": plan_id} | fields))


def result_of(store: ConsumerStore | EnvironmentStore, answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    job = wait_for(store.http, answer.json()["id"], "SUCCEEDED", timeout_s=60)
    found: dict[str, Any] = job["result"]
    return found


def removed(store: ConsumerStore, *keys: bytes) -> None:
    body = {"changes": [{"database": b64(b"db"), "key": b64(key), "value": None} for key in keys]}
    answer = store.http.post(f"/v1/stores/{store.id}/changes", json=body)
    assert answer.status_code == 200, answer.text


def test_what_was_reviewed_goes_and_the_result_shows_it(store: ConsumerStore) -> None:
    reviewed = plan(store)
    assert (reviewed["records"], reviewed["limits"]["exceeded"]) == (10, [])
    result = result_of(store, execute(store, reviewed["plan_id"], max_drift=0))
    assert (result["planned"], result["records"]) == ({"records": 10}, 10)
    assert (result["plan_id"], result["fewer_than_planned"]) == (reviewed["plan_id"], 0)
    assert list(entries(store)) == ["a000000"]


@pytest.mark.parametrize("prefix", ["k1", "k"], ids=["new", "rewritten"])
def test_a_record_that_was_written_since_is_412_and_nothing_goes(store: ConsumerStore, prefix: str) -> None:
    """A range cannot leave it out."""
    reviewed = plan(store)
    write(store, 1, prefix=prefix, value=b"later")
    before = entries(store)
    told = problem(execute(store, reviewed["plan_id"]), 412, "PLAN_NO_LONGER_HOLDS")
    assert told["detail"].startswith("1 records came since the plan")
    assert entries(store) == before
    write(store, 1, prefix="k2")  # its keys are not extinct


def test_what_is_written_beside_the_range_is_no_matter(store: ConsumerStore) -> None:
    reviewed = plan(store)
    write(store, 3, prefix="z")
    assert result_of(store, execute(store, reviewed["plan_id"], max_drift=0))["records"] == 10
    assert sorted(entries(store)) == ["a000000", "z000000", "z000001", "z000002"]


@pytest.mark.parametrize(("max_drift", "holds"), [(2, False), (0.2, False), (3, True), (0.3, True)])
def test_fewer_records_than_max_drift_allows_are_412(
    store: ConsumerStore, max_drift: float, holds: bool
) -> None:
    reviewed = plan(store)
    removed(store, b"k000000", b"k000004", b"k000009")
    before = entries(store)
    answer = execute(store, reviewed["plan_id"], max_drift=max_drift)
    if not holds:
        told = problem(answer, 412, "PLAN_NO_LONGER_HOLDS")
        assert told["detail"].startswith("10 records were reviewed, 7 of them would go now: 3 fewer")
        assert entries(store) == before
        return
    result = result_of(store, answer)
    assert (result["planned"], result["records"], result["fewer_than_planned"]) == ({"records": 10}, 7, 3)


def test_an_outdated_or_another_plan_is_refused(make: MakeReplica, store: ConsumerStore) -> None:
    reviewed = plan(store)["plan_id"]
    for fields in ({"end_key": b64(b"m")}, {"start_key": None}, {"filter": {"prefix": b64(b"k0")}}):
        problem(execute(store, reviewed, **fields), 422, "PLAN_DIFFERS")
    problem(execute(store, f"job_{'0' * 26}"), 422, "PLAN_NOT_USABLE")
    assert pointers(problem(discard(store, max_drift=1), 422, "INVALID_REQUEST")) == {"/"}
    url = f"/v1/stores/{store.id}"
    trimming = store.http.post(
        f"{url}/purges", params={"validate_only": "true"}, json={"kind": "CHANGELOG"}
    ).json()
    problem(execute(store, trimming["plan_id"]), 422, "PLAN_NOT_USABLE")
    purge = {"kind": "CHANGELOG", "plan_id": reviewed}
    problem(store.http.post(f"{url}/purges", json=purge), 422, "PLAN_DIFFERS")
    etag = store.http.get(url).headers["etag"]
    changed = store.http.patch(url, json={"limits": {"max_rows": 100}}, headers={"If-Match": etag})
    assert changed.status_code == 200
    problem(execute(store, reviewed), 412, "PLAN_NO_LONGER_HOLDS")
    assert len(entries(store)) == 11


class Writer:
    """An application that writes one key after the other, with pauses of any length, until it is told not to.

    Attributes:
        acknowledged: how many of its keys were; the next one is the first that was not.
    """

    def __init__(self, store: ConsumerStore, seed: int) -> None:
        self.store, self.dice = store, random.Random(seed)
        self.acknowledged = 0
        self.stop = threading.Event()

    def run(self) -> str:
        """The code of what ended it."""
        while not self.stop.is_set():
            key = f"k{self.acknowledged:06}".encode()
            change = {"database": b64(b"db"), "key": b64(key), "value": b64(b"x")}
            answer = self.store.http.post(f"/v1/stores/{self.store.id}/changes", json=change)
            if answer.status_code != 200:
                return str(answer.json()["code"])
            self.acknowledged += 1
            time.sleep(self.dice.choice([0.0, 0.0, 0.05, 0.4]))
        return ""


@pytest.fixture
def writer(make: MakeReplica) -> Iterator[Writer]:
    found = Writer(make(), seed=7)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(found.run)
        while not found.acknowledged:
            time.sleep(0.01)
        yield found
        found.stop.set()
        assert ended.result() in ("", "KEY_EXTINCT")


def test_beside_a_writer_nothing_acknowledged_goes_unreviewed(writer: Writer) -> None:
    refused = 0
    for _ in range(40):
        reviewed = plan(writer.store)
        answer = execute(writer.store, reviewed["plan_id"], max_drift=0)
        if answer.status_code == 202:
            result = result_of(writer.store, answer)
            assert result["records"] == reviewed["records"] == writer.acknowledged
            assert result["planned"] == {"records": reviewed["records"]}
            return
        problem(answer, 412, "PLAN_NO_LONGER_HOLDS")
        refused += 1
    raise AssertionError(f"{refused} plans in a row, and each time something was written")


def _environment(directory: Path, *keys: bytes) -> Path:
    directory.mkdir()
    environment = Environment(directory, file_bytes_max=6_000, created_ms=1_795_163_000_000)
    environment.create("users")
    for key in keys:
        environment.put(None, "users", key, b"v" * 100)
    environment.checkpoint()
    environment.close()
    return directory


@pytest.fixture
def je(http: httpx.Client, roots: Path, tmp_path: Path) -> EnvironmentStore:
    sample = _environment(tmp_path / "je", *(b"k%02d" % number for number in range(10)))
    return make_environment_store(http, roots, sample, extinction_filter="INSTALLED")


def _become(store: EnvironmentStore, sample: Path) -> None:
    """What the application has made of its log by now."""
    for name in store.names:
        (store.directory / name).unlink()
    for file in sample.glob("*.jdb"):
        shutil.copy(file, store.directory)


@pytest.mark.parametrize(
    ("now", "max_drift", "code"),
    [
        (range(7), 3, None),
        (range(3, 11), 9, "1 records came since the plan"),
    ],
)
def test_a_je_environment_has_the_reviewed_keys_and_no_others(
    je: EnvironmentStore, tmp_path: Path, now: range, max_drift: int, code: str | None
) -> None:
    body = {"databases": ["users"], "label": "old", "confirm_keys_never_reused": True}
    answer = je.http.post(
        f"{je.url}/extinctions?validate_only=true", json=body, headers={"Prefer": "wait=60"}
    )
    assert (answer.status_code, answer.json()["records"]) == (200, 10), answer.text
    _become(je, _environment(tmp_path / "later", *(b"k%02d" % number for number in now)))
    asked = body | {"plan_id": answer.json()["plan_id"], "max_drift": max_drift}
    acted = je.post("extinctions", asked)
    if code is not None:
        assert problem(acted, 412, "PLAN_NO_LONGER_HOLDS")["detail"].startswith(code)
        assert je.http.get(f"{je.url}/extinctions").json()["items"] == []
        return
    result = result_of(je, acted)
    assert (result["planned"], result["records"]) == ({"records": 10}, len(now))
    assert result["fewer_than_planned"] == 10 - len(now)
