"""Paths of the API; every id is quoted, so that none can name another resource."""

from urllib.parse import quote


def collection(name: str) -> str:
    """`/v1/stores`."""
    return f"/v1/{name}"


def resource(name: str, identifier: str, *below: str, verb: str = "") -> str:
    """`/v1/stores/main/purges`, `/v1/jobs/job_1:pause`."""
    assert identifier, "an empty id would name the whole collection"
    path = "/".join([f"/v1/{name}", quote(identifier, safe=""), *(quote(part, safe="") for part in below)])
    return f"{path}:{verb}" if verb else path
