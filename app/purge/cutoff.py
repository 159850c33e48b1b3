"""Which rows are old enough: the retention and its source, against the target's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from app.purge.models import PurgeKind, PurgeParams, Sourced
from app.stores.rows import Store
from app.sweeps.cutoff import RetentionTooShort, check_cutoff
from spark.formats.symmetricds import DATA, OUTGOING_BATCH
from spark.purge.cutoff import CutoffValue, convert
from spark.purge.reading.inspect import Inspection
from spark.targets.errors import TargetSchemaUnsupported

LEAST_RETENTION = timedelta(minutes=10)
TARGET_PARAMETER = "purge.retention.minutes"
GAP_PARAMETER = "routing.data.reader.type.gap.retention.period.minutes"
GAP_PARAMETER_3X = "purge.expired.data.gap.retention.minutes"
# What says how long the rows of a kind stay, by Lethe's name of it.
RETENTION_PARAMETERS = {
    PurgeKind.OUTGOING: TARGET_PARAMETER,
    PurgeKind.INCOMING: TARGET_PARAMETER,
    PurgeKind.DATA_GAP: GAP_PARAMETER,
    PurgeKind.EXTRACT_REQUEST: "purge.extract.request.retention.minutes",
    PurgeKind.REGISTRATION_REQUEST: "purge.registration.request.retention.minutes",
    PurgeKind.INCOMING_ERROR: TARGET_PARAMETER,
    PurgeKind.STATISTICS: "purge.stats.retention.minutes",
    PurgeKind.TRIGGER_HIST: "purge.trigger.hist.retention.minutes",
    PurgeKind.STRANDED: TARGET_PARAMETER,
    PurgeKind.CHANNELS: TARGET_PARAMETER,
}
RETENTION_MAX_MINUTES = 5_256_000


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The instant, and how it came about; `of_channels`: of channels with a retention of their own."""

    at: datetime
    retention_minutes: int | None
    source: str
    of_channels: Mapping[str, datetime] = field(default_factory=dict)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "at": self.at.isoformat(),
            "retention_minutes": self.retention_minutes,
            "source": self.source,
            "of_channels": {channel: at.isoformat() for channel, at in self.of_channels.items()},
        }

    @classmethod
    def load(cls, value: Mapping[str, Any]) -> "Cutoff":
        """From JSON; an earlier version knew no channels."""
        channels = {
            channel: datetime.fromisoformat(at) for channel, at in value.get("of_channels", {}).items()
        }
        at = datetime.fromisoformat(value["at"])
        return cls(at, value["retention_minutes"], value["source"], channels)


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
    found = {name: _minutes(inspection, name) for name in RETENTION_PARAMETERS.values()} | {
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
        RetentionTooShort: below ten minutes without `force`, that of a channel too.
        TargetSchemaUnsupported: a retention of a channel where no row says its channel.
    """
    now = inspection.now
    if params.cutoff is not None:
        cutoff = Cutoff(params.cutoff, None, "PLAN" if params.plan_id else "REQUEST")
    else:
        retention = retention_of(params, inspection)
        at = now - timedelta(minutes=retention.value)
        cutoff = Cutoff(at, retention.value, retention.source)
    found = replace(cutoff, of_channels=_of_channels(params, inspection))
    for at, source in ((found.at, found.source), *((at, name) for name, at in found.of_channels.items())):
        check_cutoff(at, now)
        if now - at < LEAST_RETENTION and not params.force:
            raise RetentionTooShort(
                f"{(now - at).total_seconds() / 60:.1f} minutes ({source}) is below 10 minutes: "
                "rows may still be on their way through routing; use force if you mean it"
            )
    return found


def local_of(store: Store, inspection: Inspection, at: datetime) -> CutoffValue:
    """An instant as the columns of a store's target are compared with it."""
    return convert(at, time_zone=store.time_zone, encoding=inspection.time_encoding)


def locals_of(store: Store, inspection: Inspection, cutoff: Cutoff) -> tuple[tuple[str, CutoffValue], ...]:
    """The same of the channels' own cut-offs, in the order of their names."""
    found = sorted(cutoff.of_channels.items())
    return tuple((channel, local_of(store, inspection, at)) for channel, at in found)


def _of_channels(params: PurgeParams, inspection: Inspection) -> dict[str, datetime]:
    """The cut-offs of channels with a retention of their own: a plan's, else by the target's clock.

    Raises: TargetSchemaUnsupported: rows or batches do not say of which channel they are.
    """
    if params.channel_cutoffs is not None:
        return dict(params.channel_cutoffs)
    for table in (DATA, OUTGOING_BATCH) if params.channel_retention_minutes else ():
        if "channel_id" not in inspection.layout.columns_of(table):
            raise TargetSchemaUnsupported(f"{table} has no column channel_id: leave channel retentions out")
    return {
        channel: inspection.now - timedelta(minutes=minutes)
        for channel, minutes in params.channel_retention_minutes.items()
    }
