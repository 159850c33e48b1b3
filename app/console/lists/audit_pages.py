"""Page 6: who did what, whether the chain of rows holds, and what the service runs on."""

from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.responses import Response

from app.console.calls import Api, Refused
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.kit.http.routing import new_router
from app.kit.values import Text

PAGE_SIZE: Final = 50
VERIFIED_MAX: Final = 20_000
CONFLICT: Final = 409
FILTERS: Final = ("action", "actor", "store", "subject_id", "created_after", "created_before")
Filter = Annotated[Text, Query(max_length=120)]
router = new_router(include_in_schema=False)


@router.get("/console/audit")
async def get_audit(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    action: Filter = "",
    actor: Filter = "",
    store: Filter = "",
    subject_id: Filter = "",
    created_after: Filter = "",
    created_before: Filter = "",
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
    verify: bool = False,
    after_seq: Annotated[int, Query(ge=0)] = 0,
    after_hash: Filter = "",
) -> Response:
    """One page of rows, the newest first, and how the chain stands."""
    given = (action, actor, store, subject_id, created_after, created_before)
    filters = {name: value.strip() for name, value in zip(FILTERS, given, strict=True)}
    query: dict[str, str | int] = {name: value for name, value in filters.items() if value}
    query |= {"page_size": PAGE_SIZE, "page_token": page_token}
    rows = await api.call("GET", "audit-events", query=query)
    values = {"filters": filters, "rows": rows["items"], "next_token": rows["next_page_token"]}
    chain = await api.find("audit-chain")
    verified = await _verified(api, after_seq, after_hash) if verify and chain else None
    return render(request, "audit.html", signed_in, chain=chain, verified=verified, **values)


async def _verified(api: Api, after_seq: int, after_hash: str) -> Any:
    """Rows of the chain, computed again; a long one in several requests."""
    query: dict[str, str | int] = {"rows_max": VERIFIED_MAX}
    if after_hash:
        query |= {"after_seq": after_seq, "after_hash": after_hash}
    return await api.call("GET", "audit-chain", "verification", query=query)


@router.get("/console/system")
async def get_system(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """Instances, the Spark pool, and tokens without their secrets, where the token may see them."""
    instances = await api.find("instances", page_size=100)
    pool, no_pool = await _pool(api)
    tokens = await api.find("tokens", page_size=PAGE_SIZE, page_token=page_token or None)
    values = {"instances": instances, "pool": pool, "no_pool": no_pool, "tokens": tokens}
    return render(request, "system.html", signed_in, **values)


async def _pool(api: Api) -> tuple[Any, Refused | None]:
    """The Spark pool, or why this instance has none; neither: the token does not see it."""
    try:
        return await api.find("spark-pool"), None
    except Refused as error:
        if error.status != CONFLICT:
            raise
        return None, error
