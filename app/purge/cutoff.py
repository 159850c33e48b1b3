"""Which rows are old enough: the retention and its source, against the target's clock."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.kit.instants import instant_text
from app.purge.errors import FutureCutoff, RetentionTooShort
from app.purge.models import PurgeParams, Sourced
from spark.purge.inspect import Inspection

LEAST_RETENTION = timedelta(minutes=10)
TARGET_PARAMETER = "purge.retention.minutes"
RETENTION_MAX_MINUTES = 5_256_000


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The instant, and how it came about."""

    at: datetime
    retention_minutes: int | None
    source: str


def retention_of(params: PurgeParams, inspection: Inspection) -> Sourced:
    """Request over store over the target's own over the default (design.md, Purge)."""
    if params.retention_minutes is not None:
        return params.retention_minutes
    own = target_parameters(inspection).get(TARGET_PARAMETER)
    if own is not None:
        return Sourced(value=own, source="TARGET")
    return params.default_retention_minutes


def target_parameters(inspection: Inspection) -> dict[str, int]:
    """The target's own values that Lethe honours: its retention, where it is a sane number."""
    own = (inspection.sym_parameter.get(TARGET_PARAMETER) or "").strip()
    sane = own.isascii() and own.isdigit() and len(own) < 8 and int(own) <= RETENTION_MAX_MINUTES
    return {TARGET_PARAMETER: int(own)} if sane else {}


def decide_cutoff(params: PurgeParams, inspection: Inspection) -> Cutoff:
    """The cut-off by the target's clock.

    Raises:
        FutureCutoff: never, not even with `force`.
        RetentionTooShort: below ten minutes without `force`.
    """
    now = inspection.now
    if params.cutoff is not None:
        cutoff = Cutoff(params.cutoff, None, "PLAN" if params.plan_id else "REQUEST")
    else:
        retention = retention_of(params, inspection)
        at = now - timedelta(minutes=retention.value)
        cutoff = Cutoff(at, retention.value, retention.source)
    if cutoff.at > now:
        raise FutureCutoff(
            f"the cut-off {instant_text(cutoff.at)} is later than the target's {instant_text(now)}"
        )
    if now - cutoff.at < LEAST_RETENTION and not params.force:
        raise RetentionTooShort(
            f"{(now - cutoff.at).total_seconds() / 60:.1f} minutes ({cutoff.source}) is below 10 minutes: "
            "rows may still be on their way through routing; use force if you mean it"
        )
    return cutoff
