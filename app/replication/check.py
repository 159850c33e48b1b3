"""`:check` and `:recover` of a REPLICA store."""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlmodel import col, select

from app.db import Database
from app.jobs.running.claims import current_epoch, raise_epoch
from app.kit.ids import new_id
from app.replication.consumer.dead_letters.telling import tell_refused
from app.replication.replica.replicas import (
    adopt_replica,
    find_expected,
    opened_replica,
    remember_incarnation,
    replica_limits,
    writer_turn,
)
from app.replication.tombstones.service import tombstone_resource
from app.replication.trimming.service import trim_resource
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.checks.models import (
    Finding,
    FindingSeverity,
    GivenUpRead,
    MissingPermission,
    RecoveryRead,
    StoreCheck,
    TableSize,
)
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.targets import target_of
from spark.formats.csn import Csn
from spark.formats.replica import LAYOUT_VERSION, tables_of
from spark.replication.dead_letters import Direction, open_csns
from spark.replication.errors import ReplicationRefused
from spark.replication.records import ReplicaStatus
from spark.replication.replica.inspect import ReplicaInspection, inspect_replica
from spark.replication.replica.replica import find_replica, own_max_of
from spark.replication.replica.restored import accept_loss
from spark.targets.connection import Target, connect, sqlite_path
from spark.targets.errors import UNREACHED, TargetError
from spark.targets.fence import read_fence
from spark.targets.files.mode_bits import may
from spark.targets.ledger import shows_ledger

CLOCK_TOLERANCE_S: Final = 5.0
LAYOUT: Final = f"replica layout {LAYOUT_VERSION}"


def check_replica(database: Database, store: Store, settings: Settings, now: datetime) -> StoreCheck:
    """Look at the target; whatever is wrong with it is a finding. Nothing is made, and nothing marked."""
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it; this service does not try"
        return StoreCheck(ok=True, reachable=False, findings=[_finding("INFO", "RUNS_ON_ELSEWHERE", detail)])
    try:
        target = target_of(store, settings, database)
        if target.dialect == "sqlite" and not os.path.lexists(sqlite_path(target)):
            return _not_there_yet(target)
        with connect(
            target, application_name="lethe:check", limits=replica_limits(settings), read_only=True
        ) as conn:
            found = inspect_replica(conn)
            refused = [] if found.replica is None else open_csns(conn, Direction.RECEIVED)
    except TargetError as error:
        reachable = not error.transient and error.code not in UNREACHED
        return _refused(error.code, error.detail, reachable=reachable)
    except SecretUnavailable as error:
        return _refused(error.code, error.detail, reachable=False)
    except ReplicationRefused as error:
        return _refused(error.code, error.detail, reachable=True)
    tell_refused(database, store.id, None, refused)
    return _report(database, store, found, refused, now)


def _not_there_yet(target: Target) -> StoreCheck:
    """A SQLite file is made at the first use, if that is possible."""
    directory = os.path.dirname(sqlite_path(target))
    if not os.path.isdir(directory):
        return _refused("TARGET_DATABASE_MISSING", f"{directory} is not a directory", reachable=False)
    if not may(directory, os.W_OK | os.X_OK):
        return _refused("TARGET_READ_ONLY", f"no file may be made in {directory}", reachable=False)
    finding = _finding("INFO", "REPLICA_MISSING", "the file is made at the first use")
    return StoreCheck(ok=True, reachable=True, findings=[finding], can=["WRITE_CHANGES", "CONSUME"])


def _report(
    database: Database, store: Store, found: ReplicaInspection, refused: Sequence[Csn], now: datetime
) -> StoreCheck:
    difference_s = (found.now - now).total_seconds()
    same = _conflicts(database, store, found)
    missing = [MissingPermission(table=table, right=right) for table, right in found.permissions_missing]
    findings = same + _replica_findings(database, store, found)
    if missing:
        detail = ", ".join(f"{item.right} on {item.table}" for item in missing)
        findings.append(_finding("ERROR", "TARGET_READ_ONLY", detail))
    if refused:
        rids = ", ".join(str(rid) for rid in sorted({csn.rid for csn in refused}))
        detail = f"{len(refused)} change(s) of replica {rids} were refused, and wait: dead letters"
        findings.append(_finding("WARNING", "DEAD_LETTER", detail))
    if abs(difference_s) > CLOCK_TOLERANCE_S:
        findings.append(_finding("WARNING", "CLOCK_DIFFERENCE", f"its clock differs by {difference_s:.1f} s"))
    sizes = [
        TableSize(table=table, rows_estimate=rows, bytes=size)
        for table, (rows, size) in sorted(found.sizes.items())
    ]
    is_ok = all(item.severity is not FindingSeverity.ERROR for item in findings)
    return StoreCheck(
        ok=is_ok,
        reachable=True,
        identity=found.identity,
        server_version=found.server_version,
        layout=None if found.replica is None else LAYOUT,
        clock_difference_s=round(difference_s, 3),
        permissions_missing=missing,
        sizes=sizes,
        conflicts=[each.detail for each in same],
        findings=findings,
        can=_verbs(found) if not missing else ["READ_ENTRIES"],
    )


def _replica_findings(database: Database, store: Store, found: ReplicaInspection) -> list[Finding]:
    row = found.replica
    if row is None:
        return [_finding("INFO", "REPLICA_MISSING", "the tables are made at the first use")]
    findings = []
    if row.rid != store.rid:
        detail = f"the target holds replica {row.rid}, the store is replica {store.rid}"
        findings.append(_finding("ERROR", "RID_DIFFERS", detail))
    if store.generation is not None and row.generation not in (None, store.generation):
        detail = f"the target is of generation {row.generation}, the store declares {store.generation}"
        findings.append(_finding("WARNING", "GENERATION_DIFFERS", detail))
    expected = find_expected(database, store.id)
    lacks = expected is not None and (found.own_max or "") < (expected.own_max or "")
    if row.status is ReplicaStatus.INITIALIZING:
        detail = "a total initialisation is under way: entries are not shown, local writes are refused"
        findings.append(_finding("WARNING", "REPLICA_INITIALIZING", detail))
    elif row.status is ReplicaStatus.RESTORED or lacks:
        upto = row.restored_upto or (expected.own_max if expected is not None else None)
        detail = (
            f"its own changes end at {found.own_max or 'none'} and had reached {upto or 'none'}: the target"
            " was restored from a backup; read-only until a session has brought them back"
        )
        findings.append(_finding("ERROR", "REPLICA_RESTORED", detail))
    if row.part is not None:
        held = f"the keys of {len(row.part.prefixes)} prefix(es)"
        detail = f"it holds {held} only: it takes no writes and supplies nobody"
        findings.append(_finding("INFO", "REPLICA_PARTIAL", detail))
    return findings


def _verbs(found: ReplicaInspection) -> list[str]:
    status = None if found.replica is None else found.replica.status
    if status in (None, ReplicaStatus.EMPTY):
        return ["READ_ENTRIES", "WRITE_CHANGES", "CONSUME"]
    if status is ReplicaStatus.ONLINE:
        return ["READ_ENTRIES", "WRITE_CHANGES", "CONSUME", "SUPPLY", "TRIM_CHANGELOG"]
    if status is ReplicaStatus.PARTIAL:
        return ["READ_ENTRIES", "CONSUME", "TRIM_CHANGELOG"]
    return ["READ_ENTRIES", "CONSUME"] if status is ReplicaStatus.RESTORED else ["CONSUME"]


def _conflicts(database: Database, store: Store, found: ReplicaInspection) -> list[Finding]:
    """Other stores that are this very replica, or one of the same RID in the same database."""
    with database.reading() as db:
        others = db.exec(
            select(Store).where(
                Store.kind == StoreKind.REPLICA, col(Store.id) != store.id, col(Store.rid) == store.rid
            )
        ).all()
    said = []
    for other in others:
        is_near = other.target_identity == found.identity or (other.url, other.schema_name) == (
            store.url,
            store.schema_name,
        )
        if is_near and other.table_prefix == store.table_prefix:
            said.append((other.id, "is the same replica under another name"))
        elif is_near:
            said.append((other.id, f"has the same RID {store.rid} in the same database"))
    return [
        _finding("ERROR", "SAME_REPLICA", f"store {other} {words}").naming([other]) for other, words in said
    ]


def _finding(severity: str, code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity(severity), detail=detail)


def _refused(code: str, detail: str, *, reachable: bool) -> StoreCheck:
    return StoreCheck(ok=False, reachable=reachable, findings=[_finding("ERROR", code, detail)])


def recover_replica(database: Database, settings: Settings, store: Store, _actor: str) -> RecoveryRead:
    """Accept that own changes of a restored replica are lost: it takes writes again, under a new incarnation.

    A replica that is not restored stays as it is. Where its changelog was trimmed by a greater epoch than
    ours, ours is raised above it.

    Raises: ServiceError: the target cannot be asked, or holds no replica.
    """
    given_up = None
    with opened_replica(database, settings, store, purpose="recover", create=False) as conn:
        row = find_replica(conn)
        assert row is not None, "opened_replica has seen it"
        if row.status is ReplicaStatus.RESTORED or row.restored_upto is not None:
            incarnation = new_id("inc")
            own_max = own_max_of(conn, tables_of(conn))
            # Before the target: a crash in between leaves it RESTORED, to be recovered again.
            remember_incarnation(database, store.id, incarnation=incarnation, own_max=own_max)
            with writer_turn(conn):
                now_s = int(database.clock.now().timestamp())
                given_up = accept_loss(conn, incarnation=incarnation, now_s=now_s)
            if given_up is None:  # a session has brought the changes meanwhile
                adopt_replica(database, conn, store.id)
        resources = (trim_resource(store), tombstone_resource(store))
        fences = [read_fence(conn, each) for each in resources] if shows_ledger(conn) else []
    fence = max(filter(None, fences), default=None)
    with database.transaction() as db:
        before = current_epoch(db)
        after = raise_epoch(db, fence[0]) if fence is not None and fence[0] > before else before
    return RecoveryRead(
        epoch_before=before,
        epoch_after=after,
        foreign_jobs=[],
        given_up=None
        if given_up is None
        else GivenUpRead(rid=given_up.rid, after=given_up.after, upto=given_up.upto),
    )
