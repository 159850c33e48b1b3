"""Which rows are old enough: the retention and its source, against the target's clock."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.purge.errors import RetentionTooShort
from app.purge.models import PurgeKind, PurgeParams, Sourced
from app.sweeps.cutoff import check_cutoff
from spark.purge.reading.inspect import Inspection

LEAST_RETENTION = timedelta(minutes=10)
TARGET_PARAMETER = "purge.retention.minutes"
GAP_PARAMETER = "routing.data.reader.type.gap.retention.period.minutes"
GAP_PARAMETER_3X = "purge.expired.data.gap.retention.minutes"
# What says how long the rows of a kind stay, by Lethe's name of it.
RETENTION_PARAMETERS = {
    PurgeKind.OUTGOING: TARGET_PARAMETER,
    PurgeKind.INCOMING: TARGET_PARAMETER,
    PurgeKind.DATA_GAP: GAP_PARAMETER,
}
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
    own = target_parameters(inspection).get(RETENTION_PARAMETERS[params.kind])
    if own is not None:
        return Sourced(value=own, source="TARGET")
    return params.default_retention_minutes


def target_parameters(inspection: Inspection) -> dict[str, int]:
    """The target's own values that Lethe honours: its retentions, where they are sane numbers."""
    names = [GAP_PARAMETER, GAP_PARAMETER_3X]
    if inspection.layout.gap_time == "create_time":  # from 3.9 on the program reads the newer name
        names.reverse()
    found = {
        TARGET_PARAMETER: _minutes(inspection, TARGET_PARAMETER),
        GAP_PARAMETER: next((own for name in names if (own := _minutes(inspection, name)) is not None), None),
    }
    return {name: own for name, own in found.items() if own is not None}


def _minutes(inspection: Inspection, name: str) -> int | None:
    own = (inspection.sym_parameter.get(name) or "").strip()
    sane = own.isascii() and own.isdigit() and len(own) < 8 and int(own) <= RETENTION_MAX_MINUTES
    return int(own) if sane else None


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
    check_cutoff(cutoff.at, now)
    if now - cutoff.at < LEAST_RETENTION and not params.force:
        raise RetentionTooShort(
            f"{(now - cutoff.at).total_seconds() / 60:.1f} minutes ({cutoff.source}) is below 10 minutes: "
            "rows may still be on their way through routing; use force if you mean it"
        )
    return cutoff
