"""A purge CHANGELOG: what a client asks for, and the snapshot that its job keeps."""

from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from app.jobs.models import ThrottleSetting
from app.jobs.plans.reviewed_plan import MaxDrift
from app.kit.durations import Duration
from app.kit.model import Model
from app.sweeps.purging import CHANGELOG
from spark.formats.csn import Csn


class TrimFields(Model):
    """What of a purge's request this kind knows; the route has checked the values."""

    retention_minutes: int | None = None
    cutoff: datetime | None = None
    max_entries: int | None = None
    max_rows_in_tx: int | None = None
    archive: dict[str, Any] | None = None
    throttle: ThrottleSetting | None = None
    overlap: Literal["REFUSE", "QUEUE"] = "REFUSE"
    plan_id: str | None = None
    max_drift: MaxDrift | None = None


class TrimParams(Model):
    """The snapshot of a trimming at its submission; every attempt uses it."""

    kind: Literal["CHANGELOG"] = CHANGELOG
    cutoff: datetime | None = Field(description="Set when the client or a plan named it.")
    retention: Duration | None = Field(description="Null: nothing goes by its age, or the cut-off is named.")
    retention_source: str
    max_entries: int | None = Field(description="Null: any number of records may stay.")
    max_entries_source: str
    rows_in_tx: int | None = Field(description="Null: Lethe's own size.")
    archive: bool
    archive_retention: str
    throttle: ThrottleSetting | None
    overlap: Literal["REFUSE", "QUEUE"]
    plan_id: str | None
    max_drift: int | float | None = None
    planned_upto: dict[int, str] | None = Field(
        default=None, description="The last record of each replica id that a reviewed plan would remove."
    )
    planned: dict[int, int] | None = Field(default=None, description="Records that it would remove.")
    max_rows: int | None
    max_fraction: float | None
    target: dict[str, Any] = Field(description="The store's target as it was.")

    @property
    def reviewed(self) -> dict[int, Csn] | None:
        """Up to where the records of each replica id were reviewed; None: no plan is executed."""
        if self.planned_upto is None:
            return None
        return {rid: Csn(csn) for rid, csn in self.planned_upto.items()}

    @property
    def retention_minutes(self) -> int | None:
        """The retention as the field of that name tells it."""
        return None if self.retention is None else int(self.retention / timedelta(minutes=1))
