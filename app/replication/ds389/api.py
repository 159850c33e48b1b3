"""The replicas of 389 Directory Server: health, topology, and whether anything was lost."""

from typing import Annotated

from fastapi import Body, Depends, Query

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import NotFound
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.ds389.looking import Look, look, stores_of_suffix
from app.replication.ds389.lost.models import LostRead, LostRequest
from app.replication.ds389.lost.service import answer_lost
from app.replication.ds389.models import Ds389HealthRead, Ds389TopologyRead
from app.replication.ds389.notes import note_look
from app.replication.ds389.showing import shown_health, shown_topology
from app.settings import Settings
from app.stores.api import StoreId, read_row
from app.stores.models import StoreKind
from app.stores.service import require_kind

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Judge = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Suffix = Annotated[
    str, Query(min_length=3, max_length=1000, description="The replicated suffix that the stores have.")
]


class SuffixNotFound(NotFound):
    """No store that the token may see is a replica of the suffix."""


@router.get(
    "/v1/stores/{store_id}/ds389-health",
    response_model=Ds389HealthRead,
    summary="Whether a replica of 389 Directory Server is well",
    operation_id="get_ds389_health",
    responses=problems(404, 409),
)
def get_health(
    store_id: StoreId, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> Ds389HealthRead:
    """What concerns one server; the others of its suffix are asked too, as far as the token may see them.

    Nothing is written there. A server that cannot be asked is UNKNOWN or CRITICAL, and no error. The limits
    are the store's parameters `ds389.*`. `/metrics` tells the last look.
    """
    store = read_row(database, store_id, caller)
    require_kind(store, StoreKind.DS389)
    seen = _look(database, settings, store.suffix or "", caller)
    seen.found = [each for each in seen.found if store.id in each.servers]
    shown = shown_health(seen)
    shown.servers = [each for each in shown.servers if each.store == store.id]
    return shown


@router.get(
    "/v1/ds389/health",
    response_model=Ds389HealthRead,
    summary="Whether all replicas of a suffix are well",
    operation_id="get_ds389_suffix_health",
    responses=problems(404),
)
def get_suffix_health(
    suffix: Suffix, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> Ds389HealthRead:
    """Asks all registered servers of this suffix at the same time; one that does not answer is named.

    Only stores that the token may see are asked.
    """
    return shown_health(_look(database, settings, suffix, caller))


@router.get(
    "/v1/ds389/topology",
    response_model=Ds389TopologyRead,
    summary="Who supplies whom, and how far behind everybody is",
    operation_id="get_ds389_topology",
    responses=problems(404),
)
def get_topology(
    suffix: Suffix, caller: Reader, database: DatabaseDep, settings: SettingsDep
) -> Ds389TopologyRead:
    """The servers of a suffix with their RUVs, and their agreements with the lag of each replica.

    Lag lies between two ages: of the newest change that is missing, and of the newest one that is there.
    """
    return shown_topology(_look(database, settings, suffix, caller))


@router.post(
    "/v1/ds389:find-lost",
    response_model=LostRead,
    summary="Whether any change was lost, by what servers have left",
    operation_id="find_ds389_lost",
    responses=problems(),
)
def post_find_lost(body: Annotated[LostRequest, Body()], caller: Judge) -> LostRead:
    """Computes on the body alone; no server is asked and nothing is changed.

    `lethe ds389 lost` reads the same from files: exports of changelogs, error logs, access logs.
    """
    return answer_lost(body)


def _look(database: Database, settings: Settings, suffix: str, caller: Caller) -> Look:
    visible = caller.visible_stores()
    stores = stores_of_suffix(database, suffix, visible)
    if not stores:
        raise SuffixNotFound(f"no store of kind DS389 has the suffix {suffix!r}")
    seen = look(database, settings, stores, is_whole=visible is None)
    if visible is None:  # figures are for all: what some of the servers tell would hide what all of them do
        note_look(database, seen)
    return seen
