"""A `:recover` that was sent again with its Idempotency-Key did all of it again, and no audit row said so."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import httpx

from tests.http.problem import problem
from tests.http.shop import Shop, accepted, wait_for

AHEAD = 1_000


def _raise_fence(shop: Shop) -> None:
    """As if a later metadata had worked on this target."""
    with closing(sqlite3.connect(shop.path)) as conn:
        raised = conn.execute("update lethe_fence set token = token + ?", (AHEAD,))
        assert raised.rowcount > 0
        conn.commit()


def test_key_of_a_recovery_answers_the_same_and_recovers_nothing_more(http: httpx.Client, shop: Shop) -> None:
    wait_for(http, accepted(shop.purge()))
    path, key = f"/v1/stores/{shop.id}:recover", {"Idempotency-Key": f"recover-{shop.id}"}
    _raise_fence(shop)
    problem(shop.purge(), 409, "EPOCH_AHEAD")
    first = http.post(path, headers=key)
    assert first.json()["epoch_after"] > first.json()["epoch_before"] + AHEAD // 2
    _raise_fence(shop)
    again = http.post(path, headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    problem(shop.purge(), 409, "EPOCH_AHEAD")
    assert http.post(path).status_code == 200
    assert wait_for(http, accepted(shop.purge()))["state"] == "SUCCEEDED"
