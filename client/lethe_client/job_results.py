"""What jobs tell at their end, a class for each kind; `job_kinds` says which is whose.

A purge, a cleanup or a trimming that was stopped tells what it had done by then; its other fields are None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.results import Raw, Result


@dataclass(frozen=True, kw_only=True)
class KeptArchive(Result):
    """The archive of what a job removed; `error` says why it has no manifest yet."""

    directory: str = ""
    counts: str | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    error: Raw | None = None


@dataclass(frozen=True, kw_only=True)
class PurgeResult(Result):
    """What a purge of the tables of a SymmetricDS store has removed."""

    cutoff: datetime | None = None
    cutoff_local: str | None = None
    retention_minutes: int | None = None
    retention_source: str | None = None
    channel_cutoffs: Mapping[str, Any] | None = None
    layout: str | None = None
    counts: str = ""
    removed: Mapping[str, Any] = field(default_factory=dict)
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None
    stranded: Raw | None = None
    resent_after_purge: Raw | None = None
    nodes: int | None = None
    compared: str | None = None
    archive: KeptArchive | None = None
    units: int = 0
    longest_hold_ms: int | None = None
    warnings: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ChangelogPurgeResult(Result):
    """What a purge CHANGELOG has removed."""

    kind: str = ""
    cutoff: datetime | None = None
    retention_minutes: int | None = None
    retention_source: str | None = None
    max_entries: int | None = None
    max_entries_source: str | None = None
    counts: str = ""
    removed: Mapping[str, Any] = field(default_factory=dict)
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None
    rows_left: int | None = None
    rows_over_max_entries: int | None = None
    rids: tuple[Raw, ...] = ()
    archive: KeptArchive | None = None
    units: int = 0
    longest_hold_ms: int | None = None
    warnings: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class TombstonePurgeResult(Result):
    """What a purge TOMBSTONES has removed; `held_by` names who still needs what is above `ceiling`."""

    kind: str = ""
    cutoff: datetime | None = None
    retention_minutes: int | None = None
    retention_source: str | None = None
    gone_rids: tuple[int, ...] | None = None
    counts: str = ""
    removed: Mapping[str, Any] = field(default_factory=dict)
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None
    rows_left: int | None = None
    ceiling: str | None = None
    held_by: tuple[str, ...] | None = None
    buried: str | None = None
    rids: tuple[Raw, ...] | None = None
    archive: KeptArchive | None = None
    units: int = 0
    longest_hold_ms: int | None = None
    warnings: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ErasureResult(Result):
    """What a cycle leaves behind."""

    erasure_cycle_id: str = ""
    state: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    remaining: int = 0
    remaining_by_cause: Mapping[str, Any] = field(default_factory=dict)
    vetoed: int = 0
    erased: Mapping[str, Any] | None = None
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None
    stats: Raw = field(default_factory=dict)
    warnings: tuple[Raw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ErasureVerifyResult(Result):
    """What a verification has compared."""

    erasure_cycle_id: str = ""
    verified: bool = False
    faults_count: int = 0
    faults: tuple[Raw, ...] = ()
    explained_count: int = 0
    explained: tuple[Raw, ...] = ()
    files_read: int = 0
    files_as_proved: int = 0
    erased_entries: int = 0
    erased_bytes: int = 0
    missing_count: int = 0
    checkpoint: str = ""
    first_active: str = ""
    was_written_meanwhile: bool = False


@dataclass(frozen=True, kw_only=True)
class ExtinctionResult(Result):
    """What an extinction has reached."""

    extinction_id: str = ""
    records: int = 0
    bytes: int = 0
    tombstones: int | None = None
    hint: str | None = None
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicationSessionResult(Result):
    """What a session has sent, and how it ended."""

    replication_session_id: str = ""
    outcome: str = ""
    counters: Mapping[str, Any] = field(default_factory=dict)
    acknowledged: int = 0
    windows: int = 0
    rows_read: int = 0
    batches: int = 0
    bytes: int = 0
    problem: Raw | None = None
    warnings: tuple[Raw, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class AuditResult(Result):
    """What an audit found."""

    agrees: bool = False
    complete: bool = False
    reason: str | None = None
    supplier_ruv: Mapping[str, Any] = field(default_factory=dict)
    consumer_ruv: Mapping[str, Any] | None = None
    rids: tuple[Raw, ...] = ()
    entries: Raw = field(default_factory=dict)
    differing: tuple[Raw, ...] = ()
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplicaImportResult(Result):
    """What an import has put in place; sessions go on from `ruv`."""

    path: str = ""
    rid: int = 0
    generation: str = ""
    ruv: Mapping[str, Any] = field(default_factory=dict)
    taken_at: datetime | None = None
    entries: int = 0
    tombstones: int = 0
    extinctions: int = 0
    signed_by: str = ""


@dataclass(frozen=True, kw_only=True)
class ReplicaExportResult(ReplicaImportResult):
    """What an export has written; `sha256` is of the whole file."""

    bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class SlonyFeedResult(Result):
    """What a feed has brought, and the SYNC at which the replica stands."""

    origin: int = 0
    seqno: int = 0
    snapshot: str = ""
    at: datetime | None = None
    newest_seqno: int = 0
    copied: bool = False
    rows_copied: int = 0
    syncs: int = 0
    records: int = 0
    scripts: int = 0
    scripted_seqno: int | None = None


@dataclass(frozen=True, kw_only=True)
class EventCleanupResult(Result):
    """What a cleanup has removed, what stays, and what became of the log tables."""

    via: str | None = None
    rule: str | None = None
    confirmed_before: datetime | None = None
    interval: timedelta | None = None
    interval_source: str | None = None
    counts: str = ""
    removed: Mapping[str, Any] = field(default_factory=dict)
    planned_rows: int | None = None
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None
    fewer_than_planned: int | None = None
    origins: tuple[Raw, ...] | None = None
    log_switch: Raw | None = None
    classification: str | None = None
    differences: tuple[str, ...] | None = None
    archive: KeptArchive | None = None
    units: int = 0
    longest_hold_ms: int | None = None
    warnings: tuple[Raw, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class LogSwitchResult(Result):
    """How a log switch has ended."""

    action: str = ""
    outcome: str = ""
    started: bool = False
    status_before: int = 0
    status: int = 0
    active: str = ""
    emptied: str | None = None
    waited_for: timedelta | None = None
    warnings: tuple[Raw, ...] = ()
    blocked: Raw | None = None


@dataclass(frozen=True, kw_only=True)
class EventSyncResult(Result):
    """What became of a request for a SYNC."""

    outcome: str = ""
    origin: int = 0
    seqno: int | None = None
    last_seqno: int | None = None
    last_age: timedelta | None = None
    interval: timedelta | None = None
    has_own_slon: bool | None = None


@dataclass(frozen=True, kw_only=True)
class EventWaitResult(Result):
    """How a wait has ended."""

    awaited: tuple[Raw, ...] = ()
    wait_on: int = 0
    is_satisfied: bool = False
    origins_gone: tuple[int, ...] = ()
    pairs: int = 0
    outstanding: tuple[Raw, ...] = ()
    outstanding_total: int = 0
    looked_at: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ArchiveVerifyResult(Result):
    """What a verification of an archive has read."""

    files: int = 0
    rows: int = 0
    manifest: str = ""
    bad: tuple[Raw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ArchiveRestoreResult(Result):
    """What a restore has brought back."""

    units: int = 0
    rows: int = 0
    skipped: int = 0
    manifest: str = ""
    refused: tuple[Raw, ...] = ()
    warnings: tuple[Raw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchResult(Result):
    """What became of each store."""

    stores: Mapping[str, Any] = field(default_factory=dict)
