"""The change feed of a replica, the history of a key, and the changes that lost: each reads the target.

Rules:
- a page has a bounded number of changes, and its address says where it stands: to load it again repeats it;
- a refusal that a reader can do something about is shown above the form; whoever may not read gets an error.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import Response

from app.auth.rows import StoreName
from app.console.calls import Api, Refused
from app.console.octets import coded, spelled
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.errors import ServiceError
from app.kit.http.routing import new_router
from app.kit.values import Text

PLACE: Final = "/console/stores/{store}"
PAGE_SIZE: Final = 50
STARTS: Final = ("newest", "earliest", "latest")
VERDICTS: Final = ("CONCURRENT", "UNCERTAIN", "SEEN")
FORBIDDEN: Final = frozenset({401, 403, 404})
Name = Annotated[Text, Query(max_length=2_800)]
Short = Annotated[Text, Query(max_length=100)]
Token = Annotated[Text, Query(max_length=4_200)]
router = new_router(include_in_schema=False)


async def _asked(
    api: Api, path: Sequence[str], named: Mapping[str, str], **query: str | int | Sequence[str] | None
) -> tuple[Any, ServiceError | None]:
    """What the API answers, or why it does not.

    Args:
        named: names of bytes as a form gives them.
    Raises: Refused: whoever asks may not, or it is not there.
    """
    try:
        of_bytes = {name: coded(text, name) for name, text in named.items()}
        return await api.get(*path, **of_bytes, **query), None
    except Refused as error:
        if error.status in FORBIDDEN:
            raise
        return None, error
    except ServiceError as error:
        return None, error


def _url(store: str, page: str, **given: Any) -> str:
    """An address of one of these pages; what is empty is left out."""
    kept = urlencode({name: value for name, value in given.items() if value}, doseq=True)
    return f"{PLACE.format(store=store)}/{page}" + (f"?{kept}" if kept else "")


def _of_key(store: str, change: Mapping[str, Any]) -> str:
    """The history of the key of a change."""
    return _url(store, "history", database=spelled(change["database"]), key=spelled(change["key"]))


@router.get(PLACE + "/changes")
async def get_changes(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    store: StoreName,
    cursor: Annotated[Text, Query(max_length=20_000)] = "",
    starting: Short = "",
    database: Name = "",
    prefix: Name = "",
) -> Response:
    """What follows a cursor, and the cursor behind it; without one the newest changes.

    The newest are those of all keys: where some alone are wanted, it begins with the first of them.
    """
    asked = {"cursor": cursor.strip(), "database": database, "prefix": prefix}
    found, problem = await _asked(
        api,
        ("stores", store, "changes", "feed"),
        {"database": database, "prefix": prefix},
        cursor=asked["cursor"] or None,
        starting=starting or ("earliest" if database else "newest"),
        page_size=PAGE_SIZE,
    )
    given = {"database": database, "prefix": prefix}
    after = None if found is None else _url(store, "changes", cursor=found["cursor"], **given)
    return render(
        request,
        "changes.html",
        signed_in,
        store_id=store,
        asked=asked,
        found=found,
        rows=[] if found is None else [(each, _of_key(store, each)) for each in found["items"]],
        after=after,
        starts={start: _url(store, "changes", starting=start, **given) for start in STARTS},
        problem=problem,
    )


@router.get(PLACE + "/history")
async def get_history(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    store: StoreName,
    database: Name = "",
    key: Name = "",
    page_token: Token = "",
) -> Response:
    """Who made each change of a key, and which one won; without a key the form alone."""
    found, problem = None, None
    if database and key:
        found, problem = await _history(api, store, database, key, page_token)
    else:
        await api.get("stores", store)
    token = "" if found is None else found["next_page_token"]
    return render(
        request,
        "history.html",
        signed_in,
        store_id=store,
        asked={"database": database, "key": key},
        found=found,
        older=_url(store, "history", database=database, key=key, page_token=token) if token else None,
        problem=problem,
    )


async def _history(
    api: Api, store: str, database: str, key: str, page_token: str
) -> tuple[Any, ServiceError | None]:
    try:
        names = (coded(database, "database") or "", coded(key, "key") or "")
    except ServiceError as error:
        return None, error
    path = ("stores", store, "entries", *names, "history")
    return await _asked(api, path, {}, page_size=PAGE_SIZE, page_token=page_token or None)


@router.get(PLACE + "/overwritten")
async def get_overwritten(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    store: StoreName,
    since: Short = "",
    verdict: Short = "",
    database: Name = "",
    page_token: Token = "",
) -> Response:
    """Changes that lost against one of another replica."""
    asked = {"since": since.strip(), "verdict": verdict, "database": database}
    found, problem = await _asked(
        api,
        ("stores", store, "changes", "overwritten"),
        {"database": database},
        since=asked["since"] or None,
        verdict=verdict or None,
        page_size=PAGE_SIZE,
        page_token=page_token or None,
    )
    token = "" if found is None else found["next_page_token"]
    return render(
        request,
        "lost_changes.html",
        signed_in,
        store_id=store,
        asked=asked,
        verdicts=VERDICTS,
        found=found,
        rows=[] if found is None else [(each, _of_key(store, each)) for each in found["items"]],
        more=_url(store, "overwritten", page_token=token, **asked) if token else None,
        problem=problem,
    )
