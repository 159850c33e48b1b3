"""Scopes, and the roles that bundle them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """What a token may do."""

    STORES_READ = "stores:read"
    STORES_WRITE = "stores:write"
    JOBS_READ = "jobs:read"
    JOBS_CONTROL = "jobs:control"
    DATA_READ = "data:read"
    EVENTS_WAIT = "events:wait"
    EVIDENCE_VERIFY = "evidence:verify"
    PURGES_WRITE = "purges:write"
    ERASURE_WRITE = "erasure:write"
    EXTINCTIONS_WRITE = "extinctions:write"
    BACKUPS_WRITE = "backups:write"
    REPLICATION_WRITE = "replication:write"
    REPLICATION_PEER = "replication:peer"
    CHANGES_WRITE = "changes:write"
    EVENTS_WRITE = "events:write"
    PARAMETERS_WRITE = "parameters:write"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    SCHEDULES_WRITE = "schedules:write"
    WINDOWS_WRITE = "windows:write"
    AUDIT_READ = "audit:read"
    ADMIN = "admin"


_NAMES: Final = frozenset(map(str, Scope))


class Role(StrEnum):
    """A named bundle of scopes."""

    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    BACKUP = "backup"
    PEER = "peer"
    WRITER = "writer"


_READING = frozenset({Scope.STORES_READ, Scope.JOBS_READ})

ROLES: dict[Role, frozenset[Scope]] = {
    Role.ADMIN: frozenset({Scope.ADMIN}),
    Role.OPERATOR: _READING
    | {
        Scope.JOBS_CONTROL,
        Scope.DATA_READ,
        Scope.EVENTS_WAIT,
        Scope.EVIDENCE_VERIFY,
        Scope.PURGES_WRITE,
        Scope.ERASURE_WRITE,
        Scope.EXTINCTIONS_WRITE,
        Scope.BACKUPS_WRITE,
        Scope.REPLICATION_WRITE,
        Scope.EVENTS_WRITE,
        Scope.PARAMETERS_WRITE,
        Scope.WEBHOOKS_READ,
        Scope.SCHEDULES_WRITE,
    },
    Role.VIEWER: _READING | {Scope.AUDIT_READ},
    Role.BACKUP: _READING | {Scope.BACKUPS_WRITE},
    Role.PEER: frozenset({Scope.REPLICATION_PEER}),
    Role.WRITER: frozenset({Scope.CHANGES_WRITE, Scope.STORES_READ, Scope.DATA_READ}),
}


def known_scopes(names: Iterable[str]) -> list[Scope]:
    """The scopes of a token's row; one that only a newer version knows, which may work beside us, is none."""
    return [Scope(name) for name in names if name in _NAMES]


def implied(scopes: frozenset[Scope]) -> frozenset[Scope]:
    """`admin` holds every scope."""
    return frozenset(Scope) if Scope.ADMIN in scopes else scopes
