"""Page 5: who holds which files until when, and whether it is valid."""

import asyncio
from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.responses import Response

from app.console.calls import Api
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.kit.http.routing import new_router
from app.kit.values import Text

STORES_MAX: Final = 20
SHOWN_MAX: Final = 50
router = new_router(include_in_schema=False)


@router.get("/console/backups")
async def get_backups(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """The newest backups and the protections that hold, of one page of stores."""
    found = await api.get("stores", kind="JE", page_size=STORES_MAX, page_token=page_token or None)
    names = [store["id"] for store in found["items"]]
    backups, cut_backups = await _of_all(api, names, "backup-sessions", state=None)
    protections, cut_protections = await _of_all(api, names, "protections", state="ACTIVE")
    return render(
        request,
        "backups.html",
        signed_in,
        stores=names,
        backups=backups,
        protections=protections,
        cut_backups=cut_backups,
        cut_protections=cut_protections,
        shown_max=SHOWN_MAX,
        next_token=found["next_page_token"],
    )


async def _of_all(
    api: Api, stores: list[str], what: str, *, state: str | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """One page of each store, and the stores that have more; a store that went meanwhile has none."""
    lists = await asyncio.gather(
        *(api.find("stores", store, what, state=state, page_size=SHOWN_MAX) for store in stores)
    )
    rows = [row for each in lists if each is not None for row in each["items"]]
    cut = [
        store
        for store, each in zip(stores, lists, strict=True)
        if each is not None and each["next_page_token"]
    ]
    return sorted(rows, key=lambda row: row["created_at"], reverse=True), cut
