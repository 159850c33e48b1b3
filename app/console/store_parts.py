"""What stores have by their kind: each part is one or more reads of the API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.console.calls import Api, Refused
from app.console.words import decoded
from app.errors import NotFound
from app.stores.models import StoreKind

PAGE: Final = 25


@dataclass(frozen=True, slots=True)
class Reading:
    """One operation of the API and what of it is shown.

    Attributes:
        path: below the store; below /v1 where `by` is no None.
        by: a field of the store: the operation is asked for what has the same in it; `id`: for `store`; an
            empty one: for all.
        nothing: what is said where it answers nothing.
        coded: columns of bytes in base64, which are shown as text.
        columns: of a list; none: it is no list.
        pages: below the store, where each row has a page of its own by its id.
        told_by_one: a field that only the operation of one row fills; what it holds is shown as the row's.
    """

    title: str
    path: tuple[str, ...]
    columns: tuple[str, ...] = ()
    pages: str = ""
    told_by_one: str = ""
    by: str | None = None
    coded: tuple[str, ...] = ()
    nothing: str = "None."

    async def read(self, api: Api, store_id: str, page_token: str = "") -> dict[str, Any]:
        """Its answer, or why there is none: one refusal does not hide the others.

        Args:
            page_token: of a list, the page that is wanted; empty: the first.
        """
        query: dict[str, str | int] = {"page_size": PAGE} if self.columns else {}
        query |= {"page_token": page_token} if page_token else {}
        shown = {"title": self.title, "columns": self.columns, "refused": None, "rows": None, "fields": None}
        shown |= {"nothing": self.nothing, "next_page_token": ""}
        try:
            found = await self._ask(api, store_id, query)
            if self.told_by_one:
                found |= {"items": await self._whole(api, store_id, found["items"])}
        except Refused as error:
            return shown | {"refused": error, "pages": None}
        if self.columns:
            shown["next_page_token"] = found.get("next_page_token", "")
        for row in found["items"] if self.coded else ():
            row |= {name: _text_of(row[name]) for name in self.coded}
        pages = f"/console/stores/{store_id}/{self.pages}/" if self.pages else None
        return shown | {
            "pages": pages,
            "rows" if self.columns else "fields": found["items"] if self.columns else found,
        }

    async def _ask(self, api: Api, store_id: str, query: Mapping[str, str | int]) -> Any:
        if self.by is None:
            return await api.get("stores", store_id, *self.path, **query)
        if self.by in ("", "id"):
            of_store = {"store": store_id} if self.by else {}
            return await api.get(*self.path, **of_store, **query)
        store = await api.get("stores", store_id)
        return await api.get(*self.path, **{self.by: store[self.by]}, **query)

    async def _whole(self, api: Api, store_id: str, rows: Sequence[Any]) -> list[Any]:
        """The rows with what only their own operation tells; after one whose target is away none is asked."""
        whole, is_away = [], False
        for row in rows:
            one = None if is_away else await api.find("stores", store_id, *self.path, row["id"])
            more = {} if one is None else one[self.told_by_one] or {}
            is_away = is_away or bool(more.get("target_code"))
            whole.append(row | more)
        return whole


def _text_of(coded: Any) -> Any:
    return ", ".join(map(decoded, coded)) if isinstance(coded, list) else decoded(coded)


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

    async def read(
        self, api: Api, store_id: str, only: int | None = None, page_token: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """All that it shows, each list from its beginning.

        Args:
            only: the place of the one reading that is wanted, of which `page_token` is a page.
        Raises: NotFound: there is no such reading.
        """
        if only is None:
            return [
                await reading.read(api, store_id) | {"place": place}
                for place, reading in enumerate(self.readings)
            ]
        if only >= len(self.readings):
            raise NotFound("there is no such list")
        return [await self.readings[only].read(api, store_id, page_token) | {"place": only}]


_CYCLES: Final = ("id", "state", "mode", "started_at", "ended_at", "files", "incomplete", "job_id")
_EXTINCTIONS: Final = ("label", "state", "created_at", "databases", "records", "bytes", "job_id", "reason")
_STATUS: Final = ("id", "lag", "lag_changes", "needs_total", "last_update_status", "target_code")
_LETTERS: Final = ("code", "kind", "csn", "peer", "attempts", "first_at", "last_at", "detail")
_PROTECTIONS: Final = ("name", "kind", "state", "requested_by", "created_at", "lease_expires_at")
_SESSIONS: Final = ("state", "mode", "outcome", "started_at", "ended_at", "rows_read", "bytes_sent", "job_id")
_GRANTS: Final = ("state", "supplier_rid", "reason", "granted_by", "created_at", "expires_at", "consumed_at")
_LOST: Final = (
    "verdict",
    "database",
    "key",
    "rid",
    "logged_at",
    "overwritten_by_rid",
    "overwritten_by_logged_at",
)
_ARCHIVES: Final = ("job_id", "created_at", "resource", "rows", "bytes", "files", "expires_at")
_OFF: Final = "Off: a parameter of the store switches it on."
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
    # At JE the names of databases are texts; at a replica they are bytes, in base64.
    Part("log-extinctions", "Extinctions", (_K.JE,), (Reading("", ("extinctions",), _EXTINCTIONS),)),
    Part(
        "extinctions",
        "Extinctions",
        (_K.REPLICA,),
        (Reading("", ("extinctions",), _EXTINCTIONS, coded=("databases",)),),
    ),
    Part("agreements", "Agreements", (_K.REPLICA,), (Reading("", ("agreements",)),), "agreements.html"),
    Part(
        "sessions",
        "Replication sessions",
        (_K.REPLICA,),
        (Reading("", ("replication-sessions",), _SESSIONS),),
    ),
    Part("grants", "Grants to discard changes", (_K.REPLICA,), (Reading("", ("discard-grants",), _GRANTS),)),
    Part(
        "recurring", "Recurring purge", (_K.REPLICA,), (Reading("", ("purges", "recurring"), nothing=_OFF),)
    ),
    Part(
        "recurring-cleanup",
        "Recurring cleanup",
        (_K.SLONY,),
        (Reading("", ("event-cleanups", "recurring"), nothing=_OFF),),
    ),
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
    Part(
        "topology",
        "Topology now",
        (_K.REPLICA,),
        (Reading("", ("replication", "topology"), by=""),),
        "topology.html",
        asks_target=True,
    ),
    Part(
        "overwritten",
        "Changes that lost",
        (_K.REPLICA,),
        (Reading("", ("changes", "overwritten"), _LOST, coded=("database", "key")),),
        None,
        True,
    ),
    Part("clock", "Clock now", (_K.REPLICA,), (Reading("", ("clock",)),), None, True),
    Part("health", "Health now", (_K.DS389,), (Reading("", ("ds389-health",)),), "health.html", True),
    Part(
        "servers",
        "Topology now",
        (_K.DS389,),
        (Reading("", ("ds389", "topology"), by="suffix"),),
        "servers.html",
        asks_target=True,
    ),
    Part("node-health", "Health now", (_K.SLONY,), (Reading("", ("slony-health",)),), "health.html", True),
    Part(
        "cluster-health",
        "Health of the cluster now",
        (_K.SLONY,),
        (Reading("", ("slony-health",), by="cluster"),),
        "health.html",
        asks_target=True,
    ),
    Part("node", "Confirmations and log tables", (_K.SLONY,), (Reading("", ("node-state",)),), "node.html"),
    Part("confirmations", "Confirmations now", (_K.SLONY,), (Reading("", ("confirmations",)),), None, True),
    Part("log-tables", "Log tables now", (_K.SLONY,), (Reading("", ("log-switches", "status")),), None, True),
    Part(
        "archives",
        "Archives",
        (_K.SYMMETRICDS, _K.SQL, _K.REPLICA, _K.SLONY),
        (Reading("", ("archives",), _ARCHIVES, by="id"),),
        "archives.html",
    ),
)
PARTS: Final[Mapping[str, Part]] = {part.name: part for part in _ALL}


def parts_of(kind: str) -> list[Part]:
    """The parts that a kind of store has."""
    return [part for part in _ALL if kind in part.kinds]
