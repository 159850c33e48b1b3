"""`/v1/secrets`: an admin's word on what may be read and shown to whom; never a value."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_databases import PG_CLEAR, asking_postgresql
from tests.http.conftest import SECRET
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.supplying import SECRETS

_numbers = itertools.count(1)
MakeToken = Callable[..., str]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata: the rows are the same on both, as tests/app/secrets has it."""
    return sqlite_service


@pytest.fixture
def name() -> str:
    return f"secret-{os.getpid()}-{next(_numbers)}"


def body_of(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "reference": "env:LETHE_SECRET_SHOP",
        "stores": [name],
        "hosts": ["127.0.0.1"],
    } | fields


def store_of(name: str, *, port: int = 1, host: str = "127.0.0.1", **fields: Any) -> dict[str, Any]:
    url = f"postgresql+psycopg://eve@{host}:{port}/shop"
    return {"id": name, "kind": "SYMMETRICDS", "url": url, "password": f"secret:{name}"} | fields


@pytest.fixture
def limited(service: ServiceProcess, make_token: MakeToken, name: str) -> Iterator[httpx.Client]:
    """An admin of one store, and of one that nobody has registered."""
    with service.http(make_token("admin", stores=[name, f"{name}-own"])) as client:
        yield client


def test_secret_from_registration_to_removal(http: httpx.Client, name: str) -> None:
    made = http.post("/v1/secrets", json=body_of(name))
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/v1/secrets/{name}"
    one = http.get(f"/v1/secrets/{name}")
    assert one.json() == made.json()
    assert one.json()["problem"] is None
    still = http.get(f"/v1/secrets/{name}", headers={"If-None-Match": one.headers["etag"]})
    assert still.status_code == 304
    assert name in [
        each["name"] for each in http.get("/v1/secrets", params={"page_size": 100}).json()["items"]
    ]
    path, lost = f"/v1/secrets/{name}", {"reference": "env:LETHE_SECRET_NOWHERE"}
    problem(http.patch(path, json=lost), 428, "PRECONDITION_MISSING")
    changed = http.patch(path, json=lost, headers={"If-Match": one.headers["etag"]})
    assert "LETHE_SECRET_NOWHERE is not set" in changed.json()["problem"]
    problem(http.patch(path, json=lost, headers={"If-Match": one.headers["etag"]}), 412, "ETAG_MISMATCH")
    problem(http.post("/v1/secrets", json=body_of(name)), 409, "SECRET_EXISTS")
    assert http.post("/v1/stores", json=store_of(name)).status_code == 201
    used = problem(http.delete(path, headers={"If-Match": "*"}), 409, "SECRET_IN_USE")
    assert f"the store {name}" in used["detail"]
    assert http.delete(f"/v1/stores/{name}", headers={"If-Match": "*"}).status_code == 204
    assert http.delete(path, headers={"If-Match": "*"}).status_code == 204
    problem(http.get(path), 404, "SECRET_NOT_FOUND")
    rows = http.get("/v1/audit-events", params={"subject_id": name}).json()["items"]
    assert {"secret.create", "secret.change", "secret.remove"} <= {row["action"] for row in rows}
    assert http.post("/v1/secrets", json=body_of(name)).status_code == 201
    anew = http.get(path, headers={"If-None-Match": one.headers["etag"]})
    assert anew.status_code == 200, "the etag of one that was removed"
    for answer in (made, one, changed, anew):
        assert SECRET not in answer.text
    assert SECRET not in json.dumps(rows)


def test_only_an_unlimited_admin_touches_secrets(
    http: httpx.Client,
    service: ServiceProcess,
    limited: httpx.Client,
    make_token: MakeToken,
    metadata: MetadataRows,
    name: str,
) -> None:
    assert http.post("/v1/secrets", json=body_of(name)).status_code == 201
    with service.http(make_token("stores:write", "stores:read")) as writer:
        for caller, code in ((limited, "TOKEN_LIMITED_TO_STORES"), (writer, "SCOPE_MISSING")):
            with metadata.unchanged():
                for answer in (
                    caller.post("/v1/secrets", json=body_of(f"{name}-own")),
                    caller.get("/v1/secrets"),
                    caller.get(f"/v1/secrets/{name}"),
                    caller.patch(f"/v1/secrets/{name}", json={"stores": ["x"]}, headers={"If-Match": "*"}),
                    caller.delete(f"/v1/secrets/{name}", headers={"If-Match": "*"}),
                ):
                    problem(answer, 403, code)


def test_limited_token_uses_its_own_stores_secret_and_no_other(
    http: httpx.Client, limited: httpx.Client, metadata: MetadataRows, name: str
) -> None:
    assert http.post("/v1/secrets", json=body_of(name)).status_code == 201
    assert http.post("/v1/secrets", json=body_of(f"{name}-x")).status_code == 201
    labels = {"zone": name}
    assert http.post("/v1/secrets", json=body_of(f"{name}-l", stores=[], labels=labels)).status_code == 201
    with metadata.unchanged():
        other = store_of(f"{name}-own", password=f"secret:{name}-x")
        problem(limited.post("/v1/stores", json=other), 422, "SECRET_NOT_ALLOWED")
        by_label = store_of(f"{name}-own", password=f"secret:{name}-l", labels=labels)
        problem(limited.post("/v1/stores", json=by_label), 403, "STORE_FORBIDDEN")
        elsewhere = store_of(name, host="localhost")
        problem(limited.post("/v1/stores", json=elsewhere), 422, "HOST_NOT_ALLOWED")
    assert limited.post("/v1/stores", json=store_of(name)).status_code == 201
    assert http.post("/v1/stores", json=by_label).status_code == 201
    plain = {"labels": {"zone": "other"}}
    with metadata.unchanged():
        wrong = limited.patch(f"/v1/stores/{name}-own", json=plain, headers={"If-Match": "*"})
        problem(wrong, 422, "SECRET_NOT_ALLOWED")


@pytest.mark.parametrize(
    "reference", ["file:{data}/admin.token", "file:/etc/shadow", "env:PATH", "env:LETHE_X"]
)
def test_writer_of_stores_learns_no_secret_of_the_service(
    http: httpx.Client,
    service: ServiceProcess,
    make_token: MakeToken,
    metadata: MetadataRows,
    name: str,
    reference: str,
) -> None:
    """A store whose password is the admin's token, at a server that asks for it, made a writer admin."""
    place = reference.format(data=service.directory)
    with (
        asking_postgresql(PG_CLEAR) as heard,
        service.http(make_token("stores:write", "stores:read")) as writer,
    ):
        with metadata.unchanged():
            asked = store_of(name, port=heard.port, password=place)
            found = problem(writer.post("/v1/stores", json=asked), 422, "INVALID_REQUEST")
            assert pointers(found) == {"/password"}
            assert "lethe secret add" in str(found)
            body = body_of(name, reference=place)
            assert http.post("/v1/secrets", json=body).status_code == 422
        assert http.post("/v1/secrets", json=body_of(name)).status_code == 201
        assert writer.post("/v1/stores", json=store_of(name, port=heard.port)).status_code == 201
        check = writer.post(f"/v1/stores/{name}:check").json()
        assert {item["code"] for item in check["findings"]} == {"TARGET_AUTH_FAILED"}
    assert heard.connections >= 1
    for secret in (service.token, SECRET, os.environ["PATH"]):
        assert secret.encode() not in heard.bytes


def test_command_registers_changes_and_removes(
    service: ServiceProcess, roots: Path, tmp_path: Path, name: str
) -> None:
    (roots / SECRETS / name).write_text("hunter2")
    (roots / SECRETS / name).chmod(0o600)
    token = tmp_path / "token"
    token.write_text(service.token)

    def lethe(*arguments: str) -> dict[str, Any]:
        access = ["--url", service.url, "--token-file", str(token), "--json"]
        done = run_to_end(["secret", *arguments, *access])
        assert done.returncode == 0, done.stderr
        assert "hunter2" not in done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    made = lethe("add", name, "--reference", f"file:{name}", "--store", name, "--host", "127.0.0.1:5432")
    assert (made["problem"], made["hosts"], made["clear_text_on_loopback"]) == (
        None,
        ["127.0.0.1:5432"],
        False,
    )
    changed = lethe("update", name, "--host", "10.0.0.0/8", "--clear-text-on-loopback")
    assert (changed["hosts"], changed["stores"]) == (["10.0.0.0/8"], [name])
    assert changed["clear_text_on_loopback"] is True
    assert lethe("show", name) == changed
    assert changed in lethe("list")["items"]
    assert lethe("remove", name)["removed"] is True
