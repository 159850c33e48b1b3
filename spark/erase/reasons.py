"""Why an entry is erased, why one is not, and which of the document's parameters switches what."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final


class Reason(IntEnum):
    """Why an entry may go, in the order in which the reasons are asked: the first that holds counts."""

    UNFINISHED_ERASURE = 1
    DELETED_DATABASE = 2
    ABORTED = 3
    DELETED_RECORD = 4
    SUPERSEDED = 5
    EMBEDDED = 6
    DUPLICATE = 7
    OLD_NODE = 8
    EXPIRED = 9
    EXTINCT = 10


class Cause(StrEnum):
    """Why something stays that would otherwise go, or could."""

    # Of a whole file.
    TAIL_OF_LOG = "TAIL_OF_LOG"
    RECOVERY_INTERVAL = "RECOVERY_INTERVAL"
    VLSN_INDEX = "VLSN_INDEX"
    NO_VLSN = "NO_VLSN"
    HARD_LINKED = "HARD_LINKED"
    PROTECTED = "PROTECTED"
    TOO_YOUNG = "TOO_YOUNG"
    COMPARATOR = "COMPARATOR"
    DEFERRED_WRITE = "DEFERRED_WRITE"
    EXTINCTION_METADATA = "EXTINCTION_METADATA"
    # Of an entry.
    VETOED = "VETOED"
    NEEDED_FOR_ABORT = "NEEDED_FOR_ABORT"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    KEYS_DIFFER = "KEYS_DIFFER"
    EXPIRED_NOT_ENABLED = "EXPIRED_NOT_ENABLED"
    SWITCHED_OFF = "SWITCHED_OFF"
    MAYBE_EXTINCT = "MAYBE_EXTINCT"
    # Of an entry, in an environment that is in use.
    NODES_WAIT = "NODES_WAIT"
    INTERNAL_DATABASE = "INTERNAL_DATABASE"
    UNSETTLED = "UNSETTLED"
    # Of a file or an entry, where a reviewed plan is executed.
    NOT_REVIEWED = "NOT_REVIEWED"


@dataclass(frozen=True, slots=True)
class Switches:
    """The four `je.erase.*` parameters of kinds. As in JE, the last one brings the others with it."""

    deleted_databases: bool = True
    extinct_records: bool = True
    known_obsolete_entries: bool = True
    erase_all_obsolete_entries: bool = True

    def allows(self, reason: Reason) -> bool:
        """Whether a kind is erased. What an earlier run began is always finished."""
        if self.erase_all_obsolete_entries or reason == Reason.UNFINISHED_ERASURE:
            return True
        if reason == Reason.DELETED_DATABASE:
            return self.deleted_databases
        if reason == Reason.EXTINCT:
            return self.extinct_records
        return reason in KNOWN_OBSOLETE and self.known_obsolete_entries


# What an entry tells by itself; the other kinds need a look at the tree or the rest of the log.
KNOWN_OBSOLETE: Final = frozenset({Reason.DELETED_RECORD, Reason.EMBEDDED, Reason.DUPLICATE, Reason.EXPIRED})
