"""Protected sets as clients see them."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from sqlmodel._compat import SQLModelConfig

from app.kit.durations import Duration, between, read_duration
from app.kit.model import Model
from app.kit.values import Text
from app.protection.examples import ABORT, PROTECTION
from app.protection.files import LogFileName, Range, name_of, number_of
from app.protection.rows import Protection, ProtectionBase, ProtectionKind

FILES_MAX = 20_000
RANGES_MAX = 24
"""Of one protection: the control file has room for a number of ranges, not of files."""
LEASE = timedelta(minutes=10)
LEASE_MIN, LEASE_MAX = timedelta(seconds=30), timedelta(hours=24)
ABORT_TIMEOUT_MIN, ABORT_TIMEOUT_MAX = timedelta(seconds=1), timedelta(hours=1)
Lease = Annotated[Duration, BeforeValidator(read_duration), AfterValidator(between(LEASE_MIN, LEASE_MAX))]
AbortTimeout = Annotated[
    Duration, BeforeValidator(read_duration), AfterValidator(between(ABORT_TIMEOUT_MIN, ABORT_TIMEOUT_MAX))
]
Files = Annotated[list[LogFileName], Field(min_length=1, max_length=FILES_MAX)]


class FileRange(Model):
    """Files from one number to another, both inclusive."""

    first: LogFileName
    last: LogFileName | None = Field(default=None, description="null: without an end.")

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last is not None and self.last < self.first:
            raise ValueError("`last` comes before `first`")
        return self


class ProtectionRead(ProtectionBase):
    """A protected set as clients see it."""

    model_config = SQLModelConfig(json_schema_extra={"examples": [PROTECTION]})

    id: str
    files: list[LogFileName] | None = Field(description="What is left of the named files.")
    ranges: list[FileRange] = Field(description="What is kept: these files, and perhaps some between them.")


class ProtectionCreate(Model):
    """A new protected set: named files, or ranges."""

    kind: ProtectionKind
    name: Text = Field(min_length=1, max_length=100)
    files: Files | None = None
    ranges: list[FileRange] | None = Field(default=None, min_length=1, max_length=RANGES_MAX)
    lease: Lease = Field(default=LEASE, description="From PT30S to PT24H; renew it in time.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"kind": "SCAN", "name": "nightly count", "files": ["00000003.jdb"], "lease": "PT10M"},
                {"kind": "FEEDER", "name": "node 2", "ranges": [{"first": "00000003.jdb", "last": None}]},
            ]
        },
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.files is None) == (self.ranges is None):
            raise ValueError("name `files` or `ranges`: one of both")
        return self


class RenewRequest(Model):
    """Hold it for longer, from now on."""

    lease: Lease | None = Field(default=None, description="null: as long as before.")

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"lease": "PT10M"}]})


class ReleaseRequest(Model):
    """Give back single files."""

    files: Files

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"files": ["00000003.jdb"]}]})


class AbortRequest(Model):
    """Let no write to the files of a protection happen any more."""

    protection_id: str = Field(pattern=r"^prt_[0-9a-z]{26}$")
    files: Files | None = Field(default=None, description="null: all that it covers and that are there.")
    timeout: AbortTimeout | None = Field(
        default=None, description="From PT1S; null: the store's je.erase.abortTimeout."
    )

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"protection_id": "prt_01m7w9fkm3fr0wmcztj953rhw9", "timeout": "PT30S"}]
        },
    )


class AbortRead(Model):
    """From now on, and until the protection ends, Lethe writes nothing to these files."""

    protection_id: str
    files: int = Field(description="How many were looked at.")
    erasure_aborted: bool = Field(description="A round was at work in one of them.")
    abort_latency_ms: float = Field(description="From the request to the proof.")

    model_config = ConfigDict(json_schema_extra={"examples": [ABORT]})


def read_ranges(ranges: list[Range]) -> list[FileRange]:
    """Ranges as clients see them."""
    return [
        FileRange(first=name_of(first), last=None if last is None else name_of(last))
        for first, last in ranges
    ]


def ranges_of(request: list[FileRange]) -> list[Range]:
    """Ranges as they are kept."""
    return [(number_of(each.first), None if each.last is None else number_of(each.last)) for each in request]


def read_protection(row: Protection) -> ProtectionRead:
    """Show a protection's row to a client."""
    fields = {name: getattr(row, name) for name in ProtectionBase.model_fields}
    files = None if row.files is None else [name_of(number) for number in row.files]
    return ProtectionRead.model_validate(
        fields | {"id": row.id, "files": files, "ranges": read_ranges(row.file_ranges)}
    )
