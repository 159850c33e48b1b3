"""`:check` of a SYMMETRICDS store: what its target is, and what stands in the way of a purge."""

from collections.abc import Mapping
from datetime import datetime

from app.db import Database
from app.jobs.running.recovery import ahead_findings
from app.purge.backlog.keeping import backlog_findings
from app.purge.conflicts import conflicts
from app.purge.cutoff import target_parameters
from app.purge.recover import fence_resources
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, MissingPermission, StoreCheck, TableSize
from app.stores.rows import Store
from app.stores.targets import session_limits, target_of
from spark.formats.symmetricds import KindName
from spark.purge.reading.inspect import Inspection, inspect
from spark.targets.connection import Connection, connect
from spark.targets.errors import UNREACHED, TargetError

CLOCK_TOLERANCE_S = 5.0
OTHER_KINDS: tuple[KindName, ...] = ("INCOMING", "DATA_GAP")


def check_store(database: Database, store: Store, settings: Settings, now: datetime) -> StoreCheck:
    """Look at the target; whatever is wrong with it is a finding."""
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it; this service does not try"
        return StoreCheck(ok=True, reachable=False, findings=[_info("RUNS_ON_ELSEWHERE", detail)])
    try:
        limits = session_limits(settings)
        with connect(
            target_of(store, settings, database),
            application_name="lethe:check",
            limits=limits,
            read_only=True,
        ) as conn:
            inspection = inspect(conn)
            others = {kind: _look(conn, kind) for kind in OTHER_KINDS}
            ahead = ahead_findings(database, conn, fence_resources(store))
    except TargetError as error:
        reachable = not error.transient and error.code not in UNREACHED
        finding = Finding(code=error.code, severity=FindingSeverity.ERROR, detail=error.detail)
        return StoreCheck(ok=False, reachable=reachable, findings=[finding])
    except SecretUnavailable as error:
        finding = Finding(code=error.code, severity=FindingSeverity.ERROR, detail=error.detail)
        return StoreCheck(ok=False, reachable=False, findings=[finding])
    report = _report(inspection, others, now)
    report.findings += backlog_findings(database, store, settings, inspection, now=now)
    report.add(ahead)
    return report


def _look(conn: Connection, kind: KindName) -> Inspection | TargetError:
    """What the purge of another kind would find; one that is not possible here is no fault of the store."""
    try:
        return inspect(conn, kind)
    except TargetError as error:
        if error.transient:
            raise
        return error


def _info(code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity.INFO, detail=detail)


def _warn(code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity.WARNING, detail=detail)


def _report(
    inspection: Inspection, others: Mapping[KindName, Inspection | TargetError], now: datetime
) -> StoreCheck:
    difference_s = (inspection.now - now).total_seconds()
    found = conflicts(inspection)
    for other in others.values():
        if isinstance(other, Inspection):
            found += other.own_purge_running
    missing = [MissingPermission(table=table, right=right) for table, right in inspection.permissions_missing]
    findings = [_warn("OWN_PURGE", conflict) for conflict in found]
    if missing or inspection.read_only:
        detail = ", ".join(f"{item.right} on {item.table}" for item in missing) or "the target is read-only"
        findings.append(Finding(code="TARGET_READ_ONLY", severity=FindingSeverity.ERROR, detail=detail))
    if not inspection.can_create_ledger:
        detail = "counts will be AT_LEAST and one worker is used: schema or tables of Lethe cannot be made"
        findings.append(_warn("NO_LEDGER", detail))
    if abs(difference_s) > CLOCK_TOLERANCE_S:
        findings.append(_warn("CLOCK_DIFFERENCE", f"its clock differs by {difference_s:.1f} s"))
    can = _verbs("OUTGOING", inspection)
    for kind, other in others.items():
        if isinstance(other, Inspection):
            can += _verbs(kind, other)
        else:
            findings.append(_info(f"NO_{kind}", f"no purge {kind} here: {other.detail}"))
    return StoreCheck(
        ok=all(item.severity is not FindingSeverity.ERROR for item in findings),
        reachable=True,
        identity=inspection.identity,
        server_version=inspection.server_version,
        layout=inspection.layout.version,
        clock_difference_s=round(difference_s, 3),
        time_encoding=inspection.time_encoding,
        permissions_missing=missing,
        ledger=inspection.can_create_ledger,
        sizes=[
            TableSize(table=table, rows_estimate=rows, bytes=size)
            for table, (rows, size) in sorted(inspection.sizes.items())
        ],
        conflicts=found,
        findings=findings,
        parameters=target_parameters(inspection),
        can=can,
    )


def _verbs(kind: KindName, inspection: Inspection) -> list[str]:
    can_write = not inspection.permissions_missing and not inspection.read_only
    return [f"PLAN_{kind}", f"PURGE_{kind}"] if can_write else [f"PLAN_{kind}"]
