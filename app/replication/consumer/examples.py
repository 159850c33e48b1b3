"""Examples of what goes over the wire between a supplier and its consumer, for the OpenAPI document."""

from typing import Any, Final

SESSION_ID: Final = "rps_01m7wyy27paves70w6wtkbqy9h"
GENERATION: Final = "6b1e2a10000000010000"
EXPIRES_AT: Final = "2026-11-20T10:55:39.613933Z"
_FIRST: Final = {"1": "6b1e2a31000000010000"}
_RUV: Final = {"1": "6b1e2a5c000300010000", "3": "6b1e2a40000000030000"}
CAPABILITIES: Final = ["CHANGE", "KEEPALIVE", "TOTAL", "ARROW_ZSTD", "EXTINCTION"]
ACQUIRE: Final[dict[str, Any]] = {
    "protocol": 1,
    "session_id": SESSION_ID,
    "mode": "INCREMENTAL",
    "supplier": {
        "store": "directory-a",
        "rid": 1,
        "generation": GENERATION,
        "ruv": _RUV,
        "csn_now": "6b1e2a60000000010000",
        "capabilities": CAPABILITIES,
        "extinctions": {},
    },
    "lease": "PT60S",
    "discard_consumer_changes": False,
}
ACQUIRED: Final[dict[str, Any]] = {
    "session_id": SESSION_ID,
    "epoch": 7,
    "expires_at": EXPIRES_AT,
    "consumer": {
        "rid": 9,
        "status": "ONLINE",
        "generation": GENERATION,
        "ruv": _FIRST,
        "purged": {},
    },
    "capabilities": CAPABILITIES,
    "limits": {"batch_rows": 10_000, "batch_bytes": 8_388_608, "in_flight": 4},
    "total": None,
}
APPLIED: Final[dict[str, Any]] = {
    "batch_seq": 1,
    "applied": 4812,
    "covered": 12,
    "rejected": [],
    "halted": 0,
    "ruv": _RUV,
    "expires_at": EXPIRES_AT,
    "replayed": False,
    "extinct": {},
}
RENEW: Final[dict[str, Any]] = {"epoch": 7, "lease": "PT60S"}
COMPLETE_TOTAL: Final[dict[str, Any]] = {
    "epoch": 7,
    "batch_seq": 12,
    "ruv": _RUV,
    "generation": GENERATION,
}
RELEASED: Final[dict[str, Any]] = {"ruv": _RUV, "status": "ONLINE"}
REPLICA: Final[dict[str, Any]] = {
    "rid": 9,
    "status": "ONLINE",
    "generation": GENERATION,
    "incarnation": "inc_01m7wyy27pegfwb403ts4y7jv2",
    "ruv": _RUV,
    "min": _FIRST,
    "purged": {},
    "lines": [
        f"{{replicageneration}} {GENERATION}",
        "{replica 1} 6b1e2a31000000010000 6b1e2a5c000300010000 6b1e2a5d",
    ],
    "capabilities": CAPABILITIES,
}
ROW: Final = (
    '{"csn":"6b1e2a5c000300010000","prev":"6b1e2a31000000010000","kind":"CHANGE","database":"cGVvcGxl",'
    '"key":"YWRh","payload":"TG92ZWxhY2U="}\n'
)
