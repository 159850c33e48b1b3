"""Page 1: what needs somebody first, what runs, backups, what comes next, the stores."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.auth.console_sessions import SignedIn
from app.console.calls import Api
from app.console.rendering import is_live_part, render
from app.console.sessions import ApiDep, SignedInDep
from app.console.shared import SharedParts
from app.kit.values import Text

router = APIRouter(include_in_schema=False)


@router.get("/console/")
async def get_overview(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """All at one look, by one call of the API; the live part is one for all who see the same."""

    async def make() -> Response:
        return await _shown(request, signed_in, api, page_token)

    parts = cast(SharedParts, request.app.state.console_parts)
    if not is_live_part(request):
        parts.forget(request, signed_in.caller)
        return await make()
    return await parts.get(request, signed_in.caller, make)


async def _shown(request: Request, signed_in: SignedIn, api: Api, page_token: str) -> Response:
    found = await api.get("overview", page_token=page_token or None)
    return render(
        request,
        "overview.html",
        signed_in,
        found=found,
        stores=found["stores"],
        work=_work(found),
        due=_due(found),
    )


def _work(found: Any) -> list[dict[str, Any]]:
    """Jobs that run, of all stores; then those of the page that have not ended, and those of many stores."""
    of_page = [{**each, "store": store["id"]} for store in found["stores"] for each in store["work"]]
    others = [{**each, "store": None} for each in found["batches"]] + of_page
    running = {each["id"] for each in found["running"]}
    return [*found["running"], *(each for each in others if each["id"] not in running)]


def _due(found: Any) -> list[dict[str, Any]]:
    """What comes next, the soonest first."""
    verbs = [
        {**verb, "store": store["id"]}
        for store in found["stores"]
        for verb in store["verbs"]
        if verb["next_due_at"] is not None
    ]
    return sorted(verbs, key=lambda verb: verb["next_due_at"])[:10]
