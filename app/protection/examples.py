"""Examples of answers for the OpenAPI document."""

from typing import Any

PROTECTION: dict[str, Any] = {
    "id": "prt_01m7w9fkm3fr0wmcztj953rhw9",
    "store": "orders-je",
    "kind": "SCAN",
    "name": "nightly count",
    "state": "ACTIVE",
    "lease": "PT10M",
    "lease_expires_at": "2026-11-20T11:04:39.613933Z",
    "backup_session_id": None,
    "requested_by": "count",
    "created_at": "2026-11-20T10:54:39.613933Z",
    "ended_at": None,
    "files": ["00000003.jdb", "00000004.jdb"],
    "ranges": [{"first": "00000003.jdb", "last": "00000004.jdb"}],
}
ABORT: dict[str, Any] = {
    "protection_id": "prt_01m7w9fkm3fr0wmcztj953rhw9",
    "files": 2,
    "erasure_aborted": True,
    "abort_latency_ms": 8.214,
}
