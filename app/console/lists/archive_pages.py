"""An archive: what it holds, and the form that brings its rows back.

Rules:
- the API has no plan of a restore: the store's name is typed, as for every act without one;
- the form asks for the places that the token's scopes and the store allow. What is posted besides reaches the
  API, which refuses it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Path, Request
from starlette.responses import Response

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.console.acting import Act, ActDep, show_again
from app.console.acts.fields import Field, body_of, fields_of
from app.console.acts.pages import check_named, job_url
from app.console.calls import Api
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.errors import ServiceError
from app.kit.http.routing import new_router
from app.verbs.archives import RESTORE

PAGE: Final = "/console/archives/{job_id}"
FILES_MAX: Final = 100
TEXTS: Final = frozenset({"into.file", "into.schema"})
ArchiveId = Annotated[str, Path(pattern=r"^job_[0-9a-z]{26}$")]
router = new_router(include_in_schema=False)


def restore_fields() -> list[Field]:
    """Where the rows may go, as the API's request has it."""
    found = fields_of(RESTORE.request, None)
    return [replace(each, form="text") if each.name in TEXTS else each for each in found]


def _offered(caller: Caller, store: Mapping[str, Any] | None) -> list[Field]:
    """The places that a token may name; a store that is not registered any more has neither of its own."""
    return [each for each in restore_fields() if _may(caller, each.name) and _has(store, each.name)]


def _may(caller: Caller, field: str) -> bool:
    outer, _, inner = field.partition(".")
    is_live = inner == "live"
    wanted = {outer: {inner: is_live or ("/x" if inner == "file" else "x")}}
    return caller.scopes >= {RESTORE.scope, *RESTORE.more_scopes(wanted)}


def _has(store: Mapping[str, Any] | None, field: str) -> bool:
    if field == "into.schema":
        # Another one may bear the name by now, such as a JE environment, which has no address.
        return store is not None and not (store["url"] or "sqlite").startswith("sqlite")
    return field != "into.live" or store is not None


@router.get(PAGE)
async def get_archive(request: Request, signed_in: SignedInDep, api: ApiDep, job_id: ArchiveId) -> Response:
    """What an archive holds, and where its rows can go."""
    return await _page(request, signed_in, api, job_id)


async def _page(
    request: Request,
    signed_in: SignedInDep,
    api: Api,
    job_id: str,
    filled: Mapping[str, str] | None = None,
    problem: ServiceError | None = None,
) -> Response:
    archive = await api.get("archives", job_id)
    store = await api.find("stores", archive["store"])
    return render(
        request,
        "archive.html",
        signed_in,
        archive=archive,
        store=store,
        files=archive["file_list"][:FILES_MAX],
        more_files=max(0, len(archive["file_list"]) - FILES_MAX),
        fields=_offered(signed_in.caller, store),
        filled=filled or {},
        problem=problem,
    )


@router.post(PAGE + "/restore")
async def post_restore(request: Request, signed_in: SignedInDep, act: ActDep, job_id: ArchiveId) -> Response:
    """Bring the rows back, and lead to the job."""
    act.require(Scope(RESTORE.scope))
    try:
        archive = await act.api.get("archives", job_id)
        check_named(archive["store"], act)
        found = await _restore(act, job_id)
    except ServiceError as error:
        return await _page(request, signed_in, act.api, job_id, act.fields, error)
    return show_again(job_url(found))


async def _restore(act: Act, job_id: str) -> Any:
    body = body_of(restore_fields(), act.fields) | {"reason": act.reason}
    return await act.send("POST", "archives", f"{job_id}:restore", body=body)
