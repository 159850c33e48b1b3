"""Examples of agreements, sessions and comparisons, for the OpenAPI document."""

from typing import Any, Final

AGREEMENT_ID: Final = "agr_01k9x2m4c6d8e0f2g4h6j8k0mn"
SESSION_ID: Final = "rps_01m7wyy27paves70w6wtkbqy9h"
_GENERATION: Final = "6b1e2a10000000010000"
_OURS: Final = {"1": "6b1e2a5c000300010000", "3": "6b1e2a40000000030000"}
_THEIRS: Final = {"1": "6b1e2a31000000010000", "2": "6b1e2a44000100020000"}
_WINDOWS: Final = {
    "1": ["6b1e2a31000000010000", "6b1e2a5c000300010000"],
    "3": [None, "6b1e2a40000000030000"],
}
_STATUS: Final[dict[str, Any]] = {
    "lag_changes": 0,
    "lag": "PT0S",
    "oldest_unsent": None,
    "purge_headroom": "P6DT3H",
    "needs_total": False,
    "acknowledged": _OURS,
    "changes_sent": "1:205/0 3:202/0 ",
    "last_update": {"start": "2026-11-20T10:54:39.613933Z", "end": "2026-11-20T10:54:41.002112Z"},
    "last_update_status": "Error (0) Replica acquired successfully: Incremental update succeeded",
    "last_update_status_json": {
        "state": "green",
        "ldap_rc": "0",
        "ldap_rc_text": "Success",
        "repl_rc": "0",
        "repl_rc_text": "replica acquired",
        "date": "2026-11-20T10:54:41Z",
        "message": "Error (0) Replica acquired successfully: Incremental update succeeded",
    },
    "update_in_progress": False,
    "target_code": None,
}
AGREEMENT: Final[dict[str, Any]] = {
    "id": AGREEMENT_ID,
    "store": "orders",
    "state": "REGISTERED",
    "consumer": {"url": "https://east.example:8765", "store": "orders", "ca_file": None, "rid": 2},
    "strategy": "WINDOW",
    "interval": "PT10S",
    "max_changes": None,
    "max_duration": None,
    "batch_rows": 10000,
    "batch_bytes": 4194304,
    "in_flight": 4,
    "keys": None,
    "last_session_id": SESSION_ID,
    "created_at": "2026-11-20T10:50:00.100000Z",
    "updated_at": "2026-11-20T10:50:00.100000Z",
    "status": _STATUS,
}
SESSION: Final[dict[str, Any]] = {
    "id": SESSION_ID,
    "store": "orders",
    "agreement_id": AGREEMENT_ID,
    "job_id": "job_01m7w9g5zztpwcv3r2w6zbdp8x",
    "mode": "INCREMENTAL",
    "strategy": "WINDOW",
    "engine": "INLINE",
    "state": "ENDED",
    "outcome": "UP_TO_DATE",
    "epoch": 7,
    "max_changes": None,
    "max_duration": None,
    "supplier": {"rid": 1, "generation": _GENERATION, "ruv": _OURS, "purged": {}},
    "consumer": {
        "rid": 2,
        "status": "ONLINE",
        "generation": _GENERATION,
        "ruv": _THEIRS | _OURS,
        "purged": {},
    },
    "decision": {"outcome": "UP_TO_DATE", "need": [], "blocked_rids": [], "reason": None},
    "windows": _WINDOWS,
    "anchors": [],
    "counters": {
        "1": {
            "read": 205,
            "sent": 205,
            "covered": 0,
            "beyond_snapshot": 0,
            "new_rid": 0,
            "duplicates": 0,
            "rejected": 0,
            "extinct": 0,
            "acknowledged": 205,
        }
    },
    "total": None,
    "windows_done": 1,
    "rows_read": 205,
    "batches_sent": 1,
    "bytes_sent": 9816,
    "problem": None,
    "created_at": "2026-11-20T10:54:39.600000Z",
    "started_at": "2026-11-20T10:54:39.613933Z",
    "updated_at": "2026-11-20T10:54:41.002112Z",
    "ended_at": "2026-11-20T10:54:41.002112Z",
}
COMPARISON: Final[dict[str, Any]] = {
    "outcome": "SEND",
    "reason": None,
    "need": [1, 3],
    "blocked_rids": [],
    "anchor": None,
    "windows": _WINDOWS,
    "missing": {"1": 205, "3": 202},
    "missing_total": 407,
    "consumer_ahead": {"2": "6b1e2a44000100020000"},
    "supplier": {
        "rid": 1,
        "status": "ONLINE",
        "generation": _GENERATION,
        "ruv": _OURS,
        "purged": {},
    },
    "consumer": {
        "rid": 2,
        "status": "ONLINE",
        "generation": _GENERATION,
        "ruv": _THEIRS,
        "purged": {},
    },
}
