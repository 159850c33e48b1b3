"""The OpenAPI document of the service: the generated one, with problems and examples in their places."""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.auth.described import describe_rights, requirements_of
from app.erase.examples import EXAMPLES as ERASURE
from app.hooks.examples import EXAMPLES as WEBHOOKS
from app.jobs.examples import JOB, JOB_ID
from app.kit.problems import Problem
from app.runbook.glossary.describing import describe_enums, describe_names
from app.verbs.described import describe_jobs

KEPT = Path(__file__).resolve().parents[1] / "openapi" / "openapi.json"
"""Beside `app`, in a checkout as in a wheel."""
REFERENCE = "#/components/schemas/"
JSON = "application/json"

_STORE: dict[str, Any] = {
    "id": "shop",
    "kind": "SYMMETRICDS",
    "url": "postgresql+psycopg://lethe@127.0.0.1:5432/shop",
    "has_password": True,
    "schema": "public",
    "table_prefix": "sym_",
    "time_zone": "Europe/Berlin",
    "labels": {"region": "eu"},
    "runs_on": [],
    "parameters": {"purge.retention.minutes": 1440},
    "limits": {"max_rows": 50000000, "max_fraction": 0.95, "max_parallel_jobs": 4},
    "suspended": None,
    "target_identity": "postgresql:7412345678901234567:16384:public",
    "created_at": "2026-11-20T10:54:39.100000Z",
    "updated_at": "2026-11-20T10:54:39.100000Z",
}
_ARCHIVE: dict[str, Any] = {
    "job_id": JOB_ID,
    "store": "shop",
    "directory": f"/var/lib/lethe/archive/shop/{JOB_ID}",
    "instance": "ins_01m7w9fkm3fr0wmcztj953rhw9",
    "resource": "public.sym_outgoing",
    "created_at": "2026-11-20T10:54:39.700000Z",
    "files": 1,
    "rows": 246,
    "bytes": 18211,
    "counts": "EXACT",
    "expires_at": "2027-11-20T10:54:39.700000Z",
}
_TOKEN: dict[str, Any] = {
    "id": "tok_01m7w9fkm3fr0wmcztj953rhw9",
    "name": "nightly-purge",
    "scopes": ["jobs:read", "purges:write", "stores:read"],
    "stores": ["shop"],
    "expires_at": "2027-02-18T10:54:39.613933Z",
    "created_at": "2026-11-20T10:54:39.613933Z",
    "created_by": "tok_01m7w9fkm3fr0wmcztj953rhw8",
    "revoked_at": None,
}
BACKUPS = frozenset({"ProtectionRead", "BackupSessionRead", "BackupSessionCreated", "BackupEndRead"})
HOOKS = frozenset({"WebhookRead", "WebhookCreated"})
VERSIONED = (
    frozenset({"AgreementRead", "JobRead", "StoreRead", "StoreWritten", "ParameterRead"}) | BACKUPS | HOOKS
)
"""What is answered with the ETag of a row."""
LOCATED = frozenset(
    {"AgreementRead", "StoreWritten", "ProtectionRead", "BackupSessionCreated", "WebhookCreated"}
)
"""What is answered with its path when it was made."""
HEADERS: dict[str, str] = {
    "ETag": "Strong, of the row's version; for If-Match and If-None-Match.",
    "Idempotency-Replayed": "`true`: the stored answer of the first request with this key.",
    "Location": "The path of what was made, or of the job.",
    "Preference-Applied": "The wait that was granted.",
    "Retry-After": "Seconds after which a look is worth while.",
}
EXAMPLES: dict[str, Any] = {
    **ERASURE,
    **WEBHOOKS,
    "StoreRead": _STORE,
    "StoreWritten": _STORE | {"warnings": []},
    "JobRead": JOB,
    "ArchiveRead": _ARCHIVE,
    "ArchiveDetail": _ARCHIVE
    | {
        "file_list": [
            {
                "path": f"/var/lib/lethe/archive/shop/{JOB_ID}/data-10-438-2.parquet",
                "unit_id": "data-10-438",
                "table": "sym_data",
                "rows": 246,
                "bytes": 18211,
                "sha256": "043e390dc99e59db9281f107172b8d6d2470726ea7ae064e37bcd635b10f98f0",
                "state": "VALID",
            }
        ]
    },
    "TokenRead": _TOKEN,
    "TokenCreated": _TOKEN | {"token": "lethe_..."},
    "AuditEventRead": {
        "id": "aud_01m7w9fkm3fr0wmcztj953rhw9",
        "at": "2026-11-20T10:54:39.613933Z",
        "token_id": "tok_01m7w9fkm3fr0wmcztj953rhw9",
        "actor": "nightly-purge",
        "action": "purge.create",
        "subject_type": "job",
        "subject_id": JOB_ID,
        "store": "shop",
        "request_id": "req_01m7w9eepmg2fyeswsjf12m4kr",
        "detail": {"kind": "OUTGOING", "force": False},
    },
    "InstanceRead": {
        "id": "ins_01m7w9fkm3fr0wmcztj953rhw9",
        "hostname": "lethe-1",
        "pid": 17,
        "role": "serve",
        "version": "0.1.0",
        "labels": ["zone-a"],
        "started_at": "2026-11-20T10:53:41.192227Z",
        "heartbeat_at": "2026-11-20T10:54:41.192227Z",
        "stopped_at": None,
        "alive": True,
    },
    "JobEventRead": {
        "seq": 2,
        "at": "2026-11-20T10:54:39.647885Z",
        "type": "state",
        "data": {"state": "RUNNING", "attempt": 1},
    },
    "ParameterRead": {
        "name": "purge.retention.minutes",
        "aliases": [],
        "type": "INTEGER",
        "unit": "minutes",
        "minimum": 0,
        "maximum": 5256000,
        "default": 7200,
        "value": 1440,
        "source": "STORE",
        "scopes": ["GLOBAL", "STORE"],
        "kinds": ["SYMMETRICDS"],
        "in_use": True,
        "description": "How long delivered data stays.",
    },
    "StoreCheck": {
        "ok": True,
        "reachable": True,
        "identity": "postgresql:7412345678901234567:16384:public",
        "server_version": 150019,
        "layout": "3.x",
        "clock_difference_s": 0.001,
        "time_encoding": "timestamp",
        "permissions_missing": [],
        "ledger": True,
        "sizes": [{"table": "sym_data", "rows_estimate": 1000000, "bytes": 210000000}],
        "conflicts": [],
        "findings": [],
        "can": [
            "PLAN_OUTGOING",
            "PURGE_OUTGOING",
            "PLAN_INCOMING",
            "PURGE_INCOMING",
            "PLAN_DATA_GAP",
            "PURGE_DATA_GAP",
        ],
    },
    "SparkPoolRead": {
        "instance": "ins_01m7w9fkm3fr0wmcztj953rhw9",
        "state": "READY",
        "since": "2026-11-20T10:53:12.000000Z",
        "draining": False,
        "master": "local[2,4]",
        "spark_version": "4.3.0",
        "slots": [
            {"number": 1, "state": "LEASED", "job_class": "BULK", "leased_for": "PT1.2S", "jobs_run": 18},
            {"number": 2, "state": "IDLE", "job_class": None, "leased_for": None, "jobs_run": 3},
        ],
        "queue": [],
        "exchange": {
            "jobs": 1,
            "jobs_waiting": 0,
            "units_waiting": 12,
            "units_under_way": 8,
            "spark_jobs_running": 1,
            "spark_jobs": 21,
            "units_done": 160,
            "units_again": 0,
        },
        "rebuilds": 0,
        "failed_rebuilds": 0,
        "last_error": None,
        "start_took": "PT6.1S",
        "context_age": "PT1M27S",
        "uses_cds": True,
        "limits": {
            "slots": 2,
            "queue_max": 32,
            "min_rows": 100000,
            "units_ahead_max": 128,
            "task_duration": "PT1.5S",
        },
        "cores": 2,
        "memory_bytes": 1_101_004_800,
        "executor_list": [
            {
                "id": "driver",
                "address": "127.0.0.1:41234",
                "cores": 2,
                "tasks": 2,
                "memory_bytes": 1_101_004_800,
                "memory_used_bytes": 0,
            }
        ],
        "thresholds": [
            {
                "kind": "PURGE",
                "unit": "ROWS",
                "least": None,
                "least_cold": None,
                "source": "BUILT_IN",
                "basis": "Spark has only the cores of this machine, which threads use as well",
            }
        ],
        "calibration": {"state": "NONE", "made_at": None, "why": None},
    },
    "RecoveryRead": {"epoch_before": 12, "epoch_after": 57, "foreign_jobs": [JOB_ID]},
    "PurgePlanRead": {
        "plan_id": JOB_ID,
        "store": "shop",
        "kind": "OUTGOING",
        "cutoff": "2026-11-01T10:00:00Z",
        "cutoff_local": "2026-11-01 11:00:00",
        "retention_minutes": 1440,
        "retention_source": "STORE",
        "layout": "3.x",
        "strict": False,
        "tables": [{"table": "sym_data", "rows": 315, "rows_to_remove": 246, "lo": 10, "hi": 438}],
        "stranded": {
            "mode": "SKIP",
            "nodes": [{"node_id": "00004", "batches": 8, "rows": 41}],
            "batches": 8,
            "rows": 41,
            "cost": "8 batches with 41 rows for 1 nodes that are absent or disabled stay until the nodes"
            " have got them; MARK would give them up",
        },
        "nodes": None,
        "limits": {"max_rows": 50000000, "max_fraction": None, "exceeded": []},
        "warnings": [
            {
                "code": "DATA_UNROUTED",
                "table": "sym_data",
                "count": 4,
                "sample": [13, 149, 263, 380],
                "detail": "old, but routed to nobody yet: never removed",
            }
        ],
        "expires_at": "2026-11-21T10:54:39.454688Z",
    },
    "DecisionRead": {
        "outcome": "SEND",
        "need": [2, 3],
        "blocked_rids": [],
        "reason": None,
        "anchor": None,
        "windows": {
            "2": ["65000014000000020000", "6500003c000000020000"],
            "3": [None, "6500001e000000030000"],
        },
    },
    "PurgeStatsRead": {
        "store": "shop",
        "measured_at": "2026-11-20T10:54:21.621000Z",
        "retention_minutes": 7200,
        "retention_source": "DEFAULT",
        "tables": [
            {
                "table": "sym_data",
                "kind": "OUTGOING",
                "retention_minutes": 7200,
                "removed": 246,
                "oldest_row_left": "2026-11-01T03:00:00Z",
                "lag_behind_retention": "P14DT7H54M21.6S",
                "rows_estimate": 69,
            }
        ],
        "ticks": [
            {
                "kind": "OUTGOING",
                "cron": "0 0 0 * * *",
                "time_zone": "Europe/Berlin",
                "next_at": "2026-11-20T23:00:00Z",
                "last_at": "2026-11-19T23:00:07Z",
                "last_outcome": "SUBMITTED",
                "last_detail": None,
                "last_job_id": JOB_ID,
                "last_job_state": "SUCCEEDED",
                "last_job_error": None,
            }
        ],
    },
}


@lru_cache(maxsize=1)
def rendered(app: FastAPI) -> tuple[bytes, str]:
    """The description of a service as JSON, and its version."""
    body = json.dumps(described(app), ensure_ascii=False, separators=(",", ":")).encode()
    return body, hashlib.sha256(body).hexdigest()[:32]


def described(app: FastAPI) -> dict[str, Any]:
    """The description that is kept, which `make check` proves; made, in seconds, where none is."""
    found: dict[str, Any] = json.loads(KEPT.read_bytes()) if KEPT.is_file() else describe(app)
    return found


def describe(app: FastAPI) -> dict[str, Any]:
    """The document that `/openapi.json` serves and the repository keeps."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=REFERENCE + "{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    describe_jobs(schemas)
    for content in _json_contents(document):
        if "example" not in content and "examples" not in content:
            example = _example_of(content.get("schema", {}), schemas)
            if example is not None:
                content["example"] = example
    requirements = requirements_of(app)
    for item in document["paths"].values():
        for operation in item.values():
            _describe_headers(operation)
            if operation["operationId"] in requirements:
                describe_rights(operation, requirements[operation["operationId"]])
    describe_names(document)
    describe_enums(document["components"]["schemas"])
    return document


def _describe_headers(operation: dict[str, Any]) -> None:
    """Name the headers of the good answers: a generated client shows only what is described."""
    asked = {parameter["name"] for parameter in operation.get("parameters", ())}
    for code, answer in operation["responses"].items():
        if not code.startswith("2"):
            continue
        schema = answer.get("content", {}).get(JSON, {}).get("schema", {})
        names = [choice.get("$ref", "").removeprefix(REFERENCE) for choice in schema.get("anyOf", [schema])]
        found = {
            "ETag": not VERSIONED.isdisjoint(names),
            "Idempotency-Replayed": "Idempotency-Key" in asked,
            "Location": code == "202" or (code == "201" and not LOCATED.isdisjoint(names)),
            "Preference-Applied": "Prefer" in asked,
            "Retry-After": code == "202",
        }
        headers = {
            name: {"description": HEADERS[name], "schema": {"type": "string"}}
            for name, is_sent in found.items()
            if is_sent
        }
        if headers:
            answer["headers"] = answer.get("headers", {}) | headers


def _json_contents(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON content of every request and every good answer."""
    for item in document["paths"].values():
        for operation in item.values():
            bodies = [operation.get("requestBody", {})]
            bodies += [body for code, body in operation["responses"].items() if code.startswith("2")]
            yield from (body["content"][JSON] for body in bodies if JSON in body.get("content", {}))


def _example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """The example of a schema: its own, that of what it refers to, or a page of one item."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        if name in EXAMPLES:
            return EXAMPLES[name]
        return _example_of(schemas[name], schemas)
    if "examples" in schema:
        return schema["examples"][0]
    for choice in schema.get("anyOf", []):
        if "$ref" in choice:
            return _example_of(choice, schemas)
    items = schema.get("properties", {}).get("items", {}).get("items")
    if items is not None:
        return {"items": [_example_of(items, schemas)], "next_page_token": ""}
    return None
