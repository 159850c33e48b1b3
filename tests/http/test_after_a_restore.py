"""What was promised, ended or read after the backup that the metadata was restored from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client import Lethe

from app.keeping.backup import back_up
from app.keeping.restore import restore
from app.settings import Settings
from spark.targets.files.control_file import ControlFile
from tests.http.environments import write_small
from tests.journeys.crashes import build_large
from tests.journeys.ground import add_store, purge_request
from tests.journeys.service import Service, await_job, serving, until
from tests.oracles.symmetricds import Place, snapshot

LEASE_S = 30


def _api(service: Service) -> httpx.Client:
    return httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, timeout=30
    )


def _restored(backup: Path, data_dir: Path) -> Path:
    restore(Settings(data_dir=data_dir), backup, lambda _text: None)
    return data_dir


def _patch(http: httpx.Client, path: str, tag: str, body: dict[str, Any]) -> httpx.Response:
    return http.patch(path, json=body, headers={"If-Match": tag})


def test_tag_that_was_read_after_the_backup_changes_nothing_after_the_restore(tmp_path: Path) -> None:
    backup, path = tmp_path / "backup", "/v1/stores/shop"
    with serving(tmp_path / "former") as service, _api(service) as http:
        made = http.post("/v1/stores", json={"id": "shop", "kind": "SYMMETRICDS", "url": "sqlite:////n/s.db"})
        assert made.status_code == 201, made.text
        back_up(Settings(data_dir=service.data_dir), backup, print)
        read = _patch(http, path, made.headers["ETag"], {"labels": {"owner": "first"}})
        assert read.status_code == 200, read.text
    with serving(_restored(backup, tmp_path / "later")) as service, _api(service) as http:
        other = _patch(http, path, http.get(path).headers["ETag"], {"labels": {"owner": "second"}})
        assert other.status_code == 200, other.text
        late = _patch(http, path, read.headers["ETag"], {"labels": {"owner": "third"}})
        assert late.status_code == 412, late.text
        assert http.get(path).json()["labels"] == {"owner": "second"}


def test_session_of_the_console_that_was_signed_out_stays_so(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with serving(tmp_path / "former") as service, httpx.Client(base_url=service.url, timeout=30) as browser:
        here = {"Origin": service.url}
        answer = browser.post("/console/login", data={"token": service.token}, headers=here)
        assert answer.status_code == 303, answer.text
        cookie = browser.cookies["lethe_console"]
        back_up(Settings(data_dir=service.data_dir), backup, print)
        page = browser.get("/console/").text
        mark = page.split('name="csrf" value="')[1].split('"')[0]
        assert browser.post("/console/logout", data={"csrf": mark}, headers=here).status_code == 303
        stolen = httpx.get(f"{service.url}/console/", cookies={"lethe_console": cookie}, timeout=30)
        assert stolen.status_code == 303, "it was signed out"
    with serving(_restored(backup, tmp_path / "later")) as service:
        stolen = httpx.get(f"{service.url}/console/", cookies={"lethe_console": cookie}, timeout=30)
        assert stolen.status_code == 303
        assert "/console/login" in stolen.headers["location"]


def test_lease_that_was_renewed_after_the_backup_holds_over_the_restore(tmp_path: Path) -> None:
    backup, directory = tmp_path / "backup", write_small(tmp_path / "env")
    with serving(tmp_path / "former") as service, _api(service) as http:
        assert (
            http.post("/v1/stores", json={"id": "je", "kind": "JE", "path": str(directory)}).status_code
            == 201
        )
        begun = http.post("/v1/stores/je/backup-sessions", json={"lease": f"PT{LEASE_S}S"})
        assert begun.status_code == 201, begun.text
        begun_s = time.monotonic()
        session = f"/v1/stores/je/backup-sessions/{begun.json()['id']}"
        back_up(Settings(data_dir=service.data_dir), backup, print)
        renewed = http.post(f"{session}:renew", json={"lease": "PT10M"})
        assert renewed.status_code == 200, renewed.text
    time.sleep(max(0.0, begun_s + LEASE_S + 2 - time.monotonic()))
    with serving(_restored(backup, tmp_path / "later")) as service, _api(service) as http:
        time.sleep(2)
        with ControlFile.open(directory, create=False) as control:
            assert control.read().ranges, "whoever has the lease still copies these files"
        ended = http.post(f"{session}:end")
        assert (ended.status_code, ended.json().get("valid")) == (200, True), ended.text


@contextmanager
def _serving_two(tmp_path: Path, place: Place, *, rows: int) -> Iterator[Service]:
    """The service of before, with the stores `shop` and `calm`."""
    build_large(place, 12, rows=rows)
    calm = Place(f"sqlite:///{tmp_path}/calm.db")
    build_large(calm, 13, rows=20)
    with serving(tmp_path / "former") as service:
        add_store(service.client, "shop", place)
        add_store(service.client, "calm", calm)
        yield service


def _aborted_after_the_backup(tmp_path: Path, place: Place, *, is_running: bool) -> str:
    """A purge that had not ended in the backup; the copy lies in `backup`."""
    with _serving_two(tmp_path, place, rows=400) as service:
        client = service.client
        job_id = client.purges.create("shop", purge_request(place, max_rows_in_tx=20, rows_per_s=60)).id
        until(lambda: (client.jobs.get(job_id).progress.done or 0) > 0)
        if not is_running:
            client.stores.suspend("shop", reason="a look")
            await_job(client, job_id, "WAITING")
        back_up(Settings(data_dir=service.data_dir), tmp_path / "backup", print)
        client.jobs.abort(job_id)
        assert await_job(client, job_id).state == "ABORTED"
    return job_id


def test_running_job_that_was_aborted_after_the_backup_ends_by_its_fence(tmp_path: Path) -> None:
    """It took the token that the proof of its abort had left, went on, and removed what the abort spared."""
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    job_id = _aborted_after_the_backup(tmp_path, place, is_running=True)
    spared = snapshot(place)
    with serving(_restored(tmp_path / "backup", tmp_path / "later")) as service:
        job = await_job(service.client, job_id)
        assert (job.state, job.error and job.error.code) == ("FAILED", "EPOCH_AHEAD")
        assert snapshot(place) == spared


def test_waiting_job_that_was_aborted_after_the_backup_waits_for_a_word(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    job_id = _aborted_after_the_backup(tmp_path, place, is_running=False)
    spared = snapshot(place)
    with serving(_restored(tmp_path / "backup", tmp_path / "later")) as service:
        client = service.client
        client.stores.resume("shop")
        assert await_job(client, job_id, "PAUSED").state == "PAUSED"
        time.sleep(1)
        assert snapshot(place) == spared
        with _api(service) as http:
            [noted] = http.get("/v1/audit-events", params={"action": "metadata.restore"}).json()["items"]
        assert noted["detail"]["paused_jobs"] == 1


def test_files_that_were_promised_after_the_backup_are_given_back_by_a_recovery(tmp_path: Path) -> None:
    """Their range stood in the control file for good: no row was there that anybody could end."""
    directory = write_small(tmp_path / "env")
    with serving(tmp_path / "former") as service, _api(service) as http:
        made = http.post("/v1/stores", json={"id": "je", "kind": "JE", "path": str(directory)})
        assert made.status_code == 201, made.text
        back_up(Settings(data_dir=service.data_dir), tmp_path / "backup", print)
        begun = http.post("/v1/stores/je/backup-sessions", json={"lease": "PT10M"})
        assert begun.status_code == 201, begun.text
    with serving(_restored(tmp_path / "backup", tmp_path / "later")) as service, _api(service) as http:
        ended = http.post(f"/v1/stores/je/backup-sessions/{begun.json()['id']}:end")
        assert ended.status_code == 404, ended.text
        for _ in range(2):  # the second finds nothing new
            service.client.stores.recover("je")
        [found] = http.get("/v1/stores/je/protections").json()["items"]
        assert (found["id"], found["state"]) == (begun.json()["protection_id"], "ACTIVE")
        assert _ranges(directory), "who was promised them may still copy"
        assert http.post(f"/v1/stores/je/protections/{found['id']}:end").status_code == 200
        assert not _ranges(directory)


def _ranges(directory: Path) -> object:
    with ControlFile.open(directory, create=False) as control:
        return control.read().ranges


def _worked_on_after_the_backup(tmp_path: Path, place: Place) -> None:
    """The fence of the store is ahead of the copy in `backup`, by few."""
    with _serving_two(tmp_path, place, rows=20) as service:
        back_up(Settings(data_dir=service.data_dir), tmp_path / "backup", print)
        _purge(service.client, "shop", place)


def _purge(client: Lethe, store: str, place: Place) -> None:
    job_id = client.purges.create(store, purge_request(place)).id
    assert await_job(client, job_id).state == "SUCCEEDED"


@pytest.mark.parametrize("is_there", [True, False])
def test_store_that_is_ahead_rests_until_it_is_recovered_however_far_we_come(
    tmp_path: Path, *, is_there: bool
) -> None:
    """Jobs of other stores lifted the epoch above its fence: it was worked on as if nothing were lost."""
    place, calm = (Place(f"sqlite:///{tmp_path}/{name}.db") for name in ("shop", "calm"))
    _worked_on_after_the_backup(tmp_path, place)
    if not is_there:
        (tmp_path / "shop.db").rename(tmp_path / "away.db")
    with serving(_restored(tmp_path / "backup", tmp_path / "later")) as service:
        client = service.client
        if not is_there:
            (tmp_path / "away.db").rename(tmp_path / "shop.db")
        for _ in range(4):
            _purge(client, "calm", calm)
        job_id = client.purges.create("shop", purge_request(place)).id
        shown = await_job(client, job_id, "WAITING").raw["waiting_on"]
        assert [each["kind"] for each in shown] == ["STORE_SUSPENDED"]
        rest = client.stores.get("shop").raw["suspended"]
        assert (rest["until"], rest["reason"].endswith("`lethe recover shop`")) == (None, True)
        assert ("could not be asked" in rest["reason"]) != is_there, rest
        assert client.stores.get("calm").raw["suspended"] is None
        client.stores.recover("shop")
        assert client.stores.get("shop").raw["suspended"] is None
        assert await_job(client, job_id).state == "SUCCEEDED"


def test_rest_that_somebody_else_wanted_outlives_the_recovery(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    _worked_on_after_the_backup(tmp_path, place)
    with serving(_restored(tmp_path / "backup", tmp_path / "later")) as service:
        client = service.client
        client.stores.suspend("shop", reason="a look")
        client.stores.recover("shop")
        assert client.stores.get("shop").raw["suspended"]["reason"] == "a look"
