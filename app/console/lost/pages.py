"""Was anything lost? A form for files of servers at the page of a store of kind DS389, and the answer.

Rules:
- no server is asked and nothing is kept: the answer stands on the page that the form leads to, no other;
- as with `Check now`, who only looks on has no form: it costs the service time.
"""

from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.console.acting import ActDep
from app.console.calls import Api
from app.console.lost.evidence import Evidence, placed, read_evidence
from app.console.lost.telling import row_of, tell
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.errors import NotFound, ServiceError
from app.kit.http.routing import new_router
from app.stores.models import StoreKind

PAGE: Final = "/console/stores/{store}/lost"
SERVERS_MAX: Final = 20
SHOWN_MAX: Final = 200
Servers = Annotated[int, Query(ge=1, le=SERVERS_MAX)]
router = new_router(include_in_schema=False)


async def _require_server(api: Api, store: str) -> None:
    found = await api.get("stores", store)
    if found["kind"] != StoreKind.DS389:
        raise NotFound("this store is no server of 389 Directory Server")


@router.get(PAGE)
async def get_lost(
    request: Request, signed_in: SignedInDep, api: ApiDep, store: StoreName, servers: Servers = 2
) -> Response:
    """The form, for so many servers."""
    await _require_server(api, store)
    return _page(request, signed_in, store, servers)


@router.post(PAGE)
async def post_lost(
    request: Request, signed_in: SignedInDep, act: ActDep, store: StoreName, servers: Servers = 2
) -> Response:
    """Judge what was given, and show the answer."""
    act.require(Scope.JOBS_CONTROL)
    await _require_server(act.api, store)
    try:
        evidence = await run_in_threadpool(read_evidence, act.fields, servers)
        found = await _judged(act.api, evidence)
    except ServiceError as error:
        return _page(request, signed_in, store, servers, filled=act.fields, problem=error)
    return _page(request, signed_in, store, servers, found=found)


async def _judged(api: Api, evidence: Evidence) -> Any:
    try:
        return await api.call("POST", "ds389:find-lost", body=evidence.body)
    except ServiceError as error:
        raise placed(error, evidence) from error


def _page(
    request: Request,
    signed_in: SignedInDep,
    store: str,
    servers: int,
    *,
    filled: Any = None,
    problem: ServiceError | None = None,
    found: Any = None,
) -> Response:
    lost = [] if found is None else found["lost"]
    sessions = [] if found is None else found["sessions"]
    return render(
        request,
        "lost.html",
        signed_in,
        store_id=store,
        servers=servers,
        servers_max=SERVERS_MAX,
        filled=filled or {},
        problem=problem,
        found=found,
        told=[] if found is None else list(tell(found)),
        lost=[row_of(each) for each in lost[:SHOWN_MAX]],
        more_lost=max(0, len(lost) - SHOWN_MAX),
        sessions=sessions[:SHOWN_MAX],
        more_sessions=max(0, len(sessions) - SHOWN_MAX),
    )
