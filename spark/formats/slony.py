"""The catalog of a Slony-I cluster: names, the state of its two log tables, snapshots of transactions.

An event is (origin, seqno); a confirmation (origin, receiver, seqno) says that the receiver has processed
every event of the origin up to it. The schema of a cluster NAME is `_NAME`.
Source: slony-events-confirmations; facts/slony, sections 1, 3 and 5.
"""

from enum import IntEnum
from typing import Final

SYNC: Final = "SYNC"
CLUSTER_MAX_CHARS: Final = 62
"""An identifier of PostgreSQL less the underscore before it."""
NODE_UNINITIALISED: Final = -1
SEQNO_MAX: Final = 2**63 - 1
NODE_MAX: Final = 2**31 - 1

LOG_TABLES: Final = ("sl_log_1", "sl_log_2")
CONFIG_LOCK: Final = "sl_config_lock"
WAIT_TIMEOUT_DEFAULT_S: Final = 600

TABLES: Final = (
    "sl_node",
    "sl_path",
    "sl_listen",
    "sl_set",
    "sl_subscribe",
    "sl_setsync",
    "sl_event",
    "sl_confirm",
    "sl_log_1",
    "sl_log_2",
    "sl_log_script",
    "sl_seqlog",
    "sl_registry",
    "sl_config_lock",
)
"""What must be there for a schema to be a cluster's; the sequences sl_log_status and sl_local_node_id too."""


def schema_of(cluster: str) -> str:
    """The schema that holds a cluster's catalog."""
    return f"_{cluster}"


class LogStatus(IntEnum):
    """The sequence sl_log_status: which log table is written, and whether the other is to be emptied."""

    LOG_1 = 0
    LOG_2 = 1
    LOG_1_CLEANING_2 = 2
    LOG_2_CLEANING_1 = 3

    @property
    def active(self) -> str:
        """The log table that writers write."""
        return LOG_TABLES[self & 1]

    @property
    def other(self) -> str:
        """The log table that is empty, or is to be emptied."""
        return LOG_TABLES[1 - (self & 1)]

    @property
    def is_switching(self) -> bool:
        """Whether the other table is still to be emptied."""
        return bool(self & 2)

    @property
    def started(self) -> "LogStatus":
        """What logswitch_start makes of it."""
        assert not self.is_switching
        return LogStatus.LOG_2_CLEANING_1 if self is LogStatus.LOG_1 else LogStatus.LOG_1_CLEANING_2

    @property
    def finished(self) -> "LogStatus":
        """What logswitch_finish makes of it once the other table is empty."""
        return LogStatus(self & 1)
