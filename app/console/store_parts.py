"""What stores have by their kind: each part is one or more reads of the API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.console.calls import Api, Refused
from app.stores.models import StoreKind

PAGE: Final = 25


@dataclass(frozen=True, slots=True)
class Reading:
    """One operation of the API and what of it is shown.

    Attributes:
        path: below the store.
        columns: of a list; none: it is no list.
        pages: below the store, where each row has a page of its own by its id.
        told_by_one: a field that only the operation of one row fills; what it holds is shown as the row's.
    """

    title: str
    path: tuple[str, ...]
    columns: tuple[str, ...] = ()
    pages: str = ""
    told_by_one: str = ""

    async def read(self, api: Api, store_id: str) -> dict[str, Any]:
        """Its answer, or why there is none: one refusal does not hide the others."""
        query = {"page_size": PAGE} if self.columns else {}
        shown = {"title": self.title, "columns": self.columns, "refused": None, "rows": None, "fields": None}
        try:
            found = await api.get("stores", store_id, *self.path, **query)
            if self.told_by_one:
                found = {"items": await self._whole(api, store_id, found["items"])}
        except Refused as error:
            return shown | {"refused": error, "pages": None}
        pages = f"/console/stores/{store_id}/{self.pages}/" if self.pages else None
        return shown | {
            "pages": pages,
            "rows" if self.columns else "fields": found["items"] if self.columns else found,
        }

    async def _whole(self, api: Api, store_id: str, rows: Sequence[Any]) -> list[Any]:
        """The rows with what only their own operation tells; after one whose target is away none is asked."""
        whole, is_away = [], False
        for row in rows:
            one = None if is_away else await api.find("stores", store_id, *self.path, row["id"])
            more = {} if one is None else one[self.told_by_one] or {}
            is_away = is_away or bool(more.get("target_code"))
            whole.append(row | more)
        return whole


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a store's page.

    Attributes:
        template: that shows what is read; None: as any other.
        asks_target: it connects to the target, which may be slow or away: only when somebody asks for it.
    """

    name: str
    title: str
    kinds: tuple[StoreKind, ...]
    readings: tuple[Reading, ...]
    template: str | None = None
    asks_target: bool = False

    async def read(self, api: Api, store_id: str) -> Sequence[Mapping[str, Any]]:
        """All that it shows."""
        return [await reading.read(api, store_id) for reading in self.readings]


_CYCLES: Final = ("id", "state", "mode", "started_at", "ended_at", "files", "incomplete", "job_id")
_EXTINCTIONS: Final = ("label", "state", "created_at", "databases", "records", "bytes", "job_id", "reason")
_AGREEMENTS: Final = ("id", "state", "consumer", "strategy", "interval", "last_session_id")
_STATUS: Final = ("id", "lag", "lag_changes", "needs_total", "last_update_status", "target_code")
_LETTERS: Final = ("code", "kind", "csn", "peer", "attempts", "first_at", "last_at", "detail")
_PROTECTIONS: Final = ("name", "kind", "state", "requested_by", "created_at", "lease_expires_at")
_K: Final = StoreKind
_ALL: Final = (
    Part("purges", "Purges now", (_K.SYMMETRICDS,), (Reading("Statistics", ("purge-stats",)),), None, True),
    Part("backlog", "Backlog", (_K.SYMMETRICDS,), (Reading("", ("backlog",)),), "backlog.html"),
    Part(
        "erasure",
        "Erasure",
        (_K.JE,),
        (
            Reading("Cycle", ("erasure-cycles", "current", "stats")),
            Reading("Cycles", ("erasure-cycles",), _CYCLES, pages="cycles"),
            Reading("Protections", ("protections",), _PROTECTIONS),
        ),
    ),
    Part("extinctions", "Extinctions", (_K.JE, _K.REPLICA), (Reading("", ("extinctions",), _EXTINCTIONS),)),
    Part("agreements", "Agreements", (_K.REPLICA,), (Reading("", ("agreements",), _AGREEMENTS),)),
    Part(
        "replication",
        "Replication now",
        (_K.REPLICA,),
        (
            Reading("Agreements", ("agreements",), _STATUS, told_by_one="status"),
            Reading("Dead letters", ("dead-letters",), _LETTERS),
        ),
        asks_target=True,
    ),
    Part("health", "Replication now", (_K.DS389,), (Reading("", ("ds389-health",)),), None, True),
    Part("node", "Confirmations and log tables", (_K.SLONY,), (Reading("", ("node-state",)),), "node.html"),
    Part("confirmations", "Confirmations now", (_K.SLONY,), (Reading("", ("confirmations",)),), None, True),
    Part("log-tables", "Log tables now", (_K.SLONY,), (Reading("", ("log-switches", "status")),), None, True),
)
PARTS: Final[Mapping[str, Part]] = {part.name: part for part in _ALL}


def parts_of(kind: str) -> list[Part]:
    """The parts that a kind of store has."""
    return [part for part in _ALL if kind in part.kinds]
