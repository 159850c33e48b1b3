"""Targets that refuse, lack something or may not be named, and secrets that must not be seen."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.http.conftest import SECRET
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.supplying import SECRETS, registered
from tests.http.targets import CUTOFF, REMOVED_3X, STRANDED_3X, digest_postgresql
from tests.oracles.symmetricds import Place, build
from tests.oracles.symmetricds_rows import read_reference
from tests.postgresql_server import GUARDED_ROLE, PostgresqlServer, scratch_directory

_numbers = itertools.count(1)
MakeShop = Callable[..., Shop]
MakeStore = Callable[..., str]


@pytest.fixture(scope="module")
def guarded_server(postgresql_binaries: Path) -> Iterator[PostgresqlServer]:
    """A server that asks one role for its password, with the reference rows in schema `shop`."""
    with scratch_directory() as directory:
        server = PostgresqlServer(postgresql_binaries, directory, settings={"fsync": "off"})
        server.start()
        url = server.create_database("shop")
        build(Place(url, "3.x", schema="shop"), read_reference("3.x").rows)
        with psycopg.connect(server.conninfo("shop"), autocommit=True) as connection:
            for statement in (
                "create role reader login",
                "create role stranger login",
                f"create role {GUARDED_ROLE} login superuser password '{SECRET}'",
                "grant usage on schema shop to reader",
                "grant select on all tables in schema shop to reader",
            ):
                connection.execute(statement)
        yield server
        server.stop()


@pytest.fixture
def make_store(http: httpx.Client, guarded_server: PostgresqlServer) -> MakeStore:
    """Registers a store on the guarded server and returns its id."""

    def make(*, user: str = "lethe", database: str = "shop", **fields: Any) -> str:
        name = f"guarded-{os.getpid()}-{next(_numbers)}"
        url = guarded_server.url(database, user=user)
        if "password" in fields:
            fields["password"] = registered(http, fields["password"], store=name)
        body = {"id": name, "kind": "SYMMETRICDS", "url": url, "schema": "shop"} | fields
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
        return name

    return make


@pytest.fixture
def refused(
    http: httpx.Client, metadata: MetadataRows, guarded_server: PostgresqlServer
) -> Callable[..., str]:
    """Asserts that a purge is refused and that no row changed anywhere; returns the whole answer."""

    def ask(store: str, status: int, code: str) -> str:
        before = digest_postgresql(guarded_server.url("shop"))
        with metadata.unchanged():
            answer = http.post(f"/v1/stores/{store}/purges", json={"kind": "OUTGOING", "cutoff": CUTOFF})
            problem(answer, status, code)
        assert digest_postgresql(guarded_server.url("shop")) == before
        return answer.text

    return ask


def _findings(http: httpx.Client, store: str) -> tuple[dict[str, Any], set[str]]:
    answer = http.post(f"/v1/stores/{store}:check")
    assert answer.status_code == 200, answer.text
    assert SECRET not in answer.text
    return answer.json(), {item["code"] for item in answer.json()["findings"]}


def test_wrong_password_is_refused_and_told_by_nobody(
    http: httpx.Client, make_store: MakeStore, refused: Callable[..., str], service: ServiceProcess
) -> None:
    store = make_store(user=GUARDED_ROLE, password="env:LETHE_SECRET_WRONG")
    text = refused(store, 502, "TARGET_AUTH_FAILED")
    assert SECRET not in text
    found, codes = _findings(http, store)
    assert (found["ok"], found["reachable"], codes) == (False, False, {"TARGET_AUTH_FAILED"})
    assert SECRET not in service.log()


def test_missing_password_is_refused(make_store: MakeStore, refused: Callable[..., str]) -> None:
    refused(make_store(user=GUARDED_ROLE), 502, "TARGET_AUTH_FAILED")


def test_right_password_from_the_environment_or_a_file_is_used(
    http: httpx.Client, make_store: MakeStore, roots: Path
) -> None:
    file = roots / SECRETS / f"password-{next(_numbers)}"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    for reference in ("env:LETHE_SECRET_SHOP", f"file:{file}", f"file:{file.name}"):
        store = make_store(user=GUARDED_ROLE, password=reference)
        found, _codes = _findings(http, store)
        assert found["reachable"], found
        shown = http.get(f"/v1/stores/{store}")
        assert shown.json()["has_password"] is True
        assert "SECRET_SHOP" not in shown.text
        assert str(file) not in shown.text


@pytest.mark.parametrize("reference", ["env:LETHE_SECRET_NOWHERE", "file:missing"])
def test_missing_secret_is_refused_with_its_name_only(
    http: httpx.Client, make_store: MakeStore, refused: Callable[..., str], reference: str
) -> None:
    store = make_store(user=GUARDED_ROLE, password=reference)
    refused(store, 409, "SECRET_UNAVAILABLE")
    found, codes = _findings(http, store)
    assert (found["ok"], codes) == (False, {"SECRET_UNAVAILABLE"})
    problem(http.get(f"/v1/stores/{store}/purge-stats"), 409, "SECRET_UNAVAILABLE")


@pytest.mark.parametrize(
    "reference",
    [
        "hunter2",
        "env:SHOP_PASSWORD",
        "env:LETHE_SECRET_SHOP",
        "file:/etc/shadow",
        "secret:",
        "secret:A\0",
        "vault:x",
    ],
)
def test_password_that_is_no_reference_is_refused_unseen(
    http: httpx.Client, metadata: MetadataRows, guarded_server: PostgresqlServer, reference: str
) -> None:
    body = {
        "id": "bad-secret",
        "kind": "SYMMETRICDS",
        "url": guarded_server.url("shop"),
        "password": reference,
    }
    with metadata.unchanged():
        answer = http.post("/v1/stores", json=body)
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"/password"}
    assert "hunter2" not in answer.text


def test_secret_outside_of_its_folder_is_refused(http: httpx.Client, metadata: MetadataRows) -> None:
    for path, code in (
        ("/etc/passwd", "SECRET_REFERENCE_REFUSED"),
        ("/etc/../etc/shadow", "INVALID_REQUEST"),
        ("/proc/self/environ", "SECRET_REFERENCE_REFUSED"),
    ):
        body = {"name": "bad", "reference": f"file:{path}", "stores": ["shop"], "hosts": ["127.0.0.1"]}
        with metadata.unchanged():
            problem(http.post("/v1/secrets", json=body), 422, code)


def test_role_that_may_only_read_plans_but_does_not_purge(
    http: httpx.Client, make_store: MakeStore, refused: Callable[..., str]
) -> None:
    store = make_store(user="reader")
    text = refused(store, 409, "TARGET_READ_ONLY")
    assert "DELETE on sym_data" in text
    found, codes = _findings(http, store)
    assert "TARGET_READ_ONLY" in codes
    assert found["can"] == ["PLAN_OUTGOING", "PLAN_INCOMING", "PLAN_DATA_GAP"]
    assert {(item["table"], item["right"]) for item in found["permissions_missing"]} >= {
        ("sym_data", "DELETE"),
        ("sym_data_event", "DELETE"),
        ("sym_outgoing_batch", "DELETE"),
    }
    plan = http.post(
        f"/v1/stores/{store}/purges",
        params={"validate_only": "true"},
        json={"kind": "OUTGOING", "cutoff": CUTOFF, "stranded": "MARK"},
        headers={"Prefer": "wait=20"},
    )
    removed = {item["table"].removeprefix("sym_"): item["rows_to_remove"] for item in plan.json()["tables"]}
    assert removed == REMOVED_3X


def test_role_without_any_right_is_refused(
    make_store: MakeStore, refused: Callable[..., str], http: httpx.Client
) -> None:
    store = make_store(user="stranger")
    before = http.get(f"/v1/stores/{store}").json()
    answer = http.post(f"/v1/stores/{store}/purges", json={"kind": "OUTGOING"})
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] in ("TARGET_READ_ONLY", "TARGET_TABLES_MISSING", "TARGET_TABLES_ELSEWHERE")
    assert http.get(f"/v1/stores/{store}").json() == before


@pytest.mark.parametrize("schema", [None, "other", "public"])
def test_tables_in_another_schema_are_not_taken_for_these(
    http: httpx.Client, make_store: MakeStore, refused: Callable[..., str], schema: str | None
) -> None:
    store = make_store(schema=schema)
    text = refused(store, 409, "TARGET_TABLES_ELSEWHERE")
    assert "shop.sym_data" in text
    _found, codes = _findings(http, store)
    assert codes == {"TARGET_TABLES_ELSEWHERE"}


def test_database_without_the_tables_is_refused(make_store: MakeStore, refused: Callable[..., str]) -> None:
    refused(make_store(database="postgres"), 409, "TARGET_TABLES_MISSING")


def test_database_that_is_missing_is_refused(make_store: MakeStore, refused: Callable[..., str]) -> None:
    refused(make_store(database="nowhere"), 502, "TARGET_DATABASE_MISSING")


def test_target_that_is_away_lets_the_job_wait(
    http: httpx.Client, make_store: MakeStore, guarded_server: PostgresqlServer
) -> None:
    store = make_store()
    port = guarded_server.port
    away = {"url": guarded_server.url("shop").replace(f":{port}/", ":1/")}
    etag = http.get(f"/v1/stores/{store}").headers["etag"]
    assert http.patch(f"/v1/stores/{store}", json=away, headers={"If-Match": etag}).status_code == 200
    found, codes = _findings(http, store)
    assert (found["reachable"], codes) == (False, {"TARGET_UNREACHABLE"})
    body = problem(http.get(f"/v1/stores/{store}/purge-stats"), 503, "TARGET_UNREACHABLE")
    assert body["retryable"] is True
    answer = http.post(f"/v1/stores/{store}/purges", json={"kind": "OUTGOING", "cutoff": CUTOFF})
    job_id = accepted(answer)
    job = wait_for(http, job_id, "WAITING", timeout_s=20)
    assert job["waiting_on"]
    assert job["retries"] >= 1
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://user:hunter2@127.0.0.1/shop",
        "postgresql+psycopg://127.0.0.1/shop?password=hunter2",
        "postgresql+psycopg://127.0.0.1/shop?options=-csearch_path%3Devil",
        "postgresql+psycopg://127.0.0.1/shop?hostaddr=10.0.0.1",
        "postgresql+psycopg://127.0.0.1/shop?service=evil",
        "postgresql+psycopg://127.0.0.1/shop?passfile=/etc/passwd",
        "postgresql+psycopg://127.0.0.1/shop?host=10.0.0.1",
        "postgresql+psycopg://127.0.0.1/shop?sslmode=disable&sslmode=require",
        "postgresql+psycopg://127.0.0.1,10.0.0.1/shop",
        "postgresql+psycopg:///dbname=shop host=10.0.0.1",
        "postgresql+psycopg://127.0.0.1/",
        "postgresql+psycopg2://127.0.0.1/shop",
        "mysql+pymysql://127.0.0.1/shop",
        "oracle://127.0.0.1/shop",
        "sqlite:///relative.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////srv/x.db?mode=rwc",
        "sqlite:////srv/\0.db",
        "not a url",
        "",
    ],
)
def test_url_with_surprises_is_refused(
    http: httpx.Client, metadata: MetadataRows, url: str, service: ServiceProcess
) -> None:
    with metadata.unchanged():
        answer = http.post("/v1/stores", json={"id": "surprise", "kind": "SYMMETRICDS", "url": url})
    body = problem(answer, 422, "INVALID_REQUEST")
    assert pointers(body) == {"/url"}
    assert "hunter2" not in answer.text
    assert "hunter2" not in service.log()


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost", "127.0.0.2", "db.example"])
def test_host_outside_of_the_allowed_ones_is_refused(
    http: httpx.Client, metadata: MetadataRows, host: str
) -> None:
    body = {"id": "far-away", "kind": "SYMMETRICDS", "url": f"postgresql+psycopg://lethe@{host}/shop"}
    with metadata.unchanged():
        problem(http.post("/v1/stores", json=body), 422, "HOST_NOT_ALLOWED")


def test_socket_directory_is_no_way_around_the_allowed_hosts(
    http: httpx.Client, metadata: MetadataRows
) -> None:
    for url in ("postgresql+psycopg:///shop", "postgresql+psycopg:///shop?host=/var/run/postgresql"):
        body = {"id": "by-socket", "kind": "SYMMETRICDS", "url": url}
        with metadata.unchanged():
            problem(http.post("/v1/stores", json=body), 422, "HOST_NOT_ALLOWED")


def test_path_outside_of_the_roots_is_refused(
    http: httpx.Client, metadata: MetadataRows, roots: Path, tmp_path: Path, shop: Shop
) -> None:
    outside = tmp_path / "outside.sqlite"
    outside.write_bytes(shop.path.read_bytes())
    link = roots / f"link-{next(_numbers)}.sqlite"
    link.symlink_to(outside)
    for path in (
        outside,
        link,
        f"{roots}/../{outside.name}",
        f"{roots}/../../etc/passwd",
        f"{roots}-sibling/x",
    ):
        body = {"id": "outside", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        with metadata.unchanged():
            problem(http.post("/v1/stores", json=body), 422, "PATH_NOT_ALLOWED")
    before = shop.etag()
    problem(shop.change(url=f"sqlite:///{outside}"), 422, "PATH_NOT_ALLOWED")
    assert shop.etag() == before


def test_own_metadata_is_no_target(
    http: httpx.Client, metadata: MetadataRows, service: ServiceProcess, roots: Path
) -> None:
    own = service.metadata_url
    urls = (
        [own]
        if own
        else [f"sqlite:///{service.data_dir}/lethe.db", f"sqlite:///{roots}/alias-{next(_numbers)}"]
    )
    if own is None:
        Path(urls[1].removeprefix("sqlite:///")).symlink_to(service.data_dir / "lethe.db")
    for url in urls:
        with metadata.unchanged():
            answer = http.post("/v1/stores", json={"id": "own", "kind": "SYMMETRICDS", "url": url})
            problem(answer, 422, "OWN_METADATA")


def test_purge_of_a_postgresql_store_removes_what_the_document_says(
    http: httpx.Client, make_store: MakeStore, guarded_server: PostgresqlServer
) -> None:
    name = f"purged_{next(_numbers)}"
    build(Place(guarded_server.create_database(name), "3.x", schema="shop"), read_reference("3.x").rows)
    store = make_store(database=name)
    request = {"kind": "OUTGOING", "cutoff": CUTOFF, "stranded": "MARK"}
    job = wait_for(http, accepted(http.post(f"/v1/stores/{store}/purges", json=request)))
    assert job["state"] == "SUCCEEDED", job["error"]
    assert job["result"]["removed"] == REMOVED_3X
    assert job["result"]["stranded"]["marked"] == STRANDED_3X


def test_target_that_has_seen_a_greater_epoch_is_refused_until_recovered(
    sqlite_service: ServiceProcess,
    postgresql_service: ServiceProcess,
    guarded_server: PostgresqlServer,
) -> None:
    """The fence was looked for on read-only connections, which were told that there is none.

    So a restored (here: another) metadata was found out only by the job, which then lost its lease to nobody
    and stayed RUNNING until that ran out.
    """
    name = f"epochs_{next(_numbers)}"
    build(Place(guarded_server.create_database(name), "3.x", schema="shop"), read_reference("3.x").rows)
    body = {
        "id": name.replace("_", "-"),
        "kind": "SYMMETRICDS",
        "url": guarded_server.url(name),
        "schema": "shop",
    }
    path = f"/v1/stores/{body['id']}"
    request = {"kind": "OUTGOING", "cutoff": CUTOFF}
    with sqlite_service.http() as one, postgresql_service.http() as two:
        for http in (one, two):
            assert http.post("/v1/stores", json=body).status_code == 201
        job = wait_for(one, accepted(one.post(f"{path}/purges", json=request)))
        assert job["state"] == "SUCCEEDED"
        with psycopg.connect(guarded_server.conninfo(name), autocommit=True) as target:
            target.execute("update lethe.fence set token = 1000000")
        for http in (one, two):
            refused = problem(http.post(f"{path}/purges", json=request), 409, "EPOCH_AHEAD")
            assert "recover" in refused["detail"]
            assert http.get(f"{path}/purge-stats").status_code == 200
        recovered = two.post(f"{path}:recover").json()
        assert recovered["epoch_after"] >= 1_000_000
        assert recovered["foreign_jobs"] == [job["id"]]
        mine = wait_for(two, accepted(two.post(f"{path}/purges", json=request)))
        assert mine["state"] == "SUCCEEDED", mine["error"]
        assert two.get(f"/v1/jobs/{job['id']}").json()["reason"] == "RECOVERED_FOREIGN"
