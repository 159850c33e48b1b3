"""Erasure cycles as tables: the cycle, its files, what is planned in each, and the sums of a store.

Times that a file carries are kept as the file system and JE have them (`_ms`, `_ns`); the others are
instants.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, String, Text
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


class CycleState(StrEnum):
    """Where a cycle stands (design.md, Erase). The first two are active."""

    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"
    EXPIRED = "EXPIRED"
    DROPPED = "DROPPED"
    ABORTED = "ABORTED"
    FAILED = "FAILED"


ACTIVE = frozenset({CycleState.RUNNING, CycleState.SUSPENDED})


class CycleStep(StrEnum):
    """How far a cycle is with itself; each is noted when it is reached."""

    NEW = "NEW"  # nothing was read
    HEADERS = "HEADERS"  # creation times are being read
    SELECTED = "SELECTED"  # the files are chosen, the throttle has its rate
    PLANNED = "PLANNED"  # the plan is kept
    DONE = "DONE"


class EraseKind(StrEnum):
    """What is erased: the four `je.erase.*` parameters by name. The last one brings the others with it."""

    DELETED_DATABASES = "DELETED_DATABASES"
    EXTINCT_RECORDS = "EXTINCT_RECORDS"
    KNOWN_OBSOLETE_ENTRIES = "KNOWN_OBSOLETE_ENTRIES"
    ALL_OBSOLETE_ENTRIES = "ALL_OBSOLETE_ENTRIES"


class Origin(StrEnum):
    """Who began a cycle: a request, or the store's own parameters."""

    REQUEST = "REQUEST"
    PARAMETERS = "PARAMETERS"


class FileState(StrEnum):
    """Where a file of a cycle stands. PENDING and IN_WORK are what remains."""

    NOT_SELECTED = "NOT_SELECTED"  # too young when the cycle began, or the last file
    PENDING = "PENDING"
    IN_WORK = "IN_WORK"  # its first write has been announced in this row
    ERASED = "ERASED"  # every planned entry is erased, and proved
    CLEAN = "CLEAN"  # there was nothing to erase
    DELETED = "DELETED"  # a reserved file that Lethe has deleted
    ALREADY_DELETED = "ALREADY_DELETED"  # it vanished under us
    KEPT = "KEPT"  # `causes` forbid it, and this cycle does not ask again
    REFUSED = "REFUSED"  # see `refusal`
    UNPROVEN = "UNPROVEN"  # a failed fsync, or bytes that are not what they should be


REMAINING = frozenset({FileState.PENDING, FileState.IN_WORK})


class EraserCounts(SQLModel):
    """The document's stats that count; read_bytes and write_bytes are real bytes."""

    files_erased: int = Field(default=0, sa_type=BigInteger)
    files_deleted: int = Field(default=0, sa_type=BigInteger)
    files_already_deleted: int = Field(default=0, sa_type=BigInteger)
    fsyncs: int = Field(default=0, sa_type=BigInteger)
    reads: int = Field(default=0, sa_type=BigInteger)
    read_bytes: int = Field(default=0, sa_type=BigInteger)
    writes: int = Field(default=0, sa_type=BigInteger)
    write_bytes: int = Field(default=0, sa_type=BigInteger)


COUNTS = tuple(EraserCounts.model_fields)


class ErasureCycle(EraserCounts, table=True):
    """One cycle of one store; it has one job.

    Attributes:
        period_s: where it was given as one: it is both the age of the files and the length of the cycle.
        duration_s: 0: no throttle, no end, no rest.
        follows_period, follows_kinds: taken from the store's parameters, so that a change of them acts.
        cutoff_at: files created at or before it are selected.
        ends_at: None where the duration is 0, and before the start.
        process: of the service that last worked at it: another one resumes it.
        next_at: of the throttle: no work before it.
        debt_bytes: of `PATCH /throttle`: what a wait was cut off with.
        plan: first_active, checkpoint_lsn, vetoed, vetoed_count, missing_count, vlsn, torn_at, nodes_wait,
            after_checkpoint, planned_at, signature (what of the log it was made from), plans (how often
            it was made).
        incomplete: causes of what remained at the end, by cause.
        followed: whether a fresh cycle was begun for an EXPIRED or DROPPED one.
    """

    __tablename__ = "erasure_cycles"
    __table_args__ = (Index("ix_erasure_cycles_store", "store", "id"),)

    id: str = Field(primary_key=True, max_length=40)
    store: str = Field(max_length=63)
    job_id: str = Field(
        sa_column=Column(
            String(40), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, unique=True, index=True
        )
    )
    state: CycleState = Field(default=CycleState.RUNNING, sa_type=String(12))
    step: CycleStep = Field(default=CycleStep.NEW, sa_type=String(12))
    origin: Origin = Field(default=Origin.REQUEST, sa_type=String(12))
    mode: str | None = Field(default=None, max_length=8, description="Of the plan: CLOSED or LIVE.")
    engine: str = Field(default="INLINE", max_length=8)
    period_s: float | None = None
    min_file_age_s: float
    duration_s: float
    follows_period: bool = False
    follows_kinds: bool = False
    kinds: list[str] = Field(default_factory=list, sa_type=JSON_TYPE)
    process: str | None = Field(default=None, max_length=40)
    created_at: datetime = Field(sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    cutoff_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ends_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    total_units: int = Field(default=0, sa_type=BigInteger)
    done_units: int = Field(default=0, sa_type=BigInteger)
    ms_per_unit: float = 0.0
    next_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    debt_bytes: int = Field(default=0, sa_type=BigInteger)
    files_selected: int = 0
    files_remaining: int = 0
    plan: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    incomplete: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    followed: bool = False
    version: int = 1
    updated_at: datetime = Field(sa_type=UtcDateTime)


class ErasureFile(SQLModel, table=True):
    """One data file of a cycle.

    Attributes:
        identity: device, inode, size, links and mtime_ns as planned; mtime_ns is that before the first write.
        causes: why nothing of it may be erased, the weightiest first: [[cause, what there is to say]].
        planned, kept: reason or cause -> [entries, bytes of their items].
        entry_count: rows of the plan; rows_done: of them, those whose rounds have ended.
        done_offset: up to here the throttle has been charged for what was written.
        passes: how often work at it was begun or taken up again.
        fsync_s: seconds that the fsyncs took, at most FSYNC_TIMES_MAX of them.
        refusal: code, detail, ref, offset, step of what ended it or last held it up.
        charged_units: what the throttle has been charged for it.
        prepares: how often it was hashed before a write; every time but the first is redundant.
        extinct: id of an extinction -> [entries, bytes of their items] that are erased by it.
        in_use: offsets of those of them that slots lead to, as PlannedFile.in_use.
    """

    __tablename__ = "erasure_files"

    cycle_id: str = Field(
        sa_column=Column(String(40), ForeignKey("erasure_cycles.id", ondelete="CASCADE"), primary_key=True)
    )
    number: int = Field(sa_type=BigInteger, primary_key=True)
    state: FileState = Field(default=FileState.PENDING, sa_type=String(16))
    size_bytes: int = Field(default=0, sa_type=BigInteger)
    created_ms: int | None = Field(default=None, sa_type=BigInteger)
    identity: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    causes: list[Any] = Field(default_factory=list, sa_type=JSON_TYPE)
    planned: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    kept: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)
    is_reserved: bool = False
    is_barren: bool = False
    mode: str | None = Field(default=None, max_length=8, description="That its plan is good for.")
    entry_count: int = 0
    rows_done: int = 0
    rounds: int = 0
    passes: int = 0
    done_offset: int = Field(default=0, sa_type=BigInteger)
    charged_units: int = Field(default=0, sa_type=BigInteger)
    prepares: int = 0
    was_written: bool = False
    sha256_before: str | None = Field(default=None, max_length=64)
    sha256_expected: str | None = Field(default=None, max_length=64)
    sha256_after: str | None = Field(default=None, max_length=64)
    mtime_before_ns: int | None = Field(default=None, sa_type=BigInteger)
    first_write_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    fsync_s: list[float] = Field(default_factory=list, sa_type=JSON_TYPE)
    fsyncs: int = Field(default=0, sa_type=BigInteger)
    reads: int = Field(default=0, sa_type=BigInteger)
    read_bytes: int = Field(default=0, sa_type=BigInteger)
    writes: int = Field(default=0, sa_type=BigInteger)
    write_bytes: int = Field(default=0, sa_type=BigInteger)
    refusal: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    is_proved: bool | None = None
    proved_by: str | None = Field(default=None, max_length=20, description="How its bytes were read.")
    entries_erased: int | None = None
    extinct: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    in_use: bytes | None = Field(default=None, sa_type=LargeBinary, nullable=True)


class ErasureEntries(SQLModel, table=True):
    """The planned entries of a file (spark.erase.plan.plan.PLANNED, Arrow IPC); gone with its end."""

    __tablename__ = "erasure_entries"

    cycle_id: str = Field(
        sa_column=Column(String(40), ForeignKey("erasure_cycles.id", ondelete="CASCADE"), primary_key=True)
    )
    number: int = Field(sa_type=BigInteger, primary_key=True)
    entries: bytes = Field(sa_type=LargeBinary)


class ErasureStore(EraserCounts, table=True):
    """What is known of the eraser of a store: its sums over all cycles, and the switches as last seen.

    Attributes:
        seen_enabled, seen_period_s: of the parameters; a change of them begins a cycle after an abort.
        trouble: why the last look began none.
    """

    __tablename__ = "erasure_stores"

    store: str = Field(primary_key=True, max_length=63)
    seen_enabled: bool = False
    seen_period_s: float = 0.0
    trouble: str | None = Field(default=None, sa_type=Text)
    updated_at: datetime = Field(sa_type=UtcDateTime)
