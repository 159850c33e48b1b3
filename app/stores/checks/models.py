"""What `:check` and `:recover` tell of a store's target."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import Field, PrivateAttr

from app.kit.durations import Duration
from app.kit.model import Model

NOT_SHOWN: Final = "(not shown to this token)"


class FindingSeverity(StrEnum):
    """How bad a finding of a check is."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    INFO = "INFO"


class Finding(Model):
    """One thing that a check found."""

    code: str
    severity: FindingSeverity
    detail: str
    _others: tuple[str, ...] = PrivateAttr(default=())

    def naming(self, others: Sequence[str]) -> Self:
        """The same, whose words name other stores: not every reader may see them."""
        named = self.model_copy()
        named._others = tuple(others)
        return named

    def to_keep(self, *, max_chars: int) -> dict[str, Any]:
        """As it is kept with the stores that it names."""
        detail = self.detail[:max_chars]
        if self._others and detail != self.detail:
            detail = detail.rpartition(" ")[0]  # the rest of a name would still be one
        kept = {"code": self.code, "severity": str(self.severity), "detail": detail}
        return {**kept, "others": list(self._others)} if self._others else kept

    @classmethod
    def of_kept(cls, kept: Mapping[str, Any]) -> Self:
        """One that was kept; what an older version has kept names no other store."""
        return cls.model_validate(kept).naming(kept.get("others", ()))

    def for_reader(self, visible: Collection[str] | None) -> Self:
        """The same for a reader of the stores `visible` (None: of all): no other one has a name."""
        hidden = [] if visible is None else [re.escape(each) for each in self._others if each not in visible]
        if not hidden:
            return self
        names = rf"(?<![\w-])(?:{'|'.join(hidden)})(?![\w-])"
        return self.model_copy(update={"detail": re.sub(names, NOT_SHOWN, self.detail)})


class TableSize(Model):
    """How large a table is, as the target's own statistics say."""

    table: str
    rows_estimate: int | None
    bytes: int | None


class MissingPermission(Model):
    """A right that the role lacks."""

    table: str
    right: str


class SlonyNodeRead(Model):
    """A node of the cluster."""

    id: int
    is_active: bool
    has_failed: bool
    comment: str | None


class SlonyPathRead(Model):
    """Whose slon connects to which node; the connection string is never shown."""

    server: int
    client: int


class SlonRead(Model):
    """A session of a slon at the node."""

    pid: int
    application: str
    user: str
    state: str | None
    node: int | None = Field(description="Whose events it is busy with.")
    activity: str | None
    since: datetime | None
    event: int | None


class SlonySessionRead(Model):
    """A session in the way of emptying a log table."""

    pid: int | None = Field(description="null: a prepared transaction.")
    application: str
    user: str
    state: str | None
    transaction_age: Duration | None
    has_lock: bool = Field(description="On the log table that is to be emptied.")
    is_older: bool = Field(description="Began before the switch: it may still write to that table.")


class SlonyCheck(Model):
    """SLONY: the cluster as its node knows it."""

    cluster: str
    version: str | None = Field(description="Of the cluster's functions; null: not installed here.")
    local_node: int
    nodes: list[SlonyNodeRead]
    paths: list[SlonyPathRead]
    has_functions: bool
    slons: list[SlonRead]
    sessions: list[SlonySessionRead]
    log_status: int | None = Field(description="sl_log_status, 0 to 3.")
    oldest_event_at: datetime | None


class StoreCheck(Model):
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
    slony: SlonyCheck | None = Field(default=None, description="SLONY only.")

    def add(self, findings: Sequence[Finding]) -> None:
        """Further findings; with an error among them it is not ok any more."""
        self.findings += findings
        self.ok = self.ok and all(each.severity is not FindingSeverity.ERROR for each in findings)


class GivenUpRead(Model):
    """Own changes of a restored replica that are lost for good: above `after`, up to and with `upto`."""

    rid: int
    after: str | None = Field(description="null: from its first.")
    upto: str | None


class RecoveryRead(Model):
    """What `:recover` did."""

    epoch_before: int
    epoch_after: int
    foreign_jobs: list[str] = Field(
        description="Jobs of the target's ledger that this metadata did not know."
    )
    given_up: GivenUpRead | None = Field(
        default=None, description="REPLICA: the own changes whose loss was accepted; null: none was missing."
    )
