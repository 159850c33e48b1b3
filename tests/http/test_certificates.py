"""Certificates over HTTP: made once, the same bytes for ever, checked without the service; and `:verify`."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client.certificates import verify_certificate

from app.cli.main import main
from spark.formats.je.log import LN_TYPES, file_name, lsn_file, lsn_offset
from tests.http.conftest import assert_quiet_log
from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.je_data import unpack
from tests.spark.erase.damage import in_use, zero_out

JOB_MAX_S = 60.0
EVERYTHING = {"min_file_age": "PT0S", "duration": "PT0S", "reason": "test of certificates"}
NOBODY = "cyc_" + "0" * 26


@dataclass(frozen=True)
class Ended:
    """An environment after a cycle that has ended."""

    store: EnvironmentStore
    cycle: str
    job: dict[str, Any]

    @property
    def url(self) -> str:
        return f"{self.store.url}/erasure-cycles/{self.cycle}"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("closed", tmp_path_factory.mktemp("je") / "closed")


@pytest.fixture(scope="module")
def service(roots: Path, settings: dict[str, str]) -> Iterator[ServiceProcess]:
    """A service of this file's own, since it is started again."""
    service = ServiceProcess(roots / "certificates", settings=settings).start()
    yield service
    assert service.stop() == 0
    assert_quiet_log(service)


@pytest.fixture(scope="module")
def module_http(service: ServiceProcess) -> Iterator[httpx.Client]:
    with service.http() as client:
        yield client


@pytest.fixture(scope="module")
def ended(module_http: httpx.Client, roots: Path, sample: Path) -> Ended:
    """One cycle for all tests: each costs seconds."""
    store = make_environment_store(module_http, roots, sample)
    return erased(module_http, store)


def waited(http: httpx.Client, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + JOB_MAX_S
    while time.monotonic() < deadline:
        job: dict[str, Any] = http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=10"}).json()
        if job["finished_at"] is not None:
            return job
        time.sleep(0.1)
    raise AssertionError(f"{job['state']}: {job['waiting_on']}")


def erased(http: httpx.Client, store: EnvironmentStore, **body: Any) -> Ended:
    answer = store.post("erasure-cycles", EVERYTHING | body)
    assert answer.status_code == 202, answer.text
    job = waited(http, answer.json()["id"])
    assert job["state"] == "SUCCEEDED", job
    return Ended(store, job["subject"]["id"], job)


def aborted(http: httpx.Client, roots: Path, sample: Path) -> Ended:
    """A cycle that somebody has ended before it did anything."""
    store = make_environment_store(http, roots, sample)
    suspended = http.post(f"{store.url}:suspend", json={"reason": "not yet"})
    assert suspended.status_code == 200, suspended.text
    job = store.post("erasure-cycles", EVERYTHING).json()
    problem(http.get(f"{store.url}/erasure-cycles/current/certificate"), 409, "CYCLE_NOT_ENDED")
    assert http.post(f"/v1/jobs/{job['id']}:abort").status_code in (200, 202)
    return Ended(store, job["subject"]["id"], waited(http, job["id"]))


def verified(http: httpx.Client, ended: Ended, **body: Any) -> dict[str, Any]:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    answer = http.post(f"{ended.url}:verify", json=body, headers=key)
    assert answer.status_code == 202, answer.text
    again = http.post(f"{ended.url}:verify", json=body, headers=key)
    assert again.json()["id"] == answer.json()["id"]
    assert answer.headers["Location"] == f"/v1/jobs/{answer.json()['id']}"
    return waited(http, answer.json()["id"])


# -- the document


def test_certificate_says_what_was_erased_and_verifies(module_http: httpx.Client, ended: Ended) -> None:
    answer = module_http.get(f"{ended.url}/certificate")
    assert answer.status_code == 200, answer.text
    keys = frozenset(key["id"] for key in module_http.get("/v1/signing-keys").json()["items"])
    found = verify_certificate(answer.content, trusted=keys)
    assert found.is_pinned
    said = found.certificate
    assert (said["store"], said["cycle"]["id"]) == (ended.store.id, ended.cycle)
    assert (said["cycle"]["state"], said["cycle"]["reason"]) == ("COMPLETE", "test of certificates")
    totals = said["totals"]
    assert (totals["files_erased_and_proved"], totals["entries_erased_and_proved"]) == (3, 8725)
    assert sum(entries for entries, _ in totals["erased_and_proved_by_reason"].values()) == 8725
    erased_files = [file for file in said["files"] if file["state"] == "ERASED"]
    for file in erased_files:
        assert file["proved"]
        assert file["sha256_before"] != file["sha256_after"] == file["sha256_expected"]
        assert file["entries_planned"] == file["entries_proved_erased"]
        assert len(file["fsync_times"]) == file["fsyncs"] >= 3
        assert file["read_for_the_proof_by"] in ("O_DIRECT", "DROPPED_PAGES")
    assert said["environment"]["path"] == str(ended.store.directory)
    assert said["environment"]["medium"]["file_system"]
    codes = [each["code"] for each in said["stays_readable"]]
    assert {"EMBEDDED_IN_LIVE_NODES", "ABORT_DATA", "TAIL_OF_LOG", "COPIES_ELSEWHERE"} <= set(codes)
    assert said["protections"] == {"count": 0, "met": [], "files_held_at_the_end": []}


def test_command_checks_a_real_certificate_and_the_files(
    service: ServiceProcess, module_http: httpx.Client, ended: Ended, tmp_path: Path
) -> None:
    file = tmp_path / "certificate.json"
    access = ["--url", service.url, "--data-dir", str(service.data_dir)]
    assert main(["certificate", "get", ended.store.id, ended.cycle, "-o", str(file), *access]) == 0
    assert file.read_bytes() == module_http.get(f"{ended.url}/certificate").content
    assert main(["certificate", "keys", *access]) == 0
    [key] = module_http.get("/v1/signing-keys").json()["items"]
    check = ["certificate", "verify", str(file), "--fingerprint", key["id"]]
    assert main([*check, "--directory", str(ended.store.directory)]) == 0
    other = tmp_path / "other"
    shutil.copytree(ended.store.directory, other)
    (other / "00000000.jdb").write_bytes(b"\0")
    assert main([*check, "--directory", str(other)]) == 1


def test_certificate_is_the_same_bytes_for_ever(module_http: httpx.Client, ended: Ended) -> None:
    first = module_http.get(f"{ended.url}/certificate")
    (ended.store.directory / "je.info.0").touch()  # what the environment tells is of the first time
    second = module_http.get(f"{ended.store.url}/erasure-cycles/current/certificate")
    assert first.content == second.content
    assert first.headers["ETag"] == second.headers["ETag"]
    assert ended.cycle in first.headers["Content-Disposition"]
    tags = [first.headers["ETag"], f'"x", {first.headers["ETag"]}', "*"]
    for tag in tags:
        answer = module_http.get(f"{ended.url}/certificate", headers={"If-None-Match": tag})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["ETag"] == first.headers["ETag"]
    other = module_http.get(f"{ended.url}/certificate", headers={"If-None-Match": '"1"'})
    assert other.status_code == 200


def test_aborted_cycle_has_a_certificate_and_one_at_work_has_none(
    module_http: httpx.Client, roots: Path, sample: Path
) -> None:
    ended = aborted(module_http, roots, sample)
    answer = module_http.get(f"{ended.url}/certificate")
    assert answer.status_code == 200, answer.text
    said = verify_certificate(answer.content).certificate
    assert (said["cycle"]["state"], said["plan"], said["files"]) == ("ABORTED", None, [])
    assert said["cycle"]["ended_at"] is not None


def test_restarted_service_gives_the_same_bytes_also_of_a_store_that_is_gone(
    service: ServiceProcess, module_http: httpx.Client, roots: Path, sample: Path, ended: Ended
) -> None:
    gone = aborted(module_http, roots, sample)
    later = aborted(module_http, roots, sample)
    urls = [f"{ended.url}/certificate", f"{gone.url}/certificate"]
    first = [module_http.get(url) for url in urls]
    keys = module_http.get("/v1/signing-keys").json()["items"]
    for store in (gone.store, later.store):
        tag = module_http.get(store.url).headers["ETag"]
        assert module_http.delete(store.url, headers={"If-Match": tag}).status_code == 204
    assert service.stop() == 0
    service.start()
    again = [module_http.get(url) for url in urls]
    assert [each.content for each in again] == [each.content for each in first]
    assert [each.headers["ETag"] for each in again] == [each.headers["ETag"] for each in first]
    assert module_http.get("/v1/signing-keys").json()["items"] == keys
    said = verify_certificate(module_http.get(f"{later.url}/certificate").content).certificate
    assert said["environment"]["unreadable"] == "the store has been removed"
    assert said["environment"]["path"] == str(later.store.directory)
    key = service.data_dir / "signing" / "key"
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)


# -- keys


def test_replaced_key_signs_no_more_and_what_it_signed_holds(
    module_http: httpx.Client, roots: Path, sample: Path, ended: Ended
) -> None:
    old = module_http.get(f"{ended.url}/certificate").content
    old_id = json.loads(old)["signature"]["key_id"]
    key = {"Idempotency-Key": "rotate-once"}
    rotated = module_http.post("/v1/signing-keys:rotate", headers=key)
    assert rotated.status_code == 200, rotated.text
    new_id = rotated.json()["id"]
    this_one = module_http.get("/v1/instances").json()["items"][0]["id"]
    again = module_http.post("/v1/signing-keys:rotate", headers=key)
    assert (again.json()["id"], again.headers["Idempotency-Replayed"]) == (new_id, "true")
    shown = module_http.get(f"/v1/signing-keys/{old_id}").json()
    assert shown["retired_at"] is not None
    assert (shown["instance"], rotated.json()["instance"]) == (this_one, this_one)
    assert module_http.get(f"/v1/signing-keys/{new_id}").json()["retired_at"] is None
    assert verify_certificate(old, trusted=frozenset({old_id})).key_id == old_id
    fresh = aborted(module_http, roots, sample)
    made = module_http.get(f"{fresh.url}/certificate").content
    assert verify_certificate(made, trusted=frozenset({new_id})).key_id == new_id
    pages = module_http.get("/v1/signing-keys", params={"page_size": 1}).json()
    assert (len(pages["items"]), bool(pages["next_page_token"])) == (1, True)
    audit = module_http.get("/v1/audit-events", params={"page_size": 100}).json()["items"]
    assert any(each["action"] == "signing-key.rotate" for each in audit)


def test_only_an_admin_replaces_the_key_and_others_see_their_stores(
    service: ServiceProcess, ended: Ended, make_token: Callable[..., str]
) -> None:
    with service.http(make_token("jobs:read")) as reader:
        assert reader.get("/v1/signing-keys").status_code == 200
        assert reader.get(f"{ended.url}/certificate").status_code == 200
        problem(reader.post("/v1/signing-keys:rotate"), 403, "SCOPE_MISSING")
    with service.http(make_token("stores:read")) as other:
        problem(other.get(f"{ended.url}/certificate"), 403, "SCOPE_MISSING")
        problem(other.get("/v1/signing-keys"), 403, "SCOPE_MISSING")
        problem(other.post(f"{ended.url}:verify"), 403, "SCOPE_MISSING")
    with service.http(make_token("jobs:read", stores=["elsewhere"])) as limited:
        for answer in (limited.get(f"{ended.url}/certificate"), limited.post(f"{ended.url}:verify")):
            assert answer.status_code in (403, 404), answer.text
        elsewhere = limited.get(f"/v1/stores/elsewhere/erasure-cycles/{ended.cycle}/certificate")
        problem(elsewhere, 404, "CYCLE_NOT_FOUND")


def test_names_that_are_none_are_refused(module_http: httpx.Client, ended: Ended) -> None:
    cycles = f"{ended.store.url}/erasure-cycles"
    problem(module_http.get(f"{cycles}/{NOBODY}/certificate"), 404, "CYCLE_NOT_FOUND")
    problem(module_http.post(f"{cycles}/{NOBODY}:verify"), 404, "CYCLE_NOT_FOUND")
    problem(module_http.get(f"{cycles}/nonsense/certificate"), 404, "CYCLE_NOT_FOUND")
    problem(module_http.get("/v1/signing-keys/nonsense"), 404, "KEY_NOT_FOUND")
    problem(module_http.get(f"/v1/signing-keys/ed25519:{'0' * 64}"), 404, "SIGNING_KEY_NOT_FOUND")
    problem(module_http.get("/v1/stores/nobody/erasure-cycles/current/certificate"), 404, "CYCLE_NOT_FOUND")
    problem(module_http.post(f"{ended.url}:verify", json={"engine": "HANDS"}), 422, "INVALID_REQUEST")


# -- the environment read again


def test_verification_passes_then_finds_a_live_record_that_is_erased(
    module_http: httpx.Client, ended: Ended
) -> None:
    job = verified(module_http, ended)
    assert (job["state"], job["kind"], job["error"]) == ("SUCCEEDED", "ERASURE_VERIFY", None)
    result = job["result"]
    assert (result["verified"], result["faults"], result["files_as_proved"]) == (True, [], 3)
    assert result["erased_entries"] == 8725
    assert job["subject"]["id"] == ended.cycle
    lsn = in_use(ended.store.directory, frozenset(LN_TYPES))[0]
    name = file_name(lsn_file(lsn))
    before = (ended.store.directory / name).read_bytes()
    zero_out(ended.store.directory, lsn)
    job = verified(module_http, ended, engine="INLINE")
    (ended.store.directory / name).write_bytes(before)
    assert (job["state"], job["error"]["code"]) == ("FAILED", "VERIFICATION_FAILED")
    assert name in job["error"]["detail"]
    faults = job["result"]["faults"]
    assert [(each["code"], each["file"], each["offset"]) for each in faults] == [
        ("ERASED_ENTRY_IN_USE", name, lsn_offset(lsn)),
        ("BYTES_DIFFER", name, None),
    ]


@pytest.mark.long
def test_verification_explains_a_second_cycle_and_fails_without_a_directory(
    module_http: httpx.Client, roots: Path, sample: Path
) -> None:
    store = make_environment_store(module_http, roots, sample)
    first = erased(module_http, store, kinds=["DELETED_DATABASES"])
    second = erased(module_http, store)
    job = verified(module_http, first)
    assert job["state"] == "SUCCEEDED", job["error"]
    assert {each["code"] for each in job["result"]["explained"]} == {"ERASED_AGAIN"}
    assert second.cycle in job["result"]["explained"][0]["detail"]
    store.directory.rename(store.directory.with_suffix(".away"))
    job = verified(module_http, second)
    assert job["error"]["code"] in ("NOT_AN_ENVIRONMENT", "ENVIRONMENT_UNREADABLE")
    assert job["result"] is None
