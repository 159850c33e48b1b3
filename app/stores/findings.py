"""What `:check` and `:recover` tell of a store's target."""

from enum import StrEnum

from pydantic import BaseModel, Field


class FindingSeverity(StrEnum):
    """How bad a finding of a check is."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    INFO = "INFO"


class Finding(BaseModel):
    """One thing that a check found."""

    code: str
    severity: FindingSeverity
    detail: str


class TableSize(BaseModel):
    """How large a table is, as the target's own statistics say."""

    table: str
    rows_estimate: int | None
    bytes: int | None


class MissingPermission(BaseModel):
    """A right that the role lacks."""

    table: str
    right: str


class StoreCheck(BaseModel):
    """What `:check` found."""

    ok: bool = Field(description="Nothing of severity ERROR was found.")
    reachable: bool
    identity: str | None = None
    server_version: int | None = None
    layout: str | None = None
    clock_difference_s: float | None = None
    time_encoding: str | None = None
    permissions_missing: list[MissingPermission] = Field(default_factory=list)
    ledger: bool | None = Field(default=None, description="Ledger and fence can be kept at the target.")
    sizes: list[TableSize] = Field(default_factory=list)
    conflicts: list[str] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    parameters: dict[str, int] = Field(
        default_factory=dict, description="The target's own values of parameters that Lethe honours."
    )
    can: list[str] = Field(default_factory=list)


class RecoveryRead(BaseModel):
    """What `:recover` did."""

    epoch_before: int
    epoch_after: int
    foreign_jobs: list[str] = Field(
        description="Jobs of the target's ledger that this metadata did not know."
    )
