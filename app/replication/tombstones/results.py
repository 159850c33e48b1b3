"""The result of a purge TOMBSTONES. One that was stopped says what it had done by then."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.archives.results import Counts, KeptArchive
from app.kit.model import Model


class RidTombstonesLeft(Model):
    """The tombstones that stay of the deletes of one replica id."""

    rid: int
    rows_left: int
    rows_held: int = Field(description="Old enough, and an older change may still come.")


class TombstonePurgeResult(Model):
    """What a purge TOMBSTONES has removed."""

    kind: Literal["TOMBSTONES"]
    cutoff: datetime | None = Field(default=None, description="Null: nothing is old enough.")
    retention_minutes: int | None = None
    retention_source: str | None = None
    gone_rids: list[int] | None = Field(default=None, description="Replica ids that were waited for no more.")
    counts: Counts = Field(description="EXACT by the target's ledger, or AT_LEAST.")
    removed: dict[str, int] = Field(description="Tombstones, as `entries`.")
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = None
    fewer_than_planned: int | None = None
    rows_left: int | None = Field(
        default=None, description="Tombstones; null: it was stopped before its end."
    )
    ceiling: str | None = Field(default=None, description="Above this CSN no tombstone may go; null: none.")
    held_by: list[str] | None = Field(
        default=None, description="Agreements and replica ids that hold tombstones back."
    )
    buried: str | None = Field(
        default=None, description="The greatest CSN of all that was ever purged: older changes are refused."
    )
    rids: list[RidTombstonesLeft] | None = None
    archive: KeptArchive | None
    units: int = Field(description="Transactions.")
    longest_hold_ms: int | None = Field(default=None, description="The longest transaction.")
    warnings: list[str] | None = None
