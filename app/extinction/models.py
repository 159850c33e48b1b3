"""Extinctions over HTTP: what is asked, and what is answered. Keys stand in base64."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from annotated_types import MaxLen
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from app.extinction.rows import ExtinctionOrigin, ExtinctionState
from app.jobs.plans.reviewed_plan import DRIFT_WITHOUT_PLAN, MaxDrift
from app.kit.model import Model
from app.kit.values import Text
from app.replication.replica.models import Base64Bytes, base64_schema
from app.stores.models import LimitsRead
from spark.formats.extinction import DATABASES_MAX, LABEL_MAX_CHARS, ExtinctionStatus
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES
from spark.replication.sessions.peers import LackingPeer

KEYS_MAX: Final = 10_000
STATUS_BODY_MAX_BYTES: Final = 32 * 1024 * 1024
"""So many of the longest keys, in base64."""
DATABASE_MAX_CHARS: Final = -(-DATABASE_MAX_BYTES // 3) * 4
"""In base64."""
SUPPLIER_MAX_CHARS: Final = 63 + len("/65534")
"""Its store, and its replica id."""
EXAMPLE_ID: Final = "ext_01k9x2m4c6d8e0f2g4h6j8k0mn"
_RANGE: Final[dict[str, Any]] = {
    "databases": ["b3JkZXJz"],
    "start_key": "MjAyNC0wMQ==",
    "end_key": "MjAyNC0wMg==",
    "filter": {"not": {"prefix": "MjAyNC0wMS0zMQ=="}},
    "label": "orders of January 2024",
}

DatabaseName = Annotated[str, StringConstraints(min_length=1, max_length=DATABASE_MAX_CHARS)]
Key = Annotated[Base64Bytes, MaxLen(KEY_MAX_BYTES), base64_schema(0, KEY_MAX_BYTES)]


class ExtinctionRequest(Model):
    """Records that are not needed, and whose keys will never be used again."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{**_RANGE, "confirm_keys_never_reused": True, "reason": "retention of 18 months"}]
        },
    )

    databases: list[DatabaseName] = Field(
        min_length=1,
        max_length=DATABASES_MAX,
        description="REPLICA: in base64. JE: names as they are.",
    )
    start_key: Key | None = Field(default=None, description="Inclusive; null: from the first key on.")
    end_key: Key | None = Field(default=None, description="Exclusive; null: to the last key.")
    filter: dict[str, Any] | None = Field(
        default=None,
        description="An expression over the key: one of prefix, range, modulo, field, all, any, not"
        " (docs/concepts/extinction.md); null: every key of the range.",
    )
    label: Annotated[Text, StringConstraints(min_length=1, max_length=LABEL_MAX_CHARS)]
    confirm_keys_never_reused: bool = Field(
        default=False,
        description="true: the application's word that these keys will never be used again.",
    )
    plan_id: str | None = Field(
        default=None,
        pattern=r"^job_[0-9a-z]{26}$",
        description="Discard only if nothing but records of this plan goes, else 412. The range must be the"
        " plan's.",
    )
    max_drift: MaxDrift | None = Field(
        default=None,
        description="With plan_id: how many of the reviewed records may be gone by now, a number or a share"
        " below 1; more are 412. Without it any number may.",
    )
    reason: Text | None = Field(default=None, max_length=500)

    @model_validator(mode="after")
    def _drift_of_plan(self) -> "ExtinctionRequest":
        if self.max_drift is not None and self.plan_id is None:
            raise ValueError(DRIFT_WITHOUT_PLAN)
        return self


class AttestRequest(Model):
    """An admin says that the application which has the environment has its filter installed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"statement": "FILTER_INSTALLED", "reason": "release 4.2 runs on all nodes"}]
        },
    )

    statement: Literal["FILTER_INSTALLED"] = Field(
        description="The ExtinctionFilter is installed wherever the environment is opened, and says"
        " EXTINCT of every key of this extinction.",
    )
    reason: Annotated[Text, StringConstraints(min_length=1, max_length=500)]


class AttestedRead(Model):
    """Who has attested that the application's filter is installed, when and why."""

    by: str
    at: datetime
    reason: str


class ExtinctionRead(Model):
    """An extinction at a store."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": EXAMPLE_ID,
                    "store": "orders",
                    "state": "DONE",
                    "active": False,
                    "origin": "LOCAL",
                    **_RANGE,
                    "reason": "retention of 18 months",
                    "requested_by": "cleanup",
                    "csn": "6aff000a000000010000",
                    "records": 120_000,
                    "bytes": 9_600_000,
                    "hint": None,
                    "job_id": "job_01k9x2m4c6d8e0f2g4h6j8k0mp",
                    "created_at": "2026-11-20T10:54:39Z",
                    "logged_at": "2026-11-20T10:54:39Z",
                    "done_at": "2026-11-20T10:55:02Z",
                    "java_filter": False,
                    "attested": None,
                }
            ]
        }
    )

    id: str
    store: str
    state: ExtinctionState
    active: bool = Field(description="isRecordExtinctionActive: its work here is not over.")
    origin: ExtinctionOrigin
    databases: list[str] = Field(description="REPLICA: in base64. JE: names as they are.")
    start_key: str | None
    end_key: str | None
    filter: dict[str, Any] | None
    label: str
    reason: str | None
    requested_by: str | None
    csn: str | None = Field(description="Of its record; null at a JE store.")
    records: int = Field(description="REPLICA: removed here. JE: matching ones in the log.")
    bytes: int = Field(description="Octets of their keys and values.")
    hint: str | None
    job_id: str | None
    created_at: datetime
    logged_at: datetime | None
    done_at: datetime | None
    java_filter: bool = Field(
        description="Found in a JE log with a filter that only JE can evaluate: its keys may be extinct."
    )
    attested: AttestedRead | None = Field(
        description="JE: what slots still lead to is erased too; null: nobody has said that it may be."
    )


class ExtinctionPlanRead(Model):
    """What an extinction would reach now; nothing is written."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "plan_id": "job_01k9x2m4c6d8e0f2g4h6j8k0mp",
                    "store": "orders",
                    "records": 120_000,
                    "bytes": 9_600_000,
                    "hint": None,
                    "limits": {
                        "max_rows": 1_000_000,
                        "max_fraction": None,
                        "max_bytes": None,
                        "exceeded": [],
                    },
                    "expires_at": "2026-11-21T10:54:39Z",
                }
            ]
        }
    )

    plan_id: str
    store: str
    records: int
    bytes: int
    hint: str | None
    limits: LimitsRead
    expires_at: datetime = Field(description="Until then `plan_id` may be executed.")


class StatusQuery(Model):
    """Keys of one database that are to be judged."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"database": "b3JkZXJz", "dups": False, "keys": ["MjAyNC0wMS0wMQ=="]}]
        },
    )

    database: DatabaseName = Field(description="REPLICA: in base64. JE: its name as it is.")
    dups: bool = Field(
        default=False,
        description="The database has duplicates, which is assumed to mean that it is secondary: `keys` are"
        " the primary keys, which are its records' data.",
    )
    keys: list[Key] = Field(max_length=KEYS_MAX)


class MaybeBecause(Model):
    """Why keys may be extinct; `detail` is for people."""

    code: str = Field(
        description="STARTING, ALWAYS_MAYBE, TARGET, ANNOUNCED, RESERVED, JAVA_FILTER, LOG_NOT_READ, LOG_GAP,"
        " SECONDARY_RANGE."
    )
    detail: str


class StatusAnswer(Model):
    """A verdict for each key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"statuses": ["EXTINCT", "NOT_EXTINCT"], "version": 7, "maybe_because": []}]
        }
    )

    statuses: list[ExtinctionStatus] = Field(description="In the order of the keys.")
    version: int = Field(description="Of the filter that has judged; it only grows.")
    maybe_because: list[MaybeBecause]


class BundleExtinction(Model):
    """An extinction as the bundle has it."""

    id: str
    databases: list[str]
    start_key: str | None
    end_key: str | None
    filter: dict[str, Any] | None
    label: str


class ExtinctionBundleRead(Model):
    """The whole filter of a store, to be evaluated elsewhere (`lethe_client.extinction_filter`)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "format": 1,
                    "store": "orders",
                    "version": 7,
                    "databases_are": "BASE64",
                    "everything_maybe": False,
                    "maybe_because": [],
                    "extinctions": [{"id": EXAMPLE_ID, **_RANGE}],
                    "maybe": [],
                }
            ]
        }
    )

    format: int = Field(description="Of this document: whoever does not know it must answer MAYBE_EXTINCT.")
    store: str
    version: int = Field(description="Grows whenever what the filter says has changed.")
    databases_are: str = Field(description="BASE64 or UTF8.")
    everything_maybe: bool = Field(description="No key can be judged now: all are MAYBE_EXTINCT.")
    maybe_because: list[MaybeBecause]
    extinctions: list[BundleExtinction] = Field(description="Their keys are EXTINCT.")
    maybe: list[BundleExtinction] = Field(description="Their keys are MAYBE_EXTINCT.")


class LackingPeerRead(Model):
    """A peer that has not announced that it knows extinctions."""

    role: str = Field(description="CONSUMER or SUPPLIER.")
    peer: str
    rid: int | None = Field(description="null: it was never heard of.")
    heard: bool = Field(description="It has said what it knows.")


class AvailabilityRead(Model):
    """isRecordExtinctionAvailable, and who stands in the way."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"available": True, "lacking": []}]})

    available: bool
    lacking: list[LackingPeerRead]


class ForgetRequest(Model):
    """A supplier that will not come again."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"supplier": "orders-a/1", "reason": "switched off with its data centre"}]
        },
    )

    supplier: Annotated[Text, StringConstraints(min_length=1, max_length=SUPPLIER_MAX_CHARS)] = Field(
        description="The `peer` of a SUPPLIER in `lacking`: its store and replica id."
    )
    reason: Annotated[Text, StringConstraints(min_length=1, max_length=500)]


def read_availability(lacking: Iterable[LackingPeer]) -> AvailabilityRead:
    """The availability with these peers in its way."""
    found = [LackingPeerRead(**asdict(each)) for each in lacking]
    return AvailabilityRead(available=not found, lacking=found)


class AcceptGapRequest(Model):
    """Why nothing can have been discarded in the files that went unread."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"reason": "the application has discarded nothing since May"}]},
    )

    reason: Annotated[Text, StringConstraints(min_length=1, max_length=500)]


class AcceptedGapRead(Model):
    """What was accepted."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"store": "orders", "gap": "files behind 0000001a.jdb went before they were read"}]
        }
    )

    store: str
    gap: str | None = Field(description="What had gone unread; null: nothing had.")


class PlanParams(Model):
    """The extinction as its record would be, and the store's target as it was."""

    plan: Literal["EXTINCTION"] = "EXTINCTION"
    extinction: str
    target: dict[str, Any] = Field(default_factory=dict)
