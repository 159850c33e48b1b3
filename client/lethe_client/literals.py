"""States and kinds as types, with the values that this version of the service knows.

A newer service may answer others, and they are handed on as they come: a type checker knows these. Each alias
has the name of its schema in the OpenAPI document. Made by `make client` from openapi/openapi.json: a name
more or less is one of setup/client_literals.py.
"""

from typing import Literal

AgreementState = Literal["REGISTERING", "REGISTERED", "REMOVED"]
AttentionCode = Literal[
    "JOB_FAILED",
    "SILENCE_UNPROVEN",
    "WAITS_LONG",
    "BACKUP_INVALID",
    "SESSION_HALTED",
    "SESSION_NEEDS_TOTAL",
    "SESSION_UNPROVEN",
    "SESSION_DIVERGED",
    "ERASURE_UNPROVEN",
    "REPLICA_RESTORED",
    "STORE_UNREADY",
    "CHECK_STALE",
    "INSTANCE_SILENT",
]
BackupMode = Literal["BACKUP", "NETWORK_RESTORE"]
BackupState = Literal["PREPARING", "ACTIVE", "ENDED", "EXPIRED", "INVALID", "FAILED"]
ConfirmationState = Literal["NEVER_CONFIRMED", "BEHIND", "CURRENT"]
CycleState = Literal[
    "RUNNING", "SUSPENDED", "COMPLETE", "INCOMPLETE", "EXPIRED", "DROPPED", "ABORTED", "FAILED"
]
DeliveryState = Literal["PENDING", "DELIVERED", "GIVEN_UP"]
EraseKind = Literal["DELETED_DATABASES", "EXTINCT_RECORDS", "KNOWN_OBSOLETE_ENTRIES", "ALL_OBSOLETE_ENTRIES"]
ExtinctionOrigin = Literal["LOCAL", "REPLICATED", "LOG"]
ExtinctionState = Literal["RESERVED", "LOGGED", "SCANNING", "DONE", "DROPPED"]
ExtinctionStatus = Literal["EXTINCT", "NOT_EXTINCT", "MAYBE_EXTINCT"]
FileState = Literal[
    "NOT_SELECTED",
    "PENDING",
    "IN_WORK",
    "ERASED",
    "CLEAN",
    "DELETED",
    "ALREADY_DELETED",
    "KEPT",
    "REFUSED",
    "UNPROVEN",
]
FindingSeverity = Literal["ERROR", "WARNING", "INFO"]
GrantState = Literal["OPEN", "CONSUMED", "REVOKED", "EXPIRED"]
HealthState = Literal["OK", "WARNING", "ERROR", "STALE", "UNKNOWN"]
JobKind = Literal[
    "ARCHIVE_RESTORE",
    "ARCHIVE_VERIFY",
    "AUDIT",
    "BATCH",
    "ERASURE",
    "ERASURE_VERIFY",
    "EVENT_CLEANUP",
    "EVENT_SYNC",
    "EVENT_WAIT",
    "EXTINCTION",
    "LOG_SWITCH",
    "PLAN",
    "PURGE",
    "REPLICATION_SESSION",
    "REPLICA_EXPORT",
    "REPLICA_IMPORT",
    "SLONY_FEED",
]
JobState = Literal[
    "QUEUED",
    "RUNNING",
    "WAITING",
    "PAUSING",
    "PAUSED",
    "ABORTING",
    "ABORTED",
    "SUCCEEDED",
    "FAILED",
    "ABANDONED",
]
PoolState = Literal["STOPPED", "STARTING", "READY", "REBUILDING", "DRAINING", "FAILED"]
ProtectionKind = Literal["BACKUP", "NETWORK_RESTORE", "SCAN", "FEEDER"]
ProtectionState = Literal["ACTIVE", "ENDED", "EXPIRED"]
PurgeKind = Literal[
    "OUTGOING",
    "INCOMING",
    "DATA_GAP",
    "EXTRACT_REQUEST",
    "REGISTRATION_REQUEST",
    "INCOMING_ERROR",
    "STATISTICS",
    "TRIGGER_HIST",
    "STRANDED",
    "CHANNELS",
    "CHANGELOG",
    "TOMBSTONES",
    "ROWS",
]
SessionOutcome = Literal[
    "UP_TO_DATE", "YIELDED", "NEEDS_TOTAL", "HALTED", "FAILED", "ABORTED", "DIVERGED", "UNPROVEN"
]
SessionState = Literal["PENDING", "ACQUIRING", "SENDING", "ENDED"]
Severity = Literal["ERROR", "WARNING"]
SlotState = Literal["IDLE", "LEASED"]
StoreKind = Literal["SYMMETRICDS", "JE", "REPLICA", "SLONY", "SQL", "DS389"]
StoreMode = Literal["CLOSED", "LIVE"]
StrandedMode = Literal["MARK", "SKIP", "REMOVE", "RECAPTURE"]
WindowKind = Literal["ALLOW", "DENY"]
