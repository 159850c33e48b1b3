"""Extinctions of an environment are in the metadata alone: a store is not forgotten or moved with them.

The story: a store was removed and registered again. Its extinctions were gone with it, and keys that had been
discarded were NOT_EXTINCT: JE's own checks fail then. With another path they would speak of records that
nobody has discarded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import EnvironmentStore, await_log, make_environment_store
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.shop import wait_for
from tests.http.writers import WrittenStore, make_written, text64
from tests.je_data import unpack


@pytest.fixture
def discarded(http: httpx.Client, roots: Path, tmp_path: Path) -> EnvironmentStore:
    """An environment with an extinction that has been counted."""
    sample = unpack("closed", tmp_path / "closed")
    made = make_environment_store(http, roots, sample, extinction_filter="INSTALLED")
    body = {"databases": ["ttl"], "label": "l", "confirm_keys_never_reused": True, "reason": "r"}
    job = http.post(f"{made.url}/extinctions", json=body)
    assert job.status_code == 202, job.text
    assert wait_for(http, job.json()["id"], timeout_s=90)["state"] == "SUCCEEDED"
    await_log(http, made.id)  # until the service has read the log, no key is judged for certain
    return made


def _match(http: httpx.Client, store: EnvironmentStore) -> dict[str, str]:
    return {"If-Match": http.get(store.url).headers["ETag"]}


def test_store_with_extinctions_is_neither_moved_nor_forgotten_by_accident(
    http: httpx.Client, discarded: EnvironmentStore, roots: Path, make_token: Callable[..., str]
) -> None:
    other = roots / "another"
    moved = http.patch(discarded.url, json={"path": str(other)}, headers=_match(http, discarded))
    assert problem(moved, 409, "EXTINCTIONS_KEPT")["detail"].startswith("1 extinction(s)")
    gone = http.delete(discarded.url, headers=_match(http, discarded))
    assert "forget_extinctions" in problem(gone, 409, "EXTINCTIONS_KEPT")["detail"]
    token = make_token("stores:read", "stores:write")
    asked = http.delete(
        discarded.url,
        params={"forget_extinctions": "true"},
        headers=_match(http, discarded) | {"Authorization": f"Bearer {token}"},
    )
    problem(asked, 403, "SCOPE_MISSING")
    assert http.get(discarded.url).json()["path"] == str(discarded.directory)
    by_admin = http.delete(
        discarded.url, params={"forget_extinctions": "true"}, headers=_match(http, discarded)
    )
    assert by_admin.status_code == 204
    assert http.get(discarded.url).status_code == 404


def test_status_query_takes_the_longest_keys(http: httpx.Client, discarded: EnvironmentStore) -> None:
    keys = ["A" * 2_664] * 10_000  # 1,998 bytes each
    asked = {"database": "ttl", "dups": False, "keys": keys}
    answer = http.post(f"{discarded.url}/extinction-status:query", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json()["maybe_because"] == []
    assert answer.json()["statuses"] == ["EXTINCT"] * 10_000


def _discard(http: httpx.Client, store: WrittenStore, key: bytes, name: str) -> httpx.Response:
    body = {
        "databases": [text64(b"orders")],
        "start_key": text64(key),
        "end_key": text64(key + b"\x00"),
        "label": "l",
        "confirm_keys_never_reused": True,
        "reason": "r",
    }
    return http.post(f"/v1/stores/{store.id}/extinctions", json=body, headers={"Idempotency-Key": name})


def _status(http: httpx.Client, store: WrittenStore, key: bytes) -> str:
    body = {"database": text64(b"orders"), "keys": [text64(key)]}
    answer = http.post(f"/v1/stores/{store.id}/extinction-status:query", json=body)
    assert answer.status_code == 200, answer.text
    [found] = answer.json()["statuses"]
    return str(found)


def _bundle(http: httpx.Client, store: WrittenStore) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/v1/stores/{store.id}/extinctions/filter").json()
    return found


def test_replica_that_is_registered_again_knows_its_extinctions_at_once(
    http: httpx.Client, roots: Path
) -> None:
    """Its target keeps them; the service knew that it had asked it before, and nothing of the answer."""
    store = make_written(http, folder=roots)
    assert store.put(b"a1", b"one").status_code == 200
    job = _discard(http, store, b"a1", f"first-{store.id}")
    assert job.status_code == 202, job.text
    wait_for(http, job.json()["id"], "SUCCEEDED")
    assert _status(http, store, b"a1") == "EXTINCT"
    before, url = _bundle(http, store), f"/v1/stores/{store.id}"
    registered = http.get(url)
    fields = {name: registered.json()[name] for name in ("id", "kind", "url", "rid")}
    assert http.delete(url, headers={"If-Match": registered.headers["ETag"]}).status_code == 204
    assert http.post("/v1/stores", json=fields).status_code == 201
    assert _status(http, store, b"a1") == "EXTINCT"
    after = _bundle(http, store)
    assert [each["start_key"] for each in after["extinctions"]] == [text64(b"a1")]
    assert after["version"] > before["version"]


def _cut_off(metadata: MetadataRows, name: str, extinction_id: str) -> None:
    """The service died before it had answered this request."""
    begun = {"subject_id": extinction_id, "until": "2026-01-01T00:00:00+00:00", "owner": "ins_dead"}
    left = json.dumps(begun)
    metadata.execute(f"update idempotency_keys set status = 0, body = '{left}' where key = '{name}'")


def test_request_that_died_after_its_commit_is_taken_up_though_the_store_rests_now(
    http: httpx.Client, roots: Path, metadata: MetadataRows
) -> None:
    """What is at the target is answered; what never came there is refused, as a new request would be."""
    store = make_written(http, folder=roots)
    assert store.put_bulk({b"a1": b"one", b"a2": b"two"}).status_code == 200
    names = (f"there-{store.id}", f"lost-{store.id}")
    found = []
    for key, name in zip((b"a1", b"a2"), names, strict=True):
        job = _discard(http, store, key, name)
        assert job.status_code == 202, job.text
        found.append(job.json()["subject"]["id"])
        wait_for(http, job.json()["id"], "SUCCEEDED")
        _cut_off(metadata, name, found[-1])
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as target, target:
        target.execute("delete from replica_extinctions where id = ?", (found[1],))
    metadata.execute(f"update extinctions set state = 'RESERVED' where id = '{found[1]}'")
    asked = http.post(f"/v1/stores/{store.id}:suspend", json={"reason": "it rests"})
    assert asked.status_code in (200, 202), asked.text
    problem(_discard(http, store, b"a2", f"new-{store.id}"), 409, "STORE_SUSPENDED")
    answer = _discard(http, store, b"a1", names[0])
    assert (answer.status_code, answer.json()["subject"]["id"]) == (202, found[0])
    problem(_discard(http, store, b"a2", names[1]), 409, "STORE_SUSPENDED")
