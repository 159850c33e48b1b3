"""The manifest of a backup of the metadata, and what a backup, a restore and a check say."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from app.kit.model import Model

DATABASE = "lethe.db"
INSTANCE = "instance.id"
TOKEN = "admin.token"
SIGNING_KEY = "signing.key"
TABLE_PREFIX, TABLE_SUFFIX = "table-", ".copy"
FILES_MAX = 500
NAME = rf"^(lethe\.db|instance\.id|admin\.token|signing\.key|{TABLE_PREFIX}[a-z][a-z0-9_]{{0,62}}\.copy)$"
NOT_INCLUDED = [
    "archives (LETHE_ARCHIVE_ROOT): copy that folder too",
    "secrets (LETHE_SECRETS_DIR and variables): the metadata has their names only",
    "targets: stores, and the control files beside them",
    "data directories of other instances and workers: run this command on each",
]


class Kept(Model):
    """One file of a backup; a table of PostgreSQL has its columns, in the order of the file, and its rows."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, StringConstraints(pattern=NAME)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    columns: list[str] | None = None
    rows: int | None = None

    @property
    def table(self) -> str | None:
        """The table that it holds."""
        is_table = self.name.startswith(TABLE_PREFIX) and self.name.endswith(TABLE_SUFFIX)
        return self.name.removeprefix(TABLE_PREFIX).removesuffix(TABLE_SUFFIX) if is_table else None


class Manifest(Model):
    """What a backup is: written last, so that a folder without it is none. Names are names, never paths."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["lethe-metadata/1"] = "lethe-metadata/1"
    lethe: str
    revision: Annotated[str, StringConstraints(pattern="^[0-9a-zA-Z_]{1,40}$")]
    engine: Literal["sqlite", "postgresql"]
    instance_id: str
    made_at: datetime
    files: Annotated[list[Kept], Field(max_length=FILES_MAX)]
    not_included: list[str]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("a file is named twice")
        has_database = DATABASE in names
        if has_database != (self.engine == "sqlite") or (self.tables and has_database):
            raise ValueError("it has the files of another engine")
        if INSTANCE not in names:
            raise ValueError(f"it has no {INSTANCE}")
        if any(file.columns is None or file.rows is None for file in self.tables):
            raise ValueError("a table has no columns")
        return self

    @property
    def tables(self) -> list[Kept]:
        """The files of tables."""
        return [file for file in self.files if file.table is not None]


class Problem(Model):
    """What a check found, and what to do."""

    code: str
    detail: str
    advice: str


class CheckRead(Model):
    """What a check says; `ok` where there is no problem."""

    subject: Literal["BACKUP", "LIVE"]
    place: str
    ok: bool = False
    engine: str | None = None
    revision: str | None = None
    revision_of_this_program: str
    made_at: datetime | None = None
    instance_id: str | None = None
    signing_key_id: str | None = None
    stores: list[str] = Field(default=[])
    rows: dict[str, int] = Field(default={})
    notes: list[str] = Field(default=[])
    problems: list[Problem] = Field(default=[])

    def blame(self, code: str, detail: str, advice: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(code=code, detail=detail, advice=advice))


class BackupRead(Model):
    """What a backup says."""

    place: str
    manifest: Manifest


class RestoreRead(Model):
    """What a restore says: what to do next, in this order."""

    data_dir: str
    engine: str
    revision: str
    instance_id: str
    stores: list[str]
    next: list[str]
