"""`:check` of a SLONY store: what the node is, what the role may do there, who stands in the way."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

import structlog
from sqlmodel import col, select

from app.db import Database
from app.events.health.checking import health_findings, note_refused, try_reading
from app.events.looks import keep_look
from app.events.nodes import LOCAL_NODE, stores_of_name
from app.events.recover import node_resources
from app.jobs.running.recovery import ahead_findings
from app.kit.durations import duration_of
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.checks.models import (
    Finding,
    FindingSeverity,
    MissingPermission,
    SlonRead,
    SlonyCheck,
    SlonyNodeRead,
    SlonyPathRead,
    SlonySessionRead,
    StoreCheck,
    TableSize,
)
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.targets import session_limits, target_of
from spark.events.cleaning.records import LogStatusRead, Session
from spark.events.confirmations import confirmed_upto, read_matrix
from spark.events.inspect import Slon, SlonyInspection, inspect_node
from spark.events.records import Catalog
from spark.events.records import Confirmed as Pair
from spark.events.rights import Ability
from spark.targets.connection import Connection, connect
from spark.targets.errors import UNREACHED, TargetError

CLOCK_TOLERANCE_S: Final = 5.0
LONG_TRANSACTION_S: Final = 60.0
"""A transaction of this age holds back the log switch noticeably; a younger one is the usual work."""
CLEANER_PARAMETER: Final = "start.cleanup_thread"
IDLE_TRANSACTION_S: Final = 10.0
"""A client is idle in its transaction between any two statements; one of this age may be forgotten."""
MATRIX_MS: Final = 5_000
"""A node far behind has millions of events to count, and a check comes every few minutes."""
NAMED_MAX: Final = 10
"""So many things of one kind are named in a finding."""
VERBS: Final[dict[Ability, tuple[str, ...]]] = {
    "READ": ("READ_EVENTS", "WAIT", "PLAN_CLEANUP"),
    "CREATE_SYNC": ("CREATE_SYNC",),
    "CONFIRM": ("CONFIRM",),
    "CLEANUP_NATIVE": ("CLEANUP_NATIVE",),
    "CLEANUP": ("CLEANUP_BUILTIN",),
    "LOG_SWITCH": ("LOG_SWITCH",),
}
OF_FUNCTIONS: Final = frozenset({"CREATE_SYNC", "CLEANUP_NATIVE", "LOG_INDICES"})
"""What is done by the cluster's functions: where those are not installed no right is missing for it."""

Confirmed = dict[tuple[int, int], int]

logger = structlog.get_logger("lethe.events")


def check_node(database: Database, store: Store, settings: Settings, now: datetime) -> StoreCheck:
    """Look at the node; whatever is wrong with it is a finding. Nothing is written, nothing is locked."""
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it; this service does not try"
        return StoreCheck(ok=True, reachable=False, findings=[_finding("INFO", "RUNS_ON_ELSEWHERE", detail)])
    assert store.cluster is not None, "a store of kind SLONY names its cluster"
    try:
        with connect(
            target_of(store, settings, database),
            application_name="lethe:check",
            limits=session_limits(settings),
            read_only=True,
        ) as conn:
            found = inspect_node(conn, store.cluster)
            ahead = ahead_findings(database, conn, node_resources(store))
            confirmed = {} if found.catalog is None else confirmed_upto(conn, found.catalog)
            pairs = None if found.catalog is None else _matrix(conn, found.catalog)
            health = None if found.catalog is None else try_reading(conn, found.catalog)
    except TargetError as error:
        note_refused(database, store, error.code)
        reachable = not error.transient and error.code not in UNREACHED
        return _refused(error.code, error.detail, reachable=reachable)
    except SecretUnavailable as error:
        note_refused(database, store, error.code)
        return _refused(error.code, error.detail, reachable=False)
    if found.catalog is not None and pairs is not None:
        keep_look(database, store, found.catalog, pairs, found.log_status, as_of=found.now, now=now)
    report = _report(database, store, found, confirmed, now)
    told = {finding.code for finding in report.findings}
    report.findings += health_findings(database, store, health, told)
    report.add(ahead)
    return report


def _matrix(conn: Connection, catalog: Catalog) -> Sequence[Pair] | None:
    """Who has confirmed what; None: not counted in its time, and the rest of the check stands."""
    try:
        conn.execute(f"set statement_timeout = {MATRIX_MS}")
        return read_matrix(conn, catalog)
    except TargetError as error:
        logger.info("no matrix", code=error.code, detail=error.detail)
        return None


def _report(
    database: Database, store: Store, found: SlonyInspection, confirmed: Confirmed, now: datetime
) -> StoreCheck:
    difference_s = (found.now - now).total_seconds()
    catalog = found.catalog
    findings = _conflicts(database, store, found)
    conflicts = [each.detail for each in findings]
    findings += _copies(database, store, found)
    findings += _rights(found)
    findings += _slons(store, found)
    if catalog is not None:
        findings += _nodes(catalog, confirmed)
    if found.log_status is not None:
        findings += _log(found.log_status)
    if not found.sees_all_sessions:
        detail = (
            "the role lacks pg_read_all_stats: others' transactions that hold back a log switch are hidden"
        )
        findings.append(_finding("INFO", "SESSIONS_HIDDEN", detail))
    if abs(difference_s) > CLOCK_TOLERANCE_S:
        findings.append(_finding("WARNING", "CLOCK_DIFFERENCE", f"its clock differs by {difference_s:.1f} s"))
    return StoreCheck(
        ok=all(item.severity is not FindingSeverity.ERROR for item in findings),
        reachable=True,
        identity=found.identity,
        server_version=found.server_version,
        layout=None if catalog is None else _layout(catalog),
        clock_difference_s=round(difference_s, 3),
        permissions_missing=_missing(found),
        sizes=[
            TableSize(table=table, rows_estimate=rows, bytes=size)
            for table, (rows, size) in sorted(found.sizes.items())
        ],
        conflicts=conflicts,
        findings=findings,
        parameters={} if catalog is None else {LOCAL_NODE: catalog.local_node},
        can=_verbs(found),
        slony=None if catalog is None else _shown(catalog, found),
    )


def _layout(catalog: Catalog) -> str:
    version = f"Slony-I {catalog.version}" if catalog.version else "Slony-I, functions not installed"
    return f"{version}, node {catalog.local_node} of {len(catalog.nodes)}"


def _missing(found: SlonyInspection) -> list[MissingPermission]:
    """Each right once, whatever it is for."""
    pairs = dict.fromkeys(
        (one.name, str(one.right))
        for one in found.permissions_missing
        if one.ability not in OF_FUNCTIONS or _has_functions(found)
    )
    return [MissingPermission(table=name, right=right) for name, right in pairs]


def _has_functions(found: SlonyInspection) -> bool:
    return found.catalog is not None and bool(found.catalog.functions)


def _verbs(found: SlonyInspection) -> list[str]:
    if not found.can("READ"):
        return []
    return [verb for ability, verbs in VERBS.items() if found.can(ability) for verb in verbs]


def _rights(found: SlonyInspection) -> Iterator[Finding]:
    """What the role may not do; only what nobody can do without is an error."""
    if found.is_read_only:
        detail = "a standby, or read-only by its configuration: nothing but reading is possible"
        yield _finding("WARNING", "TARGET_READ_ONLY", detail)
    if found.catalog is not None and not found.catalog.functions:
        detail = "the cluster's functions are not installed here: no SYNC can be made, cleanup is BUILTIN"
        yield _finding("INFO", "FUNCTIONS_MISSING", detail)
    for ability, missing in groupby(found.permissions_missing, key=lambda one: one.ability):
        if ability in OF_FUNCTIONS and found.catalog is not None and not found.catalog.functions:
            continue
        names = _some([f"{one.right} on {one.name}" for one in missing])
        severity = "ERROR" if ability == "READ" else "INFO" if ability in OF_FUNCTIONS else "WARNING"
        yield _finding(severity, f"NO_{ability}", f"not possible for this role, it lacks {names}")


def _slons(store: Store, found: SlonyInspection) -> Iterator[Finding]:
    if not found.slons:
        yield _finding("WARNING", "NO_SLON", "no slon is connected here: events neither come nor go")
    elif not found.cleans_itself:
        yield _finding("WARNING", "NO_OWN_SLON", "this node's own slon is not connected, only others' are")
    elif store.parameters.get(CLEANER_PARAMETER) is True:
        detail = f"slon's own cleanup thread runs here, and {CLEANER_PARAMETER} is on: both clean"
        yield _finding("WARNING", "OWN_CLEANUP", detail)
    else:
        yield _finding("INFO", "OWN_CLEANUP", "slon's own cleanup thread runs here, at its own intervals")


def _nodes(catalog: Catalog, confirmed: Confirmed) -> Iterator[Finding]:
    idle = [str(node.id) for node in catalog.nodes if node.id not in catalog.active]
    if idle:
        yield _finding("INFO", "NODE_INACTIVE", f"inactive or failed, waited for by nobody: {_some(idle)}")
    active = catalog.active
    on_paths = {path.server for path in catalog.paths} & {path.client for path in catalog.paths}
    cut_off = [str(node) for node in active if node not in on_paths] if len(active) > 1 else []
    if cut_off:
        detail = (
            f"no path leads to, or none from, these nodes: {_some(cut_off)}; confirmations get lost there"
        )
        yield _finding("WARNING", "NO_PATH", detail)
    never = [
        f"{receiver} of {origin}"
        for origin in active
        for receiver in active
        if origin != receiver and (origin, receiver) not in confirmed
    ]
    if never:
        detail = f"these nodes have never confirmed any event: {_some(never)}; all events stay until they do"
        yield _finding("WARNING", "NEVER_CONFIRMED", detail)


def _log(status: LogStatusRead) -> Iterator[Finding]:
    if status.needs_healing:
        detail = f"sl_log_status calls {status.other.name} clean, and it has rows: slons do not read them"
        yield _finding("WARNING", "LOG_STATUS_WRONG", detail)
    without = [str(origin.origin) for origin in status.origins if origin.reason == "NO_SYNC"]
    if without:
        detail = (
            f"{status.other.name} has rows of nodes without any SYNC: {_some(without)}; it is never emptied"
        )
        yield _finding("WARNING", "ORIGIN_WITHOUT_SYNC", detail)
    held = [session for session in status.sessions if holds_back(session)]
    if held:
        names = _some([_session_name(session) for session in held])
        yield _finding("WARNING", "LOG_SWITCH_HELD_BACK", f"long or idle transactions: {names}")


def holds_back(session: Session) -> bool:
    """Whether a transaction is one that somebody forgot, or that takes long: the usual work is neither."""
    is_slon = session.application_name.startswith("slon.")  # between two statements of its own work
    is_idle = (
        (session.state or "").startswith("idle in transaction")
        and not is_slon
        and (session.age_s is None or session.age_s >= IDLE_TRANSACTION_S)
    )
    is_long = session.age_s is not None and session.age_s >= LONG_TRANSACTION_S
    return is_idle or is_long or session.pid is None


def _session_name(session: Session) -> str:
    who = "a prepared transaction" if session.pid is None else f"pid {session.pid}"
    age = "" if session.age_s is None else f", {session.age_s:.0f} s"
    return f"{who} ({session.application_name or 'unnamed'} of {session.user}, {session.state}{age})"


def _conflicts(database: Database, store: Store, found: SlonyInspection) -> list[Finding]:
    """Other stores that are this very node."""
    with database.reading() as db:
        query = (
            select(Store)
            .where(Store.kind == StoreKind.SLONY, col(Store.id) != store.id)
            .where(Store.cluster == store.cluster, Store.target_identity == found.identity)
            .order_by(col(Store.id))
            .limit(NAMED_MAX)
        )
        others = db.exec(query).all()
    words = "is the same node under another name"
    return [
        _finding("WARNING", "SAME_NODE", f"store {other.id} {words}").naming([other.id]) for other in others
    ]


def _copies(database: Database, store: Store, found: SlonyInspection) -> Iterator[Finding]:
    """Other stores that `:check` has found to be this node of this cluster, in another database."""
    if found.catalog is None:
        return
    node = found.catalog.local_node
    for other in stores_of_name(database, store):
        same_node = other.target_parameters.get(LOCAL_NODE) == node
        if same_node and other.target_identity not in (None, found.identity):
            detail = (
                f"store {other.id} says that it is node {node} too, in another database: one is a copy, or of"
                " another cluster of this name; nothing is written to one that sl_path does not lead to"
            )
            yield _finding("WARNING", "NODE_COPIED", detail).naming([other.id])


def _shown(catalog: Catalog, found: SlonyInspection) -> SlonyCheck:
    return SlonyCheck(
        cluster=catalog.cluster,
        version=catalog.version,
        local_node=catalog.local_node,
        nodes=[
            SlonyNodeRead(
                id=node.id, is_active=node.is_active, has_failed=node.has_failed, comment=node.comment
            )
            for node in catalog.nodes
        ],
        paths=[SlonyPathRead(server=path.server, client=path.client) for path in catalog.paths],
        has_functions=bool(catalog.functions),
        slons=[_slon(slon) for slon in found.slons],
        sessions=[_session(each) for each in (found.log_status.sessions if found.log_status else ())],
        log_status=None if found.log_status is None else int(found.log_status.status),
        oldest_event_at=found.oldest_event_at,
    )


def _slon(slon: Slon) -> SlonRead:
    return SlonRead(
        pid=slon.pid,
        application=slon.application,
        user=slon.user,
        state=slon.state,
        node=slon.node,
        activity=slon.activity,
        since=slon.since,
        event=slon.event,
    )


def _session(session: Session) -> SlonySessionRead:
    return SlonySessionRead(
        pid=session.pid,
        application=session.application_name,
        user=session.user,
        state=session.state,
        transaction_age=duration_of(session.age_s),
        has_lock=session.has_lock,
        is_older=session.is_older,
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _finding(severity: str, code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity(severity), detail=detail)


def _refused(code: str, detail: str, *, reachable: bool) -> StoreCheck:
    return StoreCheck(ok=False, reachable=reachable, findings=[_finding("ERROR", code, detail)])
