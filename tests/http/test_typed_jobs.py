"""Parameters and results of jobs are what the table of verbs says; those of earlier versions are still shown.

The clients of these tests look at every job that any answer holds (tests/typed_jobs.py); here is shown that
they look, and that only tests are that strict.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from tests.http.metadata_rows import MetadataRows
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, wait_for
from tests.typed_jobs import check_job


def _write(metadata: MetadataRows, job_id: str, **columns: Any) -> None:
    said = ", ".join(f"{name} = '{json.dumps(value)}'" for name, value in columns.items())
    metadata.execute(f"update jobs set {said} where id = '{job_id}'")


def test_a_field_too_many_or_too_few_is_found(http: httpx.Client, shop: Shop) -> None:
    done = wait_for(http, shop.purge().json()["id"])
    check_job(done)
    fewer = {name: value for name, value in done["result"].items() if name != "removed"}
    for result in (done["result"] | {"remvoed": {}}, fewer, done["result"] | {"units": "many"}):
        with pytest.raises(ValidationError):
            check_job(done | {"result": result})
    with pytest.raises(ValidationError):
        check_job(done | {"params": done["params"] | {"strct": True}})


def test_a_job_of_an_earlier_version_is_shown_as_it_is(
    http: httpx.Client, service: ServiceProcess, shop: Shop, metadata: MetadataRows
) -> None:
    """Its result does not fit the model of today, and neither do its parameters: never a 500."""
    job_id = wait_for(http, shop.purge().json()["id"])["id"]
    former: dict[str, Any] = {"rows": 3, "cutoff": "yesterday"}
    _write(metadata, job_id, params={"kind": "OUTGOING", "fast": True}, result=former)
    bearer = {"Authorization": f"Bearer {service.token}"}
    found = httpx.get(f"{service.url}/v1/jobs/{job_id}", headers=bearer)
    assert (found.status_code, found.json()["result"]) == (200, former)
    assert found.json()["params"] == {"kind": "OUTGOING", "fast": True}
    listed = httpx.get(f"{service.url}/v1/stores/{shop.id}/purges", headers=bearer)
    assert [each["result"] for each in listed.json()["items"]] == [former]
    metadata.execute(f"delete from job_events where job_id = '{job_id}'")
    metadata.execute(f"delete from job_checkpoints where job_id = '{job_id}'")
    metadata.execute(f"delete from jobs where id = '{job_id}'")
