"""What jobs were told, a class for each kind; `job_kinds` says which is whose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.results import Raw, Result


@dataclass(frozen=True, kw_only=True)
class PurgeParams(Result):
    """The snapshot of a purge at its submission; every attempt uses it."""

    kind: str = ""
    cutoff: datetime | None = None
    retention_minutes: Raw | None = None
    default_retention_minutes: Raw = field(default_factory=dict)
    channel_retention_minutes: Raw = field(default_factory=dict)
    channel_cutoffs: Raw | None = None
    stranded: str = ""
    stranded_by: str | None = None
    stranded_nodes: tuple[Any, ...] | None = None
    strict: bool = False
    data_rows_in_tx: int | None = None
    event_batches_in_tx: int | None = None
    batches_in_tx: int | None = None
    archive: Raw | None = None
    engine: str | None = None
    throttle: Raw | None = None
    force: bool = False
    overlap: str = ""
    plan_id: str | None = None
    max_drift: Any = None
    max_rows: int | None = None
    max_fraction: float | None = None
    archive_retention: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ChangelogPurgeParams(Result):
    """The snapshot of a trimming at its submission; every attempt uses it."""

    kind: str = ""
    cutoff: datetime | None = None
    retention: timedelta | None = None
    retention_source: str = ""
    max_entries: int | None = None
    max_entries_source: str = ""
    rows_in_tx: int | None = None
    archive: bool = False
    archive_retention: str = ""
    throttle: Raw | None = None
    overlap: str = ""
    plan_id: str | None = None
    max_drift: Any = None
    planned_upto: Mapping[str, Any] | None = None
    planned: Mapping[str, Any] | None = None
    max_rows: int | None = None
    max_fraction: float | None = None
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TombstonePurgeParams(Result):
    """The snapshot of a purge of tombstones at its submission; every attempt uses it."""

    kind: str = ""
    cutoff: datetime | None = None
    retention: timedelta | None = None
    retention_source: str = ""
    gone_rids: tuple[int, ...] = ()
    rows_in_tx: int | None = None
    archive: bool = False
    archive_retention: str = ""
    throttle: Raw | None = None
    force: bool = False
    overlap: str = ""
    plan_id: str | None = None
    max_drift: Any = None
    planned_upto: str | None = None
    planned: Mapping[str, Any] | None = None
    max_rows: int | None = None
    max_fraction: float | None = None
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ErasureParams(Result):
    """The snapshot of a cycle at its submission."""

    plan: str | None = None
    period: timedelta | None = None
    min_file_age: timedelta | None = None
    duration: timedelta | None = None
    follows_period: bool = False
    follows_kinds: bool = False
    kinds: tuple[str, ...] = ()
    engine: str | None = None
    throttle: Raw | None = None
    origin: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)
    plan_id: str | None = None
    max_drift: Any = None
    cutoff: datetime | None = None
    planned_entries: int | None = None


@dataclass(frozen=True, kw_only=True)
class ErasureVerifyParams(Result):
    """The cycle whose proof is held against the environment."""

    cycle: str = ""
    engine: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExtinctionParams(Result):
    """The extinction whose records are removed, or at JE counted."""

    extinction_id: str = ""
    plan_id: str | None = None
    planned: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicationSessionParams(Result):
    """The snapshot of a session at its submission."""

    agreement_id: str = ""
    mode: str = ""
    strategy: str = ""
    max_changes: int | None = None
    max_duration: timedelta | None = None
    discard_consumer_changes: bool = False
    batch_rows: int = 0
    batch_bytes: int = 0
    in_flight: int = 0
    engine: str | None = None
    throttle: Raw | None = None
    consumer: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AuditParams(Result):
    """The snapshot of an audit at its submission."""

    agreement_id: str = ""
    range: Mapping[str, Any] | None = None
    entries: bool = False
    engine: str | None = None
    consumer: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReplicaExportParams(Result):
    """The snapshot of an export at its submission."""

    path: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SlonyFeedParams(Result):
    """The snapshot of a feed at its submission."""

    source: str = ""
    sets: tuple[int, ...] = ()
    tables: tuple[str, ...] = ()
    prefix: str = ""
    first_copy: bool = False
    syncs_max: int | None = None
    target: Mapping[str, Any] = field(default_factory=dict)
    node: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReplicaImportParams(Result):
    """The snapshot of an import at its submission."""

    path: str = ""
    signed_by: str | None = None
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EventCleanupParams(Result):
    """The snapshot of a cleanup at its submission; every attempt uses it."""

    plan: str = ""
    confirmed_before: datetime | None = None
    interval: timedelta | None = None
    interval_source: str = ""
    via: str | None = None
    rule: str = ""
    log_switch: str = ""
    archive: bool = False
    archive_retention: str = ""
    max_rows_in_tx: int | None = None
    engine: str | None = None
    throttle: Raw | None = None
    overlap: str = ""
    plan_id: str | None = None
    max_drift: Any = None
    planned: Mapping[str, Any] | None = None
    planned_bounds: Mapping[str, Any] = field(default_factory=dict)
    planned_confirmations: tuple[Any, ...] = ()
    max_rows: int | None = None
    max_fraction: float | None = None
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LogSwitchParams(Result):
    """The snapshot of a switch at its submission; every attempt uses it."""

    action: str = ""
    timeout: timedelta | None = None
    overlap: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EventSyncParams(Result):
    """The snapshot of a request for a SYNC at its submission; every attempt uses it."""

    interval: timedelta | None = None
    target: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EventWaitParams(Result):
    """The snapshot of a wait at its submission; every attempt uses it."""

    origin: Any = None
    confirmed: Any = None
    wait_on: int = 0
    wait_on_store: str = ""
    timeout: timedelta | None = None
    awaited: tuple[Raw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ArchiveVerifyParams(Result):
    """The archive to verify, and what reads it."""

    archive: str = ""
    engine: str | None = None


@dataclass(frozen=True, kw_only=True)
class ArchiveRestoreParams(Result):
    """The archive to restore, and where to."""

    archive: str = ""
    into: Raw = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BatchParams(Result):
    """What each store is to do."""

    kind: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    stores: tuple[str, ...] = ()
    refused: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExtinctionPlanParams(Result):
    """The snapshot of a plan: the extinction as its record would be."""

    plan: str = ""
    extinction: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)
