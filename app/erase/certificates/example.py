"""An example of a certificate, for the OpenAPI document; docs/reference/certificate.md explains it."""

from typing import Any, Final

from app.erase.examples import CYCLE_ID, JOB_ID

KEY_ID: Final = "ed25519:56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
_FILE: Final[dict[str, Any]] = {
    "name": "00000000.jdb",
    "state": "ERASED",
    "bytes": 999982,
    "created_at": "2026-11-20T08:51:05Z",
    "identity": {
        "device": 64768,
        "inode": "131",
        "size": 999982,
        "links": 1,
        "mtime_ns": "1795163066000000000",
    },
    "not_erased_because": [],
    "planned": {"SUPERSEDED": [2420, 512340]},
    "kept": {},
    "extinctions": {},
    "extinct_and_still_named_by_slots": 0,
    "reserved": False,
    "entries_planned": 2420,
    "entries_overwritten": 2420,
    "entries_proved_erased": 2420,
    "rounds": 1,
    "fsyncs": 3,
    "fsync_times": ["PT0.00121S", "PT0.0034S", "PT0.0031S"],
    "sha256_before": "ab" * 32,
    "sha256_expected": "cd" * 32,
    "sha256_after": "cd" * 32,
    "proved": True,
    "read_for_the_proof_by": "O_DIRECT",
    "first_write_at": "2026-11-20T17:09:15.000000Z",
    "finished_at": "2026-11-20T17:09:16.000000Z",
    "refusal": None,
}
CERTIFICATE_EXAMPLE: Final[dict[str, Any]] = {
    "certificate": {
        "format": "lethe-erasure-certificate/1",
        "issued_at": "2026-12-15T17:10:00.000000Z",
        "issued_by": "Lethe 0.1.0",
        "store": "orders-je",
        "cycle": {
            "id": CYCLE_ID,
            "job_id": JOB_ID,
            "state": "COMPLETE",
            "requested_by": "ann",
            "reason": "erasure within 60 days",
            "mode": "CLOSED",
            "kinds": ["DELETED_DATABASES", "ALL_OBSOLETE_ENTRIES"],
            "min_file_age": "P25D",
            "duration": "P25D",
            "incomplete": {},
            "created_at": "2026-11-20T17:09:14.680143Z",
            "started_at": "2026-11-20T17:09:14.900000Z",
            "cutoff_at": "2026-10-26T17:09:14.900000Z",
            "ends_at": "2026-12-15T17:09:14.900000Z",
            "ended_at": "2026-12-15T17:09:10.000000Z",
        },
        "plan": {
            "first_active": "0x3/0x12d89",
            "checkpoint": "0x3/0x1304a",
            "vetoed_count": 0,
            "vetoed": [],
            "missing_count": 0,
            "vlsn": None,
            "torn_at": None,
            "nodes_wait": False,
        },
        "totals": {
            "files": 1,
            "files_erased_and_proved": 1,
            "entries_erased_and_proved": 2420,
            "erased_and_proved_by_reason": {"SUPERSEDED": [2420, 512340]},
            "files_remaining": 0,
            "bytes_written": 1999407,
            "fsyncs": 3,
        },
        "protections": {"count": 0, "met": [], "files_held_at_the_end": []},
        "extinctions": [],
        "files": [_FILE],
        "environment": {
            "path": "/srv/je/orders",
            "looked_at": "2026-12-15T17:10:00.000000Z",
            "device": 64768,
            "inode": "130",
            "medium": {"file_system": "ext4", "is_copy_on_write": False, "notes": []},
        },
        "stays_readable": [
            {
                "code": "EMBEDDED_IN_LIVE_NODES",
                "what": "Keys, and values that JE embeds, in slots of live BINs.",
            }
        ],
    },
    "signature": {
        "algorithm": "Ed25519",
        "key_id": KEY_ID,
        "public_key": "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        "value": "YaU6cpvrascjPONpVlu90SH6npayswS2qvgdv9yqlbxN2fU4iD40sQZg3qdiuvxTU4s5ChRVTLqkPO4FmWq3Aw==",
    },
}
