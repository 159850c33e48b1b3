"""A job that was retried after its store was removed failed by INTERNAL, with a trace in the log."""

from __future__ import annotations

import httpx

from tests.http.shop import Shop, accepted, wait_for


def test_job_of_a_removed_store_fails_by_that_name(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)
    assert http.delete(f"/v1/stores/{shop.id}", headers={"If-Match": "*"}).status_code == 204
    again = wait_for(http, accepted(http.post(f"/v1/jobs/{job_id}:retry", json={})))
    assert (again["state"], again["error"]["code"]) == ("FAILED", "STORE_NOT_FOUND")
