"""A purge TOMBSTONES: what a client asks for, and the snapshot that its job keeps."""

from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from app.jobs.models import ThrottleSetting
from app.jobs.plans.reviewed_plan import MaxDrift
from app.kit.durations import Duration
from app.kit.model import Model
from app.sweeps.purging import TOMBSTONES
from spark.replication.tombstones.plan import TombstoneRules


class TombstoneFields(Model):
    """What of a purge's request this kind knows; the route has checked the values."""

    retention_minutes: int | None = None
    cutoff: datetime | None = None
    gone_rids: list[int] | None = None
    max_rows_in_tx: int | None = None
    archive: dict[str, Any] | None = None
    throttle: ThrottleSetting | None = None
    force: bool = False
    overlap: Literal["REFUSE", "QUEUE"] = "REFUSE"
    plan_id: str | None = None
    max_drift: MaxDrift | None = None


class TombstoneParams(Model):
    """The snapshot of a purge of tombstones at its submission; every attempt uses it."""

    kind: Literal["TOMBSTONES"] = TOMBSTONES
    cutoff: datetime | None = Field(description="Set when the client or a plan named it.")
    retention: Duration | None = Field(description="Null: nothing goes by its age, or the cut-off is named.")
    retention_source: str
    gone_rids: list[int] = Field(default=[], description="Replica ids that are waited for no more.")
    rows_in_tx: int | None = Field(description="Null: Lethe's own size.")
    archive: bool
    archive_retention: str
    throttle: ThrottleSetting | None
    force: bool = Field(default=False, description="Whether tombstones younger than a day may go.")
    overlap: Literal["REFUSE", "QUEUE"]
    plan_id: str | None
    max_drift: int | float | None = None
    planned_upto: str | None = Field(
        default=None, description="The greatest CSN that a reviewed plan would remove; null: it removes none."
    )
    planned: dict[int, int] | None = Field(
        default=None, description="Tombstones that it would remove, by the replica id of their delete."
    )
    max_rows: int | None
    max_fraction: float | None
    target: dict[str, Any] = Field(description="The store's target as it was.")

    @property
    def retention_minutes(self) -> int | None:
        """The retention as the field of that name tells it."""
        return None if self.retention is None else int(self.retention / timedelta(minutes=1))

    def rules(self, cutoff: datetime | None, *, is_reviewed: bool = True) -> TombstoneRules:
        """What may go, as the lower floor takes it.

        Args:
            is_reviewed: only of what the executed plan has.
        """
        bounds = is_reviewed and self.planned is not None
        return TombstoneRules(
            None if cutoff is None else int(cutoff.timestamp()),
            frozenset(self.gone_rids),
            (self.planned_upto or "") if bounds else None,
        )
