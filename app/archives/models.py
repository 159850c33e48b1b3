"""Archives as clients see them: what was saved before it was removed."""

from pathlib import PurePosixPath

from pydantic import ConfigDict, field_validator, model_validator
from sqlmodel import Field

from app.archives.rows import ArchiveBase
from app.kit.model import Model
from app.kit.values import Text
from app.settings import EngineChoice
from app.stores.fields import Identifier


class ArchiveRead(ArchiveBase):
    """An archive as clients see it."""

    job_id: str


class ArchiveFileRead(Model):
    """One Parquet file."""

    path: str
    unit_id: str
    table: str | None
    rows: int | None
    bytes: int
    sha256: str | None
    state: str = Field(
        description="VALID: its transaction committed. ABANDONED: not. UNDECIDED: ask when the job has ended."
    )


class ArchiveDetail(ArchiveRead):
    """An archive with its files."""

    file_list: list[ArchiveFileRead]


class RestoreInto(Model):
    """Where the rows go: exactly one."""

    model_config = ConfigDict(extra="forbid")

    file: str | None = Field(default=None, max_length=1000, description="A new SQLite file, absolute path.")
    schema_name: Identifier | None = Field(
        default=None, alias="schema", description="A schema of the target."
    )
    live: bool = Field(default=False, description="The live tables; an admin's.")

    @field_validator("file")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and (not PurePosixPath(value).is_absolute() or "\0" in value):
            raise ValueError("an absolute path")
        return value

    @model_validator(mode="after")
    def _one(self) -> "RestoreInto":
        if [self.file is not None, self.schema_name is not None, self.live].count(True) != 1:
            raise ValueError("exactly one of file, schema and live")
        return self


class RestoreRequest(Model):
    """A restore."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"into": {"file": "/srv/lethe/restored.sqlite"}, "reason": "audit"}]},
    )

    into: RestoreInto
    reason: Text | None = Field(default=None, max_length=500)


class ArchiveVerifyRequest(Model):
    """How to read an archive again; the path of the POST names it, a schedule means the newest one."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"engine": "AUTO", "reason": "yearly audit"}]}
    )

    engine: EngineChoice | None = Field(default=None, description="Null: the service's default.")
    reason: Text | None = Field(default=None, max_length=500)
