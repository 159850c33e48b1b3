"""Ids that nothing can have, and query parameters that nobody reads."""

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.shop import Shop


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/jobs/job_nope", "JOB_NOT_FOUND"),
        ("/v1/jobs/job_1:abort", "JOB_NOT_FOUND"),
        ("/v1/stores/NOPE", "STORE_NOT_FOUND"),
        ("/v1/archives/nope", "ARCHIVE_NOT_FOUND"),
    ],
)
def test_id_that_nothing_can_have_is_not_found(http: httpx.Client, path: str, code: str) -> None:
    problem(http.get(path), 404, code)


def test_typo_in_validate_only_purges_nothing(http: httpx.Client, shop: Shop, metadata: MetadataRows) -> None:
    with metadata.unchanged():
        answer = http.post(f"/v1/stores/{shop.id}/purges?validate_onyl=true", json={"kind": "OUTGOING"})
    body = problem(answer, 422, "INVALID_REQUEST")
    assert [item["pointer"] for item in body["errors"]] == ["query:validate_onyl"]
