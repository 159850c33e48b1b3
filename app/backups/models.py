"""Backup sessions as clients see them."""

from datetime import datetime

from pydantic import ConfigDict, Field
from sqlmodel._compat import SQLModelConfig

from app.backups.examples import CREATED, END, FILE, SESSION
from app.backups.rows import BackupMode, BackupSession, BackupSessionBase, FileFault
from app.kit.model import Model
from app.kit.values import Text
from app.protection.files import LogFileName
from app.protection.models import LEASE, AbortTimeout, Files, Lease


class BackupCreate(Model):
    """Protect the files of an environment and stop what erases in them."""

    mode: BackupMode = BackupMode.BACKUP
    files: Files | None = Field(default=None, description="null: all that are there.")
    lease: Lease = Field(default=LEASE, description="From PT30S to PT24H; renew it in time.")
    erase_abort_timeout: AbortTimeout | None = Field(
        default=None, description="From PT1S; null: the store's je.erase.abortTimeout."
    )
    tool: Text | None = Field(default=None, min_length=1, max_length=100)
    label: Text | None = Field(default=None, min_length=1, max_length=200)

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"mode": "BACKUP", "lease": "PT10M", "tool": "restic"}]},
    )


class BackupSessionRead(BackupSessionBase):
    """A session as clients see it."""

    model_config = SQLModelConfig(json_schema_extra={"examples": [SESSION]})

    id: str


class BackupFileRead(Model):
    """One file, and what to expect of it."""

    model_config = ConfigDict(json_schema_extra={"examples": [FILE]})

    name: LogFileName
    path: str
    size: int = Field(description="Bytes when the session became ACTIVE.")
    device: int
    inode: int
    mtime: datetime
    growing: bool = Field(description="A running engine appends to it; it comes last.")
    digest: str | None = Field(description="SHA-256 of its bytes, where it is known.")
    erasure_generation: int = Field(description="How many passes of erasure have changed it.")
    released_at: datetime | None
    fault: FileFault | None = Field(description="What was found when it was released, or at the end.")


class BackupSessionCreated(BackupSessionRead):
    """The promise: until the session ends, Lethe changes no byte of these files."""

    model_config = SQLModelConfig(json_schema_extra={"examples": [CREATED]})

    files: list[BackupFileRead] = Field(description="In the order in which to copy them.")


class ChangedFile(Model):
    """A file that is not what it was."""

    name: LogFileName
    fault: FileFault


class BackupEndRead(BackupSessionRead):
    """How it ended."""

    model_config = SQLModelConfig(json_schema_extra={"examples": [END]})

    valid: bool
    changed: list[ChangedFile] = Field(
        description="Files that somebody, Lethe or not, has changed meanwhile."
    )


def read_session(row: BackupSession) -> BackupSessionRead:
    """Show a session's row to a client."""
    fields = {name: getattr(row, name) for name in BackupSessionBase.model_fields}
    return BackupSessionRead.model_validate(fields | {"id": row.id})
