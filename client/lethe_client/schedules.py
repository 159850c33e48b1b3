"""Schedules: verbs that come by a cron; and windows: when destructive jobs may work."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.literals import WindowKind
from lethe_client.paths import collection, resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport


@dataclass(frozen=True, kw_only=True)
class ScheduleFiring(Result):
    """What became of a due time."""

    outcome: str
    due: datetime | None = None
    at: datetime | None = None
    detail: str | None = None
    job_id: str | None = None
    job_state: str | None = None
    job_error: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Schedule(Result):
    """A schedule; with a `source` it is what recurs by a parameter or an agreement, and is read only."""

    id: str
    verb: str
    source: str | None = None
    name: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    store: str | None = None
    labels: Mapping[str, Any] | None = None
    cron: str | None = None
    time_zone: str | None = None
    interval: timedelta | None = None
    jitter: timedelta | None = None
    overlap: str | None = None
    missed: str | None = None
    is_paused: bool = False
    token_id: str | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    next_due: datetime | None = None
    next_at: datetime | None = None
    queued_due: datetime | None = None
    last: ScheduleFiring | None = None


@dataclass(frozen=True, kw_only=True)
class NextRun(Result):
    """A time at which a schedule comes; `at` with its jitter, `local` in its zone."""

    due: datetime
    at: datetime
    local: str


@dataclass(frozen=True, kw_only=True)
class NextRuns(Result):
    """The next times of a schedule."""

    items: tuple[NextRun, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Window(Result):
    """A window; `open_until` is None while it is not open."""

    id: str
    kind: WindowKind
    cron: str
    time_zone: str
    duration: timedelta
    intensity: float
    name: str | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    open_until: datetime | None = None
    next_at: datetime | None = None
    created_by: str | None = None
    created_at: datetime | None = None


class Schedules:
    """`/v1/schedules`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        verb: str,
        body: Mapping[str, Any],
        *,
        cron: str,
        store: str | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        **more: Any,
    ) -> Schedule:
        """Write a schedule for a store, or for all stores with labels.

        Args:
            body: as the POST of the verb takes it.
            cron: five fields.
            more: `name`, `time_zone`, `jitter` (`PT10M`), `overlap`, `missed`.
        """
        sent: dict[str, Any] = {"verb": verb, "body": dict(body), "cron": cron}
        sent |= {"store": store} if store is not None else {}
        sent |= {"labels": dict(labels)} if labels else {}
        sent |= {name: value for name, value in more.items() if value is not None}
        path = collection("schedules")
        call = Call(method="POST", path=path, json=sent, creates=True, idempotency_key=idempotency_key)
        return decode(Schedule, self._transport.request(call).body)

    def get(self, schedule_id: str) -> Schedule:
        path = resource("schedules", schedule_id)
        return decode(Schedule, self._transport.request(Call(method="GET", path=path, repeatable=True)).body)

    def list(self, *, store: str | None = None) -> Iterator[Schedule]:
        """All that recurs."""
        params = {} if store is None else {"store": store}
        return pages.items(self._transport, collection("schedules"), Schedule, params=params)

    def next_runs(self, schedule_id: str, *, count: int = 10) -> tuple[NextRun, ...]:
        """When it comes next."""
        path = resource("schedules", schedule_id, "next-runs")
        call = Call(method="GET", path=path, params={"count": count}, repeatable=True)
        return decode(NextRuns, self._transport.request(call).body).items

    def pause(self, schedule_id: str) -> Schedule:
        return self._act(schedule_id, "pause")

    def resume(self, schedule_id: str) -> Schedule:
        return self._act(schedule_id, "resume")

    def remove(self, schedule_id: str) -> None:
        """Its jobs stay."""
        self._transport.request(Call(method="DELETE", path=resource("schedules", schedule_id)))

    def _act(self, schedule_id: str, verb: str) -> Schedule:
        path = resource("schedules", schedule_id, verb=verb)
        return decode(Schedule, self._transport.request(Call(method="POST", path=path)).body)


class Windows:
    """`/v1/windows`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, kind: str, *, cron: str, duration: str, idempotency_key: str | None = None, **more: Any
    ) -> Window:
        """Add a window.

        Args:
            kind: ALLOW or DENY.
            duration: `PT8H`.
            more: `name`, `time_zone`, `intensity`, `labels`.
        """
        sent = {"kind": kind, "cron": cron, "duration": duration}
        sent |= {name: value for name, value in more.items() if value is not None}
        path = collection("windows")
        call = Call(method="POST", path=path, json=sent, creates=True, idempotency_key=idempotency_key)
        return decode(Window, self._transport.request(call).body)

    def list(self) -> Iterator[Window]:
        return pages.items(self._transport, collection("windows"), Window)

    def get(self, window_id: str) -> Window:
        path = resource("windows", window_id)
        return decode(Window, self._transport.request(Call(method="GET", path=path, repeatable=True)).body)

    def remove(self, window_id: str) -> None:
        self._transport.request(Call(method="DELETE", path=resource("windows", window_id)))
