"""The printed rights of each kind of store, as they are printed: a role with just these does every verb.

The rights that the documentation named, taken literally, gave 409 at every kind of store: a table was missing
here, a sequence there. An open `via` took NATIVE though `:check` said that the role could not.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.cli.grant_scripts import SCRIPTS, grant_script
from app.cli.kinds.kind import MARIADB, POSTGRESQL
from tests.conftest import MariadbServer, SharedServer
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.slony_cleaning import cleaned, plan, switched
from tests.http.slony_nodes import NodeStore, new_name, register
from tests.http.targets import CUTOFF, REMOVED_3X
from tests.http.test_slony_native import confirm_all
from tests.http.writers import make_written
from tests.oracles.symmetricds import Place, build
from tests.oracles.symmetricds_rows import read_reference
from tests.slony_cluster import SlonyCluster

SMALLER = ("EXTRACT_REQUEST", "REGISTRATION_REQUEST", "INCOMING_ERROR", "STATISTICS", "TRIGGER_HIST")
KINDS_OF_PURGE = (*SMALLER, "INCOMING", "DATA_GAP", "OUTGOING")


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the rights are the target's."""
    return sqlite_service


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def _role(url: str, script: str, name: str) -> Iterator[str]:
    """A new role of the server with the rights of a script; the address of a database for it."""
    with psycopg.connect(_plain(url), autocommit=True) as owner:
        owner.execute(f'create role "{name}" login'.encode())
        try:
            owner.execute(script.encode())
            yield make_url(url).set(username=name, password=None).render_as_string(hide_password=False)
        finally:
            owner.execute(f'drop owned by "{name}" cascade'.encode())
            owner.execute(f'drop role "{name}"'.encode())


def _new_role(prefix: str) -> str:
    return f"Lethe's {prefix} {uuid.uuid4().hex[:8]}"


@pytest.fixture
def node(http: httpx.Client, bare_slony: SlonyCluster) -> Iterator[NodeStore]:
    """Node 1 with events that all have confirmed, for a role with the printed rights."""
    for _ in range(12):
        bare_slony.sync(1)
    confirm_all(bare_slony)
    name = _new_role("slony")
    script = grant_script("SLONY", POSTGRESQL, role=name, schema=bare_slony.schema)
    with _role(bare_slony.url(1), script, name) as url:
        yield register(http, url=url, cluster=bare_slony.name)


def test_slony_does_every_verb_with_the_printed_rights(
    node: NodeStore, http: httpx.Client, bare_slony: SlonyCluster
) -> None:
    check = node.check()
    assert check["ok"], check["findings"]
    assert {"READ_EVENTS", "WAIT", "CREATE_SYNC", "CONFIRM", "CLEANUP_BUILTIN", "LOG_SWITCH"} <= set(
        check["can"]
    )
    assert "CLEANUP_NATIVE" not in check["can"]
    made = http.post(f"{node.url}/events", json={"type": "SYNC"})
    assert made.status_code == 201, made.text
    seqno = made.json()["seqno"]
    assert seqno in [item["seqno"] for item in node.events(origin=1)]
    for receiver in (2, 3):
        answer = node.confirm(1, receiver, seqno, force=True, reason="a test")
        assert answer.status_code == 200, answer.text
    assert node.matrix()[(1, 2)]["confirmed_seqno"] == seqno
    waited = http.post(
        f"{node.url}/events:wait",
        json={"origin": 1, "confirmed": "ALL", "seqno": seqno},
        headers={"Prefer": "wait=20"},
    )
    assert waited.status_code == 200, waited.text
    shown = plan(node, interval="PT1M").json()
    assert (shown["via"], shown["hazards"]) == ("BUILTIN", [])  # an open `via` follows the rights
    result = cleaned(node, interval="PT1M")
    assert (result["via"], result["counts"]) == ("BUILTIN", "EXACT")
    assert result["removed"]["sl_event"] > 0
    assert switched(node, "FULL")["outcome"] == "FINISHED"
    assert node.get("log-switches/status").status_code == 200


@contextmanager
def _symmetricds_postgresql(server: SharedServer) -> Iterator[dict[str, Any]]:
    database = f"lethe_grants_{uuid.uuid4().hex[:12]}"
    server.execute(f"create database {database}")
    try:
        build(Place(server.url(database), "3.x", schema="Shop"), read_reference("3.x").rows)
        name = _new_role("shop")
        script = grant_script("SYMMETRICDS", POSTGRESQL, role=name, schema="Shop")
        with _role(server.url(database), script, name) as url:
            yield {"url": url, "schema": "Shop"}
    finally:
        server.execute(f"drop database if exists {database} with (force)")


@contextmanager
def _symmetricds_mariadb(server: MariadbServer) -> Iterator[dict[str, Any]]:
    name = f"lethe_grants_{os.getpid()}"
    server.execute(f"create database {name}")
    hosts = ("127.0.0.1", "localhost")
    try:
        build(Place(server.url(name), "3.x"), read_reference("3.x").rows)
        for host in hosts:
            server.execute(f"create user '{name}'@'{host}'")
            script = grant_script("SYMMETRICDS", MARIADB, role=f"{name}@{host}", schema=name)
            for statement in _statements(script):
                server.execute(statement)
        yield {"url": make_url(server.url(name)).set(username=name).render_as_string(hide_password=False)}
    finally:
        for host in hosts:
            server.execute(f"drop user if exists '{name}'@'{host}'")
        server.execute(f"drop database {name}")


def _statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


def _purged(http: httpx.Client, fields: dict[str, Any]) -> None:
    """Register a store, and do every verb of the kind."""
    store = new_name("grants")
    answer = http.post("/v1/stores", json={"id": store, "kind": "SYMMETRICDS", **fields})
    assert answer.status_code == 201, answer.text
    check = http.post(f"/v1/stores/{store}:check").json()
    assert (check["ok"], check["permissions_missing"], check["ledger"]) == (True, [], True), check
    archived = ""
    for kind in KINDS_OF_PURGE:
        body: dict[str, Any] = {"kind": kind, "cutoff": CUTOFF}
        if kind == "OUTGOING":
            body |= {"archive": {"format": "PARQUET"}, "stranded": "MARK"}
        job = wait_for(http, accepted(http.post(f"/v1/stores/{store}/purges", json=body)))
        assert job["state"] == "SUCCEEDED", job
        assert job["result"]["counts"] == "EXACT"
        archived = job["id"]
    assert job["result"]["removed"] == REMOVED_3X
    assert http.get(f"/v1/stores/{store}/purge-stats").status_code == 200
    restored = wait_for(
        http, accepted(http.post(f"/v1/archives/{archived}:restore", json={"into": {"live": True}}))
    )
    assert restored["state"] == "SUCCEEDED", restored
    assert restored["result"]["rows"] == sum(REMOVED_3X.values())


@pytest.mark.postgresql
def test_symmetricds_on_postgresql_does_every_verb_with_the_printed_rights(
    http: httpx.Client, postgresql_server: SharedServer
) -> None:
    with _symmetricds_postgresql(postgresql_server) as fields:
        _purged(http, fields)


def test_symmetricds_on_mariadb_does_every_verb_with_the_printed_rights(
    http: httpx.Client, mariadb_server: MariadbServer
) -> None:
    with _symmetricds_mariadb(mariadb_server) as fields:
        _purged(http, fields)


def test_replica_does_every_verb_with_the_printed_rights(http: httpx.Client, postgresql_url: str) -> None:
    name = _new_role("replica")
    with psycopg.connect(_plain(postgresql_url), autocommit=True) as owner:
        owner.execute('create schema "Copies"')
    script = grant_script("REPLICA", POSTGRESQL, role=name, schema="Copies")
    with _role(postgresql_url, script, name) as url:
        store = make_written(http, url=url, schema="Copies")
        for number in range(5):
            assert store.put(f"k{number}".encode(), b"v").status_code == 200
        check = http.post(f"/v1/stores/{store.id}:check").json()
        assert (check["ok"], check["permissions_missing"]) == (True, []), check
        assert http.get(f"/v1/stores/{store.id}/entries").status_code == 200
        assert http.get(f"/v1/stores/{store.id}/changes").status_code == 200
        body = {"kind": "CHANGELOG", "retention_minutes": 0}
        job = wait_for(http, accepted(http.post(f"/v1/stores/{store.id}/purges", json=body)))
        assert (job["state"], job["result"]["counts"]) == ("SUCCEEDED", "EXACT"), job
        extinct = http.post(
            f"/v1/stores/{store.id}/extinctions",
            json={"databases": ["b3JkZXJz"], "label": "all", "confirm_keys_never_reused": True},
        )
        assert extinct.status_code in (201, 202), extinct.text


def test_every_kind_on_every_database_has_its_script() -> None:
    assert set(SCRIPTS) == {
        ("SLONY", "postgresql"),
        ("SYMMETRICDS", "postgresql"),
        ("SYMMETRICDS", "mariadb"),
        ("SYMMETRICDS", "sqlite"),
        ("REPLICA", "postgresql"),
        ("REPLICA", "sqlite"),
        ("SQL", "postgresql"),
        ("SQL", "mariadb"),
        ("SQL", "sqlite"),
    }
    for kind, database in SCRIPTS:
        script = grant_script(kind, database, role="lethe", schema="shop")
        assert "lethe" in script
        assert "{" not in script
