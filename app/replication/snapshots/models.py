"""Exports and imports of replicas over HTTP: the requests, the snapshots that jobs keep, the results."""

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StringConstraints

from app.kit.model import Model
from app.kit.values import Text
from app.replication.consumer.fields import RuvRead
from app.stores.fields import EnvironmentPath

JOB_EXPORT: Final = "REPLICA_EXPORT"
JOB_IMPORT: Final = "REPLICA_IMPORT"
KEY_PATTERN: Final = "^[0-9a-f]{64}$"
SignedBy = Annotated[str, StringConstraints(pattern=KEY_PATTERN)]
_NEW = "A new file on the machine of the worker, within LETHE_ALLOWED_ROOTS."
_THERE = "The file on the machine of the worker, within LETHE_ALLOWED_ROOTS."
_SIGNED_BY = "Public key of the replica that must have signed it, as its export tells; null: any replica's."


class ReplicaExportRequest(Model):
    """Asks for a file of all that a replica holds."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"path": "/srv/snapshots/orders.lethe"}]}
    )

    path: EnvironmentPath = Field(description=_NEW)
    reason: Text | None = Field(default=None, max_length=500)


class ReplicaImportRequest(Model):
    """Asks for a file's content in a blank replica."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"path": "/srv/snapshots/orders.lethe"}]}
    )

    path: EnvironmentPath = Field(description=_THERE)
    signed_by: SignedBy | None = Field(default=None, description=_SIGNED_BY)
    reason: Text | None = Field(default=None, max_length=500)


class ReplicaExportParams(Model):
    """The snapshot of an export at its submission."""

    path: str
    target: dict[str, Any] = Field(description="The store's target as it was.")


class ReplicaImportParams(Model):
    """The snapshot of an import at its submission."""

    path: str
    signed_by: str | None = Field(description=_SIGNED_BY)
    target: dict[str, Any] = Field(description="The store's target as it was.")


class _SnapshotRead(Model):
    """What a file holds."""

    path: str
    rid: int = Field(description="Of the replica that it was taken of.")
    generation: str
    ruv: RuvRead
    taken_at: datetime = Field(description="By the clock of the service.")
    entries: int = Field(description="Tombstones too.")
    tombstones: int = Field(description="Deleted keys.")
    extinctions: int = Field(description="Ranges of keys that were discarded.")
    signed_by: str = Field(description="Public key of that replica.")


class ReplicaExportResult(_SnapshotRead):
    """What an export has written."""

    bytes: int
    sha256: str = Field(description="Of the whole file.")


class ReplicaImportResult(_SnapshotRead):
    """What an import has put in place; ordinary sessions go on from its RUV."""
