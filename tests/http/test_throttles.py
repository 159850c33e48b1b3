"""A job keeps the bounds that it is given, or refuses them."""

from __future__ import annotations

import httpx

from app.stores.models import StoreKind
from app.verbs.table import VERBS, bounds_of
from tests.http.problem import problem
from tests.http.shop import Shop

KEPT = {
    "PURGE OUTGOING": {StoreKind.SYMMETRICDS},
    "PURGE CHANGELOG": {StoreKind.REPLICA},
    "PURGE TOMBSTONES": {StoreKind.REPLICA},
    "PURGE ROWS": {StoreKind.SQL},
    "EVENT_CLEANUP": {StoreKind.SLONY},
    "EXTINCTION": {StoreKind.REPLICA},
    "ERASURE": {StoreKind.JE},
    "REPLICATION_SESSION": {StoreKind.REPLICA},
}


def test_a_job_that_keeps_no_bounds_takes_none(http: httpx.Client, shop: Shop) -> None:
    plan = http.post(f"/v1/stores/{shop.id}/purges", params={"validate_only": True}, json=shop.body({}))
    assert plan.status_code == 200, plan.text
    refused = http.patch(f"/v1/jobs/{plan.json()['plan_id']}/throttle", json={"rows_per_s": 5})
    assert "kind PLAN" in problem(refused, 409, "THROTTLE_NOT_TAKEN")["detail"]


def _kept(kind: str, act: str) -> set[StoreKind]:
    name = f"{kind} {act}".strip()
    return KEPT.get(name, KEPT["PURGE OUTGOING"] if kind == "PURGE" else set())


def test_bounds_are_taken_where_they_are_kept_and_nowhere_else() -> None:
    for verb in VERBS:
        for act in verb.acts or {""}:
            taken = {kind for kind in StoreKind if bounds_of(verb.kind, {"kind": act}, kind)}
            assert taken == _kept(verb.kind, act), verb.name
            assert bool(bounds_of(verb.kind, {"kind": act}, None)) == bool(taken), verb.name
            assert not bounds_of("PLAN", {"plan": verb.kind, "kind": act}, StoreKind.SYMMETRICDS)
