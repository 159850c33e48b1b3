"""The cluster's nodes that are registered as stores: opened, and asked at the same time.

A node is found by asking: each store of kind SLONY with the same cluster name tells its own node id, its
nodes and paths. Two clusters may have the same name: a store belongs to the cluster only if it shares a path
(server, client and connection string) with the one that asks or, where both know no path, has the same nodes.

Invariants:
- a store that cannot be asked, or takes too long, is named in `unasked`; nobody is taken for asked silently;
- for each node there is at most one view, and the asking store's own is always there.
Source: design.md, Events.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from sqlmodel import col, select

from app.db import Database
from app.errors import ServiceError
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.models import Store, StoreKind
from app.stores.service import require_kind
from app.stores.targets import session_limits, target_of
from spark.events.catalog import path_digest, read_catalog
from spark.events.records import Catalog, Path
from spark.targets.connection import Connection, SessionLimits, connect
from spark.targets.errors import TargetError

NODES_MAX: Final = 100
"""So many other stores of one cluster name are asked; more would be no cluster of Slony-I."""
ASKED_AT_ONCE_MAX: Final = 8
STATEMENT_TIMEOUT_MAX_MS: Final = 10_000
ASKING_MAX_S: Final = 30.0
"""For all of them together; who has not answered then is `unasked`."""
LOCAL_NODE: Final = "local_node"
"""Among the target's own values that `:check` notes on the store."""

_PENDING: Final = path_digest("<event pending>")
"""What the program writes into sl_path until the real connection string has arrived."""

T = TypeVar("T")
NodeReader = Callable[[Connection, Catalog], T]


@dataclass(frozen=True, slots=True)
class NodeView(Generic[T]):
    """What one node told of the cluster."""

    store: Store
    catalog: Catalog
    found: T

    @property
    def node(self) -> int:
        """Its own id."""
        return self.catalog.local_node


@dataclass(frozen=True, slots=True)
class Unasked:
    """A store of the cluster's name that did not tell anything.

    Args:
        node: the id that it had when it was last looked at by `:check`; None: never.
        code: of the error: TARGET_UNREACHABLE, NODE_UNINITIALISED, RUNS_ON_ELSEWHERE, NO_ANSWER_IN_TIME...
    """

    store: Store
    node: int | None
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class ClusterViews(Generic[T]):
    """What all registered nodes of a cluster told, by node id; the asking store's own among them."""

    own: NodeView[T]
    views: Mapping[int, NodeView[T]]
    unasked: tuple[Unasked, ...]

    def why_missing(self, node: int) -> str:
        """Why there is no view of a node: UNREACHABLE or NOT_REGISTERED.

        A store that never told its node id may be any: it makes every missing node UNREACHABLE.
        """
        assert node not in self.views, "it was asked"
        return "UNREACHABLE" if any(one.node in (node, None) for one in self.unasked) else "NOT_REGISTERED"


@contextmanager
def connected_node(
    store: Store,
    settings: Settings,
    database: Database,
    *,
    purpose: str,
    read_only: bool = True,
    limits: SessionLimits | None = None,
) -> Iterator[tuple[Connection, Catalog]]:
    """A connection to a node, and the cluster as it knows it.

    Raises: TargetError: NotASlonyDatabase, CatalogIncomplete, NodeUninitialised among them; ServiceError:
        StoreKindWrong, SecretUnavailable.
    """
    require_kind(store, StoreKind.SLONY)
    assert store.cluster is not None, "a store of kind SLONY names its cluster"
    with connect(
        target_of(store, settings, database),
        application_name=f"lethe:{purpose}",
        limits=limits or session_limits(settings),
        read_only=read_only,
    ) as conn:
        yield conn, read_catalog(conn, store.cluster)


@contextmanager
def opened_node(
    store: Store, settings: Settings, database: Database, *, purpose: str, read_only: bool = True
) -> Iterator[tuple[Connection, Catalog]]:
    """`connected_node` for a request of the API: every error leaves as a problem.

    Raises: ServiceError.
    """
    try:
        with connected_node(store, settings, database, purpose=purpose, read_only=read_only) as found:
            yield found
    except TargetError as error:
        raise service_error(error) from error


def ask_cluster(
    database: Database, settings: Settings, store: Store, read: NodeReader[T], *, purpose: str
) -> ClusterViews[T]:
    """Ask every registered node of a store's cluster, the store's own first.

    Args:
        read: called with each node's connection (read-only, autocommit) and catalog, in threads of its own.
        purpose: for the servers' lists of sessions.
    Raises: TargetError, ServiceError: the store itself cannot be asked.
    """
    own = _ask(store, settings, database, read, purpose)
    views, unasked = {own.node: own}, []
    for answer in _ask_all(stores_of_name(database, store), settings, database, read, purpose):
        if isinstance(answer, Unasked):
            unasked.append(answer)
        elif is_same_cluster(own.catalog, answer.catalog):
            views.setdefault(answer.node, answer)
    return ClusterViews(own=own, views=views, unasked=tuple(unasked))


def stores_of_name(database: Database, store: Store) -> list[Store]:
    """The other stores of kind SLONY with the same cluster name, by id."""
    query = (
        select(Store)
        .where(Store.kind == StoreKind.SLONY, Store.cluster == store.cluster, col(Store.id) != store.id)
        .order_by(col(Store.id))
        .limit(NODES_MAX)
    )
    with database.reading() as db:
        return list(db.exec(query).all())


def is_same_cluster(one: Catalog, other: Catalog) -> bool:
    """Whether two catalogs of one name are of one cluster."""
    if one.cluster != other.cluster:
        return False
    paths, other_paths = _told(one), _told(other)
    if paths or other_paths:
        return not paths.isdisjoint(other_paths)
    return {node.id for node in one.nodes} == {node.id for node in other.nodes}


def _told(catalog: Catalog) -> frozenset[Path]:
    """The paths of a catalog whose connection string has arrived."""
    return frozenset(path for path in catalog.paths if path.digest != _PENDING)


def _ask_all(
    stores: list[Store], settings: Settings, database: Database, read: NodeReader[T], purpose: str
) -> Iterator[NodeView[T] | Unasked]:
    """Ask stores at the same time; in the order of `stores`, those that are late as Unasked."""
    if not stores:
        return
    pool = ThreadPoolExecutor(min(len(stores), ASKED_AT_ONCE_MAX), thread_name_prefix="lethe-nodes")
    try:
        asked: list[tuple[Store, Future[NodeView[T] | Unasked]]] = [
            (store, pool.submit(_try_asking, store, settings, database, read, purpose)) for store in stores
        ]
        wait([future for _, future in asked], timeout=ASKING_MAX_S)
        for store, future in asked:
            if future.done():
                yield future.result()
            else:
                detail = f"no answer within {ASKING_MAX_S:.0f} s"
                yield _unasked(store, "NO_ANSWER_IN_TIME", detail)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever still asks ends by its own timeouts


def _try_asking(
    store: Store, settings: Settings, database: Database, read: NodeReader[T], purpose: str
) -> NodeView[T] | Unasked:
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it"
        return _unasked(store, "RUNS_ON_ELSEWHERE", detail)
    try:
        return _ask(store, settings, database, read, purpose)
    except (TargetError, ServiceError) as error:
        return _unasked(store, error.code, error.detail)


def _ask(
    store: Store, settings: Settings, database: Database, read: NodeReader[T], purpose: str
) -> NodeView[T]:
    usual = session_limits(settings)
    limits = replace(usual, statement_timeout_ms=min(usual.statement_timeout_ms, STATEMENT_TIMEOUT_MAX_MS))
    with connected_node(store, settings, database, purpose=purpose, limits=limits) as (conn, catalog):
        return NodeView(store=store, catalog=catalog, found=read(conn, catalog))


def _unasked(store: Store, code: str, detail: str) -> Unasked:
    node = store.target_parameters.get(LOCAL_NODE)
    return Unasked(store=store, node=node if isinstance(node, int) else None, code=code, detail=detail)
