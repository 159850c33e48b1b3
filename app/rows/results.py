"""The result of a purge ROWS. One that was stopped says what it had done by then."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.archives.results import Counts, KeptArchive
from app.kit.durations import Duration
from app.kit.model import Model
from app.rows.models import RowsWarningRead

STOPPED = "Null: it was stopped before its end."


class RowsPurgeResult(Model):
    """What a purge ROWS has removed, and what it has kept."""

    kind: Literal["ROWS"]
    table: str | None = Field(default=None, description=STOPPED)
    cutoff: datetime | None = Field(default=None, description="Null: rows of any age went.")
    where: str | None = None
    counts: Counts = Field(description="EXACT by the target's ledger, or AT_LEAST.")
    removed: dict[str, int] = Field(description="Rows by table.")
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = Field(default=None, description="Rows of that plan, by table.")
    fewer_than_planned: int | None = None
    kept: list[RowsWarningRead] | None = Field(
        default=None, description="Chosen rows that a foreign key still needed when the purge began."
    )
    archive: KeptArchive | None
    units: int = Field(description="Transactions.")
    longest_hold_ms: int | None = Field(default=None, description="The longest transaction.")
    held_by_replicas: Duration | None = Field(
        default=None, description="How long it rested for replicas; null: nobody asked for that."
    )
    warnings: list[str] | None = Field(default=None, description=STOPPED)
