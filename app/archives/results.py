"""What jobs say of archives: the one that a purge kept, a verification, a restore; and their parameters."""

from typing import Literal

from pydantic import Field

from app.archives.models import RestoreInto
from app.kit.model import Model
from app.settings import EngineChoice

Counts = Literal["EXACT", "AT_LEAST"]


class ArchiveTrouble(Model):
    """Why an archive has no manifest yet."""

    code: str
    detail: str


class KeptArchive(Model):
    """The archive of what a job removed."""

    directory: str
    counts: Counts | None = Field(default=None, description="EXACT by the ledger; null: see `error`.")
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    error: ArchiveTrouble | None = Field(default=None, description="Its manifest could not be written.")


class ArchiveVerifyParams(Model):
    """The archive to verify, and what reads it."""

    archive: str = Field(description="Id of the job that archived.")
    engine: EngineChoice | None = None


class ArchiveRestoreParams(Model):
    """The archive to restore, and where to."""

    archive: str = Field(description="Id of the job that archived.")
    into: RestoreInto


class BadArchiveFile(Model):
    """A file that is not as it was written."""

    path: str
    state: str
    detail: str


class ArchiveVerifyResult(Model):
    """What a verification of an archive has read."""

    files: int
    rows: int
    manifest: Literal["LEDGER", "MANIFEST", "FILES"] = Field(
        description="Where it says which files are valid."
    )
    bad: list[BadArchiveFile]


class RefusedUnit(Model):
    """A unit that was not restored."""

    unit_id: str
    table: str
    state: str
    detail: str


class RestoreWarning(Model):
    """What a restore does not undo."""

    code: str
    count: int
    detail: str


class ArchiveRestoreResult(Model):
    """What a restore has brought back."""

    units: int
    rows: int
    skipped: int = Field(description="Rows that were there already.")
    manifest: Literal["LEDGER", "MANIFEST", "FILES"] = Field(
        description="Where it says which files are valid."
    )
    refused: list[RefusedUnit]
    warnings: list[RestoreWarning]
