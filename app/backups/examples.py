"""Examples of answers for the OpenAPI document."""

from typing import Any

FILE: dict[str, Any] = {
    "name": "00000003.jdb",
    "path": "/var/lib/orders/je/00000003.jdb",
    "size": 9999872,
    "device": 2049,
    "inode": 1310733,
    "mtime": "2026-11-19T22:10:04.120001Z",
    "growing": False,
    "digest": "043e390dc99e59db9281f107172b8d6d2470726ea7ae064e37bcd635b10f98f0",
    "erasure_generation": 2,
    "released_at": None,
    "fault": None,
}
SESSION: dict[str, Any] = {
    "id": "bks_01m7w9fkm3fr0wmcztj953rhw9",
    "store": "orders-je",
    "mode": "BACKUP",
    "state": "ACTIVE",
    "tool": "restic",
    "label": "nightly",
    "lease": "PT10M",
    "lease_expires_at": "2026-11-20T11:04:39.613933Z",
    "erase_abort_timeout": "PT30S",
    "protection_id": "prt_01m7w9fkm3fr0wmcztj953rhw9",
    "erasure_aborted": True,
    "abort_latency_ms": 8.214,
    "valid": None,
    "file_count": 1,
    "total_bytes": 9999872,
    "requested_by": "backup",
    "created_at": "2026-11-20T10:54:39.605719Z",
    "activated_at": "2026-11-20T10:54:39.613933Z",
    "ended_at": None,
}
CREATED = SESSION | {"files": [FILE]}
END = SESSION | {
    "state": "INVALID",
    "valid": False,
    "ended_at": "2026-11-20T10:59:01.100000Z",
    "changed": [{"name": "00000003.jdb", "fault": "TOUCHED"}],
}
