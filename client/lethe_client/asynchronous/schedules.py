"""Made by `make client` from lethe_client/schedules.py: change that, not this."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.schedules import NextRun, NextRuns, Schedule, Window
from lethe_client.transport import Call


class Schedules:
    """`/v1/schedules`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
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
        return decode(Schedule, (await self._transport.request(call)).body)

    async def get(self, schedule_id: str) -> Schedule:
        path = resource("schedules", schedule_id)
        return decode(
            Schedule, (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body
        )

    def list(self, *, store: str | None = None) -> AsyncIterator[Schedule]:
        """All that recurs."""
        params = {} if store is None else {"store": store}
        return pages.items(self._transport, collection("schedules"), Schedule, params=params)

    async def next_runs(self, schedule_id: str, *, count: int = 10) -> tuple[NextRun, ...]:
        """When it comes next."""
        path = resource("schedules", schedule_id, "next-runs")
        call = Call(method="GET", path=path, params={"count": count}, repeatable=True)
        return decode(NextRuns, (await self._transport.request(call)).body).items

    async def pause(self, schedule_id: str) -> Schedule:
        return await self._act(schedule_id, "pause")

    async def resume(self, schedule_id: str) -> Schedule:
        return await self._act(schedule_id, "resume")

    async def remove(self, schedule_id: str) -> None:
        """Its jobs stay."""
        await self._transport.request(Call(method="DELETE", path=resource("schedules", schedule_id)))

    async def _act(self, schedule_id: str, verb: str) -> Schedule:
        path = resource("schedules", schedule_id, verb=verb)
        return decode(Schedule, (await self._transport.request(Call(method="POST", path=path))).body)


class Windows:
    """`/v1/windows`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
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
        return decode(Window, (await self._transport.request(call)).body)

    def list(self) -> AsyncIterator[Window]:
        return pages.items(self._transport, collection("windows"), Window)

    async def get(self, window_id: str) -> Window:
        path = resource("windows", window_id)
        return decode(
            Window, (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body
        )

    async def remove(self, window_id: str) -> None:
        await self._transport.request(Call(method="DELETE", path=resource("windows", window_id)))
