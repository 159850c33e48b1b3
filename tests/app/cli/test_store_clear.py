"""What a store has can be taken away again: labels, parameters, runs_on, each limit."""

from typing import Any

import pytest

STORE: dict[str, Any] = {
    "id": "shop",
    "kind": "SYMMETRICDS",
    "labels": {"region": "eu"},
    "runs_on": ["zone-a"],
    "parameters": {"purge.retention.minutes": 60},
    "limits": {"max_rows": 1000, "max_fraction": 0.5, "max_parallel_jobs": 2},
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--clear", "labels"], {"labels": {}}),
        (["--clear", "parameters", "--clear", "runs-on"], {"parameters": {}, "runs_on": []}),
        (["--clear", "max-rows"], {"limits": {"max_fraction": 0.5, "max_parallel_jobs": 2}}),
        (
            ["--clear", "max-fraction", "--max-rows", "5"],
            {"limits": {"max_rows": 5, "max_parallel_jobs": 2}},
        ),
    ],
)
def test_what_is_cleared_is_said_to_the_service(lethe, service, words, expected) -> None:
    service.on("GET /v1/stores/shop", (200, STORE, {"ETag": '"1"'}))
    service.on("PATCH /v1/stores/shop", (200, STORE, {"ETag": '"2"'}))
    assert lethe("store", "update", "shop", *words).code == 0
    assert service.bodies("PATCH /v1/stores/shop") == [expected]


def test_what_is_set_and_cleared_is_a_mistake(lethe, service) -> None:
    service.on("GET /v1/stores/shop", (200, STORE, {"ETag": '"1"'}))
    run = lethe("store", "update", "shop", "--label", "a=b", "--clear", "labels")
    assert (run.code, "labels is set and cleared" in run.err) == (64, True)
