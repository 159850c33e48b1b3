"""All stores at one look: the overview, the stream of events, the series of a store, and who asks."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from lethe_client.decoding import decode
from lethe_client.errors import UnexpectedAnswer
from lethe_client.fleet_events import events
from lethe_client.fleet_results import FleetEvent, Overview, StoreOverview, StoreSeries, WhoAmI
from lethe_client.paths import collection, resource
from lethe_client.transport import Call, Transport

PAGE_SIZE: Final = 100
PAGES_MAX: Final = 10_000


class Fleet:
    """`/v1/overview`, `/v1/events`, `/v1/whoami`, `/v1/stores/{id}/series`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def overview(
        self,
        *,
        stores: Iterable[str] = (),
        kinds: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        waits_longer_than: str | None = None,
        page_size: int | None = None,
        page_token: str = "",
    ) -> Overview:
        """One page of stores, with the counters and what needs somebody.

        Args:
            labels: all must match.
            waits_longer_than: from when on a wait needs somebody, such as `PT1H`.
        """
        params: dict[str, Any] = {
            "store": [*stores] or None,
            "kind": [*kinds] or None,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()] or None,
            "waits_longer_than": waits_longer_than,
            "page_size": page_size,
            "page_token": page_token or None,
        }
        call = Call(method="GET", path=collection("overview"), params=params, repeatable=True)
        return decode(Overview, self._transport.request(call).body)

    def stores(self, **narrowed: Any) -> Iterator[StoreOverview]:
        """Yield the stores of all pages; options as of `overview`.

        Raises: UnexpectedAnswer: a page token that comes back unchanged.
        """
        token = ""
        for _ in range(PAGES_MAX):
            page = self.overview(**({"page_size": PAGE_SIZE} | narrowed), page_token=token)
            yield from page.stores
            if not page.next_page_token:
                return
            if page.next_page_token == token:
                raise UnexpectedAnswer("the overview answered the same page token twice")
            token = page.next_page_token

    def events(
        self,
        *,
        stores: Iterable[str] = (),
        kinds: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        last_event_id: int | None = None,
    ) -> Iterator[FleetEvent]:
        """Yield each event once and in order, over lost connections, without end (see fleet_events).

        Args:
            last_event_id: the `number` of the last one that was heard; None: from now on.
        """
        params = {
            "store": [*stores] or None,
            "kind": [*kinds] or None,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()] or None,
        }
        return events(self._transport, params, last_event_id=last_event_id)

    def series(self, store: str, *, window: str = "DAY", names: Iterable[str] = ()) -> StoreSeries:
        """What a store did in the last 24 hours (DAY) or 30 days (MONTH)."""
        params = {"window": window, "name": [*names] or None}
        call = Call(method="GET", path=resource("stores", store, "series"), params=params, repeatable=True)
        return decode(StoreSeries, self._transport.request(call).body)

    def whoami(self) -> WhoAmI:
        """What the token is and may do."""
        call = Call(method="GET", path=collection("whoami"), repeatable=True)
        return decode(WhoAmI, self._transport.request(call).body)
