"""The result of a purge CHANGELOG. One that was stopped says what it had done by then."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.archives.results import Counts, KeptArchive
from app.kit.model import Model


class RidTrimmed(Model):
    """What became of one replica id's records; only `rid` and `rows_removed` of a purge that was stopped."""

    rid: int
    rows_removed: int
    rows_left: int | None = None
    rows_eligible_by_age: int | None = Field(default=None, description="Removed ones among them.")
    rows_held: int | None = Field(default=None, description="Old enough, and not acknowledged by everybody.")
    held_by: list[str] | None = Field(default=None, description="Agreements that hold records back.")
    floor: str | None = Field(default=None, description="What all of them have acknowledged.")
    purged: str | None = Field(default=None, description="The greatest CSN that has left.")
    purge_headroom: int | None = Field(
        default=None, description="So far a consumer may fall back without a TOTAL."
    )


class ChangelogPurgeResult(Model):
    """What a purge CHANGELOG has removed."""

    kind: Literal["CHANGELOG"]
    cutoff: datetime | None = Field(default=None, description="Null: nothing went by its age.")
    retention_minutes: int | None = None
    retention_source: str | None = None
    max_entries: int | None = None
    max_entries_source: str | None = None
    counts: Counts = Field(description="EXACT by the target's ledger, or AT_LEAST.")
    removed: dict[str, int] = Field(description="Records, as `changelog`.")
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = None
    fewer_than_planned: int | None = None
    rows_left: int | None = Field(default=None, description="Null: it was stopped before its end.")
    rows_over_max_entries: int | None = None
    rids: list[RidTrimmed]
    archive: KeptArchive | None
    units: int = Field(description="Transactions.")
    longest_hold_ms: int | None = Field(default=None, description="The longest transaction.")
    warnings: list[str] | None = None
