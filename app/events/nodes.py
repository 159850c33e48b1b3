"""The cluster's nodes that are registered as stores: opened, and asked at the same time.

A node is found by asking: each store of kind SLONY with the same cluster name tells its own node id, its
nodes and paths. Two clusters may have the same name: a store belongs to the cluster only if it shares a path
(server, client and connection string) with the one that asks or, where both know no path, has the same nodes.

Invariants:
- a store that cannot be asked, or takes too long, is named in `unasked`; nobody is taken for asked silently;
- for each node there is at most one view, and the asking store's own is always there;
- of two databases that say they are one node only the one speaks that the cluster's paths lead to; where they
  do not tell, none does, and nothing is written to either.
Source: design.md, Events.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from sqlalchemy.engine import make_url
from sqlmodel import col, select

from app.db import Database
from app.errors import ServiceError
from app.events.errors import NodeCopied
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import session_limits, target_of
from spark.events.catalog import pending_digest, read_addresses, read_catalog, read_server
from spark.events.records import Address, Catalog, Path, ServerSelf
from spark.targets.connection import Connection, SessionLimits, connect
from spark.targets.errors import TargetError

NODES_MAX: Final = 100
"""So many other stores of one cluster name are asked; more would be no cluster of Slony-I."""
ASKED_AT_ONCE_MAX: Final = 8
STATEMENT_TIMEOUT_MAX_MS: Final = 10_000
ASKING_MAX_S: Final = 30.0
"""For all of them together; who has not answered then is `unasked`."""
COPIES_MAX_S: Final = 3.0
"""For those that might be copies; a dead node must not hold up the others."""
POSTGRESQL_PORT: Final = 5432
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
LOCAL_NODE: Final = "local_node"
"""Among the target's own values that `:check` notes on the store."""


T = TypeVar("T")
NodeReader = Callable[[Connection, Catalog], T]


@dataclass(frozen=True, slots=True)
class NodeView(Generic[T]):
    """What one node told of the cluster."""

    store: Store
    catalog: Catalog
    found: T
    server: ServerSelf
    addresses: tuple[Address, ...]
    """Of this node, by the paths that it knows."""

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
    database: Database,
    settings: Settings,
    store: Store,
    read: NodeReader[T],
    *,
    purpose: str,
    max_s: float = ASKING_MAX_S,
) -> ClusterViews[T]:
    """Ask every registered node of a store's cluster, the store's own first.

    Args:
        read: called with each node's connection (read-only, autocommit) and catalog, in threads of its own.
        purpose: for the servers' lists of sessions.
        max_s: for all other nodes together.
    Raises: TargetError, ServiceError: the store itself cannot be asked.
    """
    own = _ask(store, settings, database, read, purpose)
    said: dict[int, list[NodeView[T]]] = {own.node: [own]}
    unasked: list[Unasked] = []
    for answer in ask_all(stores_of_name(database, store), settings, database, read, purpose, max_s=max_s):
        if isinstance(answer, Unasked):
            unasked.append(answer)
        elif is_same_cluster(own.catalog, answer.catalog):
            said.setdefault(answer.node, []).append(answer)
    views: dict[int, NodeView[T]] = {}
    for node, answers in said.items():
        found, copies = told_apart(answers)
        if found is not None or node == own.node:
            views[node] = found or own
        unasked += [_copy(copy.store, node) for copy in copies if copy is not own]
    original = views[own.node]
    if is_another(original, own):
        raise NodeCopied(own.node, store.id, [original.store.id], original=original.store.id)
    views[own.node] = own
    return ClusterViews(own=own, views=views, unasked=tuple(unasked))


def refuse_copy(
    database: Database, settings: Settings, store: Store, conn: Connection, catalog: Catalog
) -> None:
    """Refuse to write to a node of which another registered store is, or may be, the original.

    Only stores are asked that may be this node: those that were never looked at by `:check`, and those that
    it found to be. Who does not answer soon says nothing.

    Raises: NodeCopied.
    """
    others = [
        each
        for each in stores_of_name(database, store)
        if each.target_parameters.get(LOCAL_NODE, catalog.local_node) == catalog.local_node
    ]
    if not others:
        return
    own = NodeView(store, catalog, None, read_server(conn), read_addresses(conn, catalog, catalog.local_node))
    answers = [
        answer
        for answer in ask_all(
            others, settings, database, lambda _conn, _catalog: None, "copies", max_s=COPIES_MAX_S
        )
        if not isinstance(answer, Unasked)
        and answer.node == own.node
        and is_same_cluster(catalog, answer.catalog)
        and is_another(own, answer)
    ]
    if not answers:
        return
    original, _ = told_apart([own, *answers])
    if original is not own:
        names = [answer.store.id for answer in answers]
        raise NodeCopied(own.node, store.id, names, original=None if original is None else original.store.id)


def is_another(one: NodeView[Any], other: NodeView[Any]) -> bool:
    """Whether two stores that say they are one node are different databases that take writes."""
    if one.server.is_standby or other.server.is_standby:
        return False
    if one.server.identity != other.server.identity:
        return True
    return one.server.started_at != other.server.started_at


def told_apart(answers: Sequence[NodeView[T]]) -> tuple[NodeView[T] | None, list[NodeView[T]]]:
    """The one that the paths of the cluster lead to, and those that are copies of it; None: they do not tell.

    Stores that are one database under several names are no copies of each other: the first speaks for it.
    """
    first, *_ = answers
    if not any(is_another(first, other) for other in answers):
        return first, []
    ranked = sorted(answers, key=_closeness, reverse=True)
    best = ranked[0]
    if any(is_another(best, other) and _closeness(other) == _closeness(best) for other in ranked[1:]):
        return None, list(answers)
    return best, [other for other in answers if is_another(best, other)]


def _closeness(view: NodeView[Any]) -> int:
    """How well a store's address is what the paths to its node say: database, then port, then host."""
    url = make_url(view.store.url or "")
    best = 0
    for address in view.addresses:
        if address.database != url.database:
            continue
        has_port = (address.port or POSTGRESQL_PORT) == (url.port or POSTGRESQL_PORT)
        has_host = _place(address.host) == _place(url.host)
        best = max(best, 1 + 2 * has_port + has_host)
    return best


def _place(host: str | None) -> str:
    """A host's name as it is compared: all of this machine's own names are one."""
    name = (host or "localhost").lower()
    return "localhost" if name.startswith("/") or name in LOOPBACK else name


def _copy(store: Store, node: int) -> Unasked:
    detail = f"another database says that it is node {node} too, and the paths do not lead to this one"
    return Unasked(store=store, node=node, code="NODE_COPIED", detail=detail)


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
    return frozenset(path for path in catalog.paths if path.digest != pending_digest())


def ask_all(
    stores: list[Store],
    settings: Settings,
    database: Database,
    read: NodeReader[T],
    purpose: str,
    *,
    max_s: float = ASKING_MAX_S,
) -> Iterator[NodeView[T] | Unasked]:
    """Ask stores at the same time; in the order of `stores`, those that are late as Unasked.

    Args:
        read: called with each node's connection (read-only, autocommit) and catalog, in threads of its own.
        purpose: for the servers' lists of sessions.
        max_s: for all of them together.
    """
    if not stores:
        return
    pool = ThreadPoolExecutor(min(len(stores), ASKED_AT_ONCE_MAX), thread_name_prefix="lethe-nodes")
    try:
        asked: list[tuple[Store, Future[NodeView[T] | Unasked]]] = [
            (store, pool.submit(_try_asking, store, settings, database, read, purpose)) for store in stores
        ]
        wait([future for _, future in asked], timeout=max_s)
        for store, future in asked:
            if future.done():
                yield future.result()
            else:
                detail = f"no answer within {max_s:.0f} s"
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
        addresses = read_addresses(conn, catalog, catalog.local_node)
        found = read(conn, catalog)
        return NodeView(store, catalog, found, read_server(conn), addresses)


def _unasked(store: Store, code: str, detail: str) -> Unasked:
    node = store.target_parameters.get(LOCAL_NODE)
    return Unasked(store=store, node=node if isinstance(node, int) else None, code=code, detail=detail)
