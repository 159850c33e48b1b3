"""Schedules and agreements went with their store without a word: neither the audit nor the feed had them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.http.metadata_rows import MetadataRows
from tests.http.replica_stores import make_replica
from tests.http.shop import Shop
from tests.http.supplying import SECRETS, agree


def _removals(http: httpx.Client, subject_id: str) -> list[dict[str, Any]]:
    found = http.get("/v1/audit-events", params={"subject_id": subject_id}).json()["items"]
    return [each for each in found if each["action"].endswith(".remove")]


def test_each_schedule_of_a_removed_store_has_its_audit_row(http: httpx.Client, shop: Shop) -> None:
    body = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "cron": "0 3 * * *", "store": shop.id}
    made = [http.post("/v1/schedules", json=body | {"name": name}).json()["id"] for name in ("a", "b")]
    http.post(f"/v1/schedules/{made[1]}:pause").raise_for_status()
    answer = http.delete(f"/v1/stores/{shop.id}", headers={"If-Match": "*", "X-Request-Id": "gone-1"})
    assert answer.status_code == 204, answer.text
    for schedule_id in made:
        assert http.get(f"/v1/schedules/{schedule_id}").status_code == 404
        (row,) = _removals(http, schedule_id)
        assert (row["action"], row["store"], row["actor"]) == ("schedule.remove", shop.id, "admin")
        assert row["detail"] == {"because": "store.remove", "verb": "PURGE", "cron": "0 3 * * *"}
    (of_store,) = _removals(http, shop.id)
    assert row["request_id"] == of_store["request_id"]


def test_removed_schedules_are_told_in_the_feed(
    http: httpx.Client, shop: Shop, metadata: MetadataRows
) -> None:
    body = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "cron": "0 3 * * *", "store": shop.id}
    made = http.post("/v1/schedules", json=body).json()["id"]
    http.delete(f"/v1/stores/{shop.id}", headers={"If-Match": "*"}).raise_for_status()
    told = metadata.query(f"select data from feed_events where subject = 'schedules/{made}' order by seq")
    assert ["ADDED" in str(told[0]), "REMOVED" in str(told[-1])] == [True, True]


def test_an_agreement_of_a_removed_store_has_its_audit_row(http: httpx.Client, roots: Path) -> None:
    path = roots / SECRETS / "gone.token"
    path.write_text("lethe_secret")
    path.chmod(0o600)
    replica = make_replica(http, rid=1, folder=roots)
    made, before = (
        agree(http, replica.id, name, url="http://127.0.0.1:1/", token=f"file:{path}").json()
        for name in ("there", "elsewhere")
    )
    one = f"/v1/stores/{replica.id}/agreements/{before['id']}"
    http.delete(one, headers={"If-Match": "*"}).raise_for_status()
    answer = http.delete(f"/v1/stores/{replica.id}", headers={"If-Match": "*"})
    assert answer.status_code == 204, answer.text
    (row,) = _removals(http, made["id"])
    assert (row["action"], row["store"]) == ("agreement.remove", replica.id)
    assert row["detail"] == {"because": "store.remove", "host": "127.0.0.1:1", "consumer_store": "there"}
    assert len(_removals(http, before["id"])) == 1
