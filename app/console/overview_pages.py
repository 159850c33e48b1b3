"""Page 1: what needs somebody first, what runs, backups, what is due, the stores; and all of the first."""

from typing import Annotated, Any, Final, cast

from fastapi import Query, Request
from starlette.responses import Response

from app.auth.console_sessions import SignedIn
from app.console.calls import Api
from app.console.rendering import is_live_part, render
from app.console.sessions import ApiDep, SignedInDep
from app.console.shared import SharedParts
from app.kit.http.routing import new_router
from app.kit.values import Text

ATTENTION_MAX: Final = 500
router = new_router(include_in_schema=False)


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
    work = _work(found)
    return render(
        request,
        "overview.html",
        signed_in,
        found=found,
        stores=found["stores"],
        asked_code="",
        work=work,
        more_work=max(0, sum(found["counters"]["jobs"].values()) - len(work)),
        more_backups=max(0, found["counters"]["backups"] - len(found["backups"])),
        is_part=bool(page_token or found["next_page_token"]),
        due=_due(found),
    )


@router.get("/console/attention")
async def get_attention(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    code: Annotated[Text, Query(max_length=40)] = "",
) -> Response:
    """All that needs somebody, or what of it has one code."""
    found = await api.get("overview", attention_code=code or None, attention_max=ATTENTION_MAX, page_size=1)
    number = found["attention_counts"].get(code, 0) if code else found["attention_total"]
    return render(request, "attention.html", signed_in, found=found, asked_code=code, number=number)


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
