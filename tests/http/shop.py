"""A registered store and the requests that tests make of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.http.targets import CUTOFF, digest_sqlite

JOB_MAX_S = 60.0
TERMINAL = {"SUCCEEDED", "FAILED", "ABORTED", "ABANDONED"}


@dataclass(frozen=True)
class Shop:
    """A store on a copy of the reference database."""

    http: httpx.Client
    id: str
    path: Path

    @property
    def digest(self) -> str:
        """Hash of the schema and of all rows of the target."""
        return digest_sqlite(self.path)

    def purge(self, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        """Ask for a purge up to the recorded cut-off, unless something else is named."""
        return self.http.post(f"/v1/stores/{self.id}/purges", json=self.body(fields), headers=headers)

    def plan(self, *, wait: int = 20, **fields: Any) -> httpx.Response:
        """Ask for a plan."""
        return self.http.post(
            f"/v1/stores/{self.id}/purges",
            params={"validate_only": "true"},
            json=self.body(fields),
            headers={"Prefer": f"wait={wait}"},
        )

    def body(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The request's body; the recorded counts are the document's, which marks stranded batches."""
        age = {"cutoff", "retention_minutes", "plan_id"} & set(fields)
        asked = {"kind": "OUTGOING"} | ({} if age else {"cutoff": CUTOFF}) | fields
        is_open = asked["kind"] == "OUTGOING" and "plan_id" not in asked
        return ({"stranded": "MARK"} if is_open else {}) | asked

    def slow_purge(self, *, rows_per_s: int = 100, **fields: Any) -> str:
        """Start a purge of many small throttled units, about six seconds; returns the job's id."""
        answer = self.purge(max_rows_in_tx=20, throttle={"rows_per_s": rows_per_s}, **fields)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def etag(self) -> str:
        """The store's ETag now."""
        return self.http.get(f"/v1/stores/{self.id}").headers["etag"]

    def change(self, **fields: Any) -> httpx.Response:
        """PATCH the store as it is now."""
        return self.http.patch(f"/v1/stores/{self.id}", json=fields, headers={"If-Match": self.etag()})


def wait_for(http: httpx.Client, job_id: str, *states: str, timeout_s: float = JOB_MAX_S) -> dict[str, Any]:
    """Wait until a job is in one of the states (by default: has ended) and return it."""
    wanted = set(states) or TERMINAL
    deadline = time.monotonic() + timeout_s
    headers: dict[str, str] = {}  # a wait would end with the next state: the first look does without
    while True:
        answer = http.get(f"/v1/jobs/{job_id}", headers=headers)
        if answer.status_code != httpx.codes.NOT_MODIFIED:
            job: dict[str, Any] = answer.json()
            if job["state"] in wanted:
                return job
            assert job["state"] not in TERMINAL, job
            headers = {"Prefer": "wait=2", "If-None-Match": answer.headers["etag"]}
        assert time.monotonic() < deadline, job


def accepted(answer: httpx.Response) -> str:
    """The id of the job that a 202 tells of."""
    assert answer.status_code == 202, answer.text
    job_id = str(answer.json()["id"])
    assert answer.headers["location"] == f"/v1/jobs/{job_id}"
    return job_id
