"""Stores of kind JE: what they have, what only an admin may say of them, and what is refused."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop

_numbers = itertools.count(1)


def body_of(path: Path | str, **fields: Any) -> dict[str, Any]:
    name = f"je-store-{os.getpid()}-{next(_numbers)}"
    return {"id": name, "kind": "JE", "path": str(path)} | fields


def add(http: httpx.Client, path: Path, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/stores", json=body_of(path, **fields))
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def patch(http: httpx.Client, store: str, changes: dict[str, Any]) -> httpx.Response:
    etag = http.get(f"/v1/stores/{store}").headers["ETag"]
    return http.patch(f"/v1/stores/{store}", json=changes, headers={"If-Match": etag})


def test_environment_is_registered_with_the_safe_defaults(http: httpx.Client, roots: Path) -> None:
    shown = add(http, roots / "env")
    assert shown["path"] == str(roots / "env")
    assert (shown["mode"], shown["extinction_filter"], shown["backups"]) == ("CLOSED", "NONE", None)
    assert (shown["accept_medium"], shown["delete_reserved_files"], shown["erase_expired"]) == (False,) * 3
    assert (shown["node_grace"], shown["backup_grace"]) == ("PT10M", "P1D")
    assert [shown[name] for name in ("url", "schema", "table_prefix", "time_zone")] == [None] * 4


def test_database_shows_no_fields_of_an_environment(shop: Shop) -> None:
    shown = shop.http.get(f"/v1/stores/{shop.id}").json()
    names = ("path", "mode", "extinction_filter", "backups", "accept_medium", "node_grace", "backup_grace")
    assert [shown[name] for name in names] == [None] * 7


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"url": "sqlite:////tmp/a.db"}, "has no url"),
        ({"table_prefix": "sym_", "schema": "public"}, "has no schema, table_prefix"),
        ({"path": None}, "needs `path`"),
        ({"path": "relative/env"}, "absolute path"),
        ({"path": "/srv/../etc"}, "absolute path"),
        ({"mode": "OPEN"}, "mode"),
        ({"node_grace": "P400D"}, "P365D"),
        ({"backups": "MAYBE"}, "backups"),
    ],
)
def test_environment_with_wrong_fields_is_refused(
    http: httpx.Client, roots: Path, fields: dict[str, Any], text: str
) -> None:
    body = body_of(roots / "env") | fields
    answer = http.post("/v1/stores", json=body)
    problem(answer, 422, "INVALID_REQUEST")
    assert text in answer.text
    assert http.get(f"/v1/stores/{body['id']}").status_code == 404


def test_database_with_fields_of_an_environment_is_refused(http: httpx.Client, roots: Path) -> None:
    body = body_of("/x", kind="SYMMETRICDS", url=f"sqlite:///{roots}/a.db") | {"mode": "LIVE"}
    answer = http.post("/v1/stores", json=body)
    problem(answer, 422, "INVALID_REQUEST")
    assert "has no mode, path" in answer.text


def test_environment_outside_of_the_roots_is_refused(http: httpx.Client) -> None:
    problem(http.post("/v1/stores", json=body_of("/etc")), 422, "PATH_NOT_ALLOWED")


def test_data_directory_of_the_service_is_refused(http: httpx.Client, service: ServiceProcess) -> None:
    problem(http.post("/v1/stores", json=body_of(service.data_dir)), 422, "OWN_METADATA")


def test_live_without_the_word_about_backups_is_refused(http: httpx.Client, roots: Path) -> None:
    problem(http.post("/v1/stores", json=body_of(roots / "env", mode="LIVE")), 422, "BACKUPS_UNDECLARED")
    store = add(http, roots / "env", mode="LIVE", backups="VIA_LETHE")
    problem(patch(http, store["id"], {"backups": None}), 422, "BACKUPS_UNDECLARED")
    assert http.get(f"/v1/stores/{store['id']}").json()["backups"] == "VIA_LETHE"


def test_only_an_admin_chooses_live_or_accepts_a_medium(
    http: httpx.Client, service: ServiceProcess, roots: Path, make_token: Callable[..., str]
) -> None:
    with service.http(make_token("stores:write", "stores:read")) as operator:
        for fields in ({"mode": "LIVE", "backups": "VIA_LETHE"}, {"accept_medium": True}):
            problem(operator.post("/v1/stores", json=body_of(roots / "env", **fields)), 403, "SCOPE_MISSING")
        store = add(operator, roots / "env")
        problem(patch(operator, store["id"], {"accept_medium": True}), 403, "SCOPE_MISSING")
        assert patch(operator, store["id"], {"labels": {"a": "b"}}).status_code == 200
        live = add(http, roots / "env", mode="LIVE", backups="VIA_LETHE")
        assert patch(operator, live["id"], {"labels": {"a": "b"}}).status_code == 200
        problem(patch(operator, live["id"], {"mode": "CLOSED"}), 403, "SCOPE_MISSING")


def test_purge_of_an_environment_is_refused(http: httpx.Client, roots: Path) -> None:
    store = add(http, roots / "env")["id"]
    purge = {"kind": "OUTGOING", "retention_minutes": 60}
    problem(http.post(f"/v1/stores/{store}/purges", json=purge), 409, "STORE_KIND_WRONG")
    problem(http.post(f"/v1/stores/{store}/purges?validate_only=true", json=purge), 409, "STORE_KIND_WRONG")
    problem(http.get(f"/v1/stores/{store}/purge-stats"), 409, "STORE_KIND_WRONG")
    assert http.get(f"/v1/stores/{store}/purges").json()["items"] == []


def test_fields_of_the_other_kind_are_not_patched(http: httpx.Client, shop: Shop, roots: Path) -> None:
    store = add(http, roots / "env")["id"]
    problem(patch(http, store, {"url": "sqlite:////tmp/a.db"}), 422, "INVALID_REQUEST")
    problem(patch(http, shop.id, {"mode": "LIVE"}), 422, "INVALID_REQUEST")
