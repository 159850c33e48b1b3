"""Page 2: the list of stores, and one store with its health, parameters, history and trend."""

from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import Response

from app.auth.access import ClockDep
from app.auth.scopes import Scope
from app.console.acting import ActDep, show_again
from app.console.pictures import trend
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.console.store_history import history_of
from app.console.store_parts import PARTS, parts_of
from app.errors import NotFound
from app.kit.http.routing import new_router
from app.kit.values import Text
from app.stores.models import StoreKind
from app.verbs.table import VERBS

PAGE: Final = 50
FILES: Final = 100
FILE_COLUMNS: Final = ("file", "state", "size_bytes", "entries_erased", "proved_by", "refusal", "finished_at")
OWN: Final = frozenset({"OWN_PURGE", "OWN_CLEANUP", "OWN_ERASER"})
"""Findings that speak of switches of the target itself; SymmetricDS's and JE's have the names of Lethe's."""
SOURCES: Final = {
    "DEFAULT": "Lethe's default",
    "GLOBAL": "all stores",
    "STORE": "this store",
    "TARGET": "the target",
}
router = new_router(include_in_schema=False)


@router.get("/console/stores")
async def get_stores(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    kind: Annotated[Text, Query(max_length=20)] = "",
    label: Annotated[Text, Query(max_length=200)] = "",
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """Stores by id with their health, narrowed by kind and label."""
    given = {name: value for name, value in {"kind": kind, "label": label.strip()}.items() if value}
    more = {"page_token": page_token} if page_token else {}
    found = await api.get("overview", page_size=PAGE, **given, **more)
    token = found["next_page_token"]
    after = "/console/stores?" + urlencode({**given, "page_token": token}) if token else None
    asked = {"kind": kind, "label": label}
    return render(
        request,
        "stores.html",
        signed_in,
        stores=found["stores"],
        after=after,
        asked=asked,
        kinds=list(StoreKind),
    )


@router.get("/console/stores/{store_id}")
async def get_store(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    clock: ClockDep,
    store_id: str,
    window: Annotated[Text, Query(max_length=10)] = "DAY",
) -> Response:
    """One store, live; what asks its target is loaded by itself, and only when somebody looks."""
    store = await api.get("stores", store_id)
    overview = await api.find("overview", store=store_id, page_size=1)
    series = await api.get("stores", store_id, "series", window=window)
    parameters = await api.get("stores", store_id, "parameters")
    look = (overview or {"stores": []})["stores"][:1]
    return render(
        request,
        "store.html",
        signed_in,
        store=store,
        look=look,
        history=await history_of(api, store, look, now=clock.now()),
        trends=[(each, trend(each, series)) for each in series["series"] if each["points"]],
        window=series["window"],
        parameters=_by_interest(parameters["items"]),
        sources=SOURCES,
        own_switches=own_switches(look),
        parts=parts_of(store["kind"]),
        acts=any(StoreKind(store["kind"]) in verb.stores for verb in VERBS),
    )


def own_switches(look: list[Any]) -> list[Any]:
    """What the last check has found of switches of the target itself: those of SymmetricDS, JE and a slon."""
    return [each for store in look for each in store["health"]["details"] if each["code"] in OWN]


def _by_interest(parameters: list[Any]) -> list[Any]:
    """Those that somebody has set first."""
    return sorted(parameters, key=lambda each: (each["source"] == "DEFAULT", each["name"]))


@router.get("/console/stores/{store_id}/parts/{part}")
async def get_part(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    store_id: str,
    part: str,
    reading: Annotated[int | None, Query(ge=0, le=9)] = None,
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """What a store has by its kind: a part of its page, or a page of its own where no script runs.

    Args:
        reading: one of its lists alone, from `page_token` on.
    """
    found = PARTS.get(part)
    if found is None:
        raise NotFound("there is no such part of a store")
    shown = await found.read(api, store_id, reading, page_token)
    return render(request, "part.html", signed_in, store_id=store_id, part=found, shown=shown)


@router.get("/console/stores/{store_id}/cycles/{cycle_id}")
async def get_cycle(
    request: Request, signed_in: SignedInDep, api: ApiDep, store_id: str, cycle_id: str
) -> Response:
    """A cycle of erasure: its files, and the certificate of one that has ended."""
    place = ("stores", store_id, "erasure-cycles", cycle_id)
    cycle = await api.get(*place)
    files = await api.get(*place, "files", page_size=FILES)
    certificate = await api.find(*place, "certificate") if cycle["ended_at"] else None
    return render(
        request,
        "cycle.html",
        signed_in,
        cycle=cycle,
        files=files,
        columns=FILE_COLUMNS,
        certificate=certificate,
    )


@router.post("/console/stores/{store_id}/check")
async def post_check(request: Request, signed_in: SignedInDep, act: ActDep, store_id: str) -> Response:
    """Look at the target now, and show all that was found; who only looks on has no buttons here."""
    signed_in.caller.require(Scope.JOBS_CONTROL)
    found = await act.send("POST", "stores", f"{store_id}:check")
    return render(request, "check.html", signed_in, store_id=store_id, found=found)


@router.post("/console/stores/{store_id}/suspend")
async def post_suspend(act: ActDep, store_id: str) -> Response:
    """Let its jobs rest, for a while or until somebody resumes it."""
    body = {"duration": act.fields.get("duration", "").strip() or None, "reason": act.reason}
    await act.send("POST", "stores", f"{store_id}:suspend", body=body)
    return show_again(f"/console/stores/{store_id}")


@router.post("/console/stores/{store_id}/resume")
async def post_resume(act: ActDep, store_id: str) -> Response:
    """Let its jobs go on."""
    await act.send("POST", "stores", f"{store_id}:resume")
    return show_again(f"/console/stores/{store_id}")
