"""All entries of the runbook by their codes."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from app.runbook.entries import (
    access,
    attention,
    backups,
    command,
    configuration,
    erasure,
    extinction,
    jobs,
    logs,
    nodes,
    pool,
    replicas,
    replication,
    requests,
    states,
    stores,
    tables,
    targets,
    waits,
)
from app.runbook.entries.answers import (
    backlog,
    cluster,
    due_times,
    engines,
    erased,
    feeds,
    kinds,
    resent,
    said,
    vectors,
)
from app.runbook.entries.found import checks, ds389, files, metadata, plans, slony
from app.runbook.entry import Entry

NEAREST_MAX: Final = 5
SECTIONS: Final[Mapping[str, tuple[Entry, ...]]] = MappingProxyType(
    {
        "What needs somebody": attention.ENTRIES,
        "States": states.ENTRIES,
        "Messages of the command, notes of /readyz": command.ENTRIES,
        "What only jobs wait for": waits.ENTRIES,
        "Targets": targets.ENTRIES,
        "Jobs, plans, archives": jobs.ENTRIES,
        "Requests": requests.ENTRIES,
        "Tokens and what they may do": access.ENTRIES,
        "Stores and batches": stores.ENTRIES,
        "Purges of any table": tables.ENTRIES,
        "Secrets, parameters, webhooks, schedules, windows": configuration.ENTRIES,
        "Erasure and certificates": erasure.ENTRIES,
        "Logs of Berkeley DB JE": logs.ENTRIES,
        "Backups and protections": backups.ENTRIES,
        "Extinctions": extinction.ENTRIES,
        "Agreements and sessions of replicas": replication.ENTRIES,
        "Replicas, batches and peers": replicas.ENTRIES,
        "Slony-I": nodes.ENTRIES,
        "Spark": pool.ENTRIES,
        "Findings of checks, hazards of a cleanup, starts of Spark": checks.ENTRIES,
        "Health of Slony-I nodes": slony.ENTRIES,
        "Replicas of 389 Directory Server": ds389.ENTRIES,
        "Warnings of plans and results": plans.ENTRIES,
        "Files, keys, replicas, deliveries": files.ENTRIES,
        "The metadata and the audit": metadata.ENTRIES,
        "Answers: due times, health of stores": due_times.ENTRIES,
        "Answers: engines and the pool": engines.ENTRIES,
        "Answers: files of a cycle, extinctions, archives": erased.ENTRIES,
        "Answers: agreements, sessions, comparisons": vectors.ENTRIES,
        "Answers: events and log tables of Slony-I": cluster.ENTRIES,
        "Answers: batches that wait": resent.ENTRIES,
        "What waits to be delivered by SymmetricDS": backlog.ENTRIES,
        "Answers: change feeds and conditional writes": feeds.ENTRIES,
        "Answers: warnings and notes of jobs, what stays readable": said.ENTRIES,
        "Kinds of jobs, stores, purges, erasures, protections": kinds.ENTRIES,
    }
)
RUNBOOK: Final[Mapping[str, Entry]] = MappingProxyType(
    {entry.code: entry for entries in SECTIONS.values() for entry in entries}
)


ALSO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "401": "TOKEN_UNKNOWN",
        "LOGIN_REFUSED": "TOKEN_UNKNOWN",
        "UNAUTHORIZED": "TOKEN_UNKNOWN",
        "403": "SCOPE_MISSING",
        "DISK_FULL": "DATA_DIRECTORY_FULL",
        "NO_SPACE_LEFT_ON_DEVICE": "DATA_DIRECTORY_FULL",
        "ENOSPC": "DATA_DIRECTORY_FULL",
        "NO_ROOM": "DATA_DIRECTORY_FULL",
        "STALE_LOCK": "SYM_LOCK",
        "CERTIFICATE_VERIFY_FAILED": "PEER_CERTIFICATE_INVALID",
        "CYCLE_INCOMPLETE": "INCOMPLETE",
        "CYCLE_EXPIRED": "EXPIRED",
    }
)
"""Words that somebody sees in a log or types by heart, and the code that explains them."""


PREFIXES: Final = ("HAZARD_", "REPLICA_")
"""Of codes that an answer shows without: a plan's hazard is `LAST_SYNC`, its entry HAZARD_LAST_SYNC."""


def normal(code: str) -> str:
    """A code as it is written in the runbook, from what somebody typed: `target-unreachable`."""
    name = code.strip().removeprefix("urn:lethe:problem:").upper().replace("-", "_").replace(" ", "_")
    if name in RUNBOOK:
        return name
    longer = [prefix + name for prefix in PREFIXES if prefix + name in RUNBOOK]
    return longer[0] if longer else ALSO.get(name, name)


def nearest(code: str) -> list[str]:
    """The codes that look most like one that is not known; those that contain it first."""
    wanted = normal(code)
    within = [known for known in RUNBOOK if len(wanted) >= 3 and wanted in known]
    alike = get_close_matches(wanted, RUNBOOK, n=NEAREST_MAX, cutoff=0.6)
    return list(dict.fromkeys(within + alike))[:NEAREST_MAX]
