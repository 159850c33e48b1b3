"""`lethe job pause`, `resume`, `retry` and `abort`: why, for the job and the audit."""

from typing import Any

import pytest

STATES = {"pause": "PAUSED", "resume": "QUEUED", "abort": "ABORTED", "retry": "QUEUED"}


def _job(state: str) -> dict[str, Any]:
    return {"id": "job_1", "kind": "PURGE", "store": "shop", "state": state}


@pytest.mark.parametrize("act", STATES)
def test_the_reason_goes_with_the_order(lethe, service, act: str) -> None:
    service.on(f"POST /v1/jobs/job_1:{act}", (200, _job(STATES[act])))
    run = lethe("job", act, "job_1", "--reason", "the night's load")
    assert run.code == 0, run.err
    [body] = service.bodies(f"POST /v1/jobs/job_1:{act}")
    assert body["reason"] == "the night's load"


@pytest.mark.parametrize("act", [act for act in STATES if act != "abort"])
def test_without_one_none_is_sent(lethe, service, act: str) -> None:
    service.on(f"POST /v1/jobs/job_1:{act}", (200, _job(STATES[act])))
    run = lethe("job", act, "job_1")
    assert run.code == 0, run.err
    [body] = service.bodies(f"POST /v1/jobs/job_1:{act}")
    assert not (body or {}).get("reason")
