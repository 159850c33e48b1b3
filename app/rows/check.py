"""`:check` of a store of kind SQL, and `recover`: what its database is, and what can be purged there."""

from datetime import datetime
from typing import Final

from app.archives.adopting import Adopting
from app.db import Database
from app.jobs.running.recovery import ahead_findings, is_target_ahead, recover_target
from app.rows.rules import rows_resource
from app.secrets.errors import SecretUnavailable
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, RecoveryRead, StoreCheck, TableSize
from app.stores.rows import Store
from app.stores.targets import session_limits, target_of
from app.sweeps.purging import JOB_PURGE
from spark.purge.reading.catalog import can_create_ledger, is_read_only
from spark.rows.catalog import findings_of, list_tables, read_table
from spark.rows.lag import lag_of_replica, lags_of_primary
from spark.targets.connection import Connection, connect, identity, target_now
from spark.targets.errors import UNREACHED, TargetError

TABLES_MAX: Final = 100
CLOCK_TOLERANCE_S: Final = 5.0


def check_database(database: Database, store: Store, settings: Settings, now: datetime) -> StoreCheck:
    """Look at the target and its largest tables; whatever is wrong with them is a finding."""
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it; this service does not try"
        return StoreCheck(ok=True, reachable=False, findings=[_finding("INFO", "RUNS_ON_ELSEWHERE", detail)])
    try:
        limits = session_limits(settings)
        target = target_of(store, settings, database)
        with connect(target, application_name="lethe:check", limits=limits, read_only=True) as conn:
            report = _report(conn, now)
            report.add(ahead_findings(database, conn, [rows_resource(store)]))
            return report
    except TargetError as error:
        reachable = not error.transient and error.code not in UNREACHED
        finding = _finding("ERROR", error.code, error.detail)
        return StoreCheck(ok=False, reachable=reachable, findings=[finding])
    except SecretUnavailable as error:
        return StoreCheck(ok=False, reachable=False, findings=[_finding("ERROR", error.code, error.detail)])


def recover_database(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above the target's fence and mark the purges that only the target remembers.

    Raises: ServiceError: the target cannot be asked.
    """
    resource = rows_resource(store)
    return recover_target(
        database,
        settings,
        store,
        actor,
        kind=JOB_PURGE,
        resources=[resource],
        archives=Adopting(lambda _: resource),
    )


def is_database_ahead(database: Database, store: Store, settings: Settings) -> bool | None:
    """Whether the target has seen a greater epoch than ours; None: it cannot be asked."""
    return is_target_ahead(database, settings, store, [rows_resource(store)])


def _finding(severity: str, code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity(severity), detail=detail)


def _report(conn: Connection, now: datetime) -> StoreCheck:
    tables = list_tables(conn, most=TABLES_MAX)
    findings = [finding for name, _, _ in tables for finding in _table(conn, name)]
    if len(tables) == TABLES_MAX:
        detail = f"only the {TABLES_MAX} largest tables were looked at; a plan looks at its own"
        findings.append(_finding("INFO", "MORE_TABLES", detail))
    has_ledger, read_only = can_create_ledger(conn), is_read_only(conn)
    if read_only:
        findings.append(
            _finding("ERROR", "TARGET_READ_ONLY", "the target is read-only: nothing can be purged")
        )
    if not has_ledger:
        detail = "counts will be AT_LEAST and one worker is used: schema or tables of Lethe cannot be made"
        findings.append(_finding("WARNING", "NO_LEDGER", detail))
    difference_s = (target_now(conn) - now).total_seconds()
    if abs(difference_s) > CLOCK_TOLERANCE_S:
        findings.append(_finding("WARNING", "CLOCK_DIFFERENCE", f"its clock differs by {difference_s:.1f} s"))
    findings += _replication(conn)
    return StoreCheck(
        ok=not read_only,
        reachable=True,
        identity=identity(conn),
        server_version=conn.server_version,
        clock_difference_s=round(difference_s, 3),
        ledger=has_ledger,
        sizes=[TableSize(table=name, rows_estimate=rows, bytes=size) for name, rows, size in tables],
        findings=findings,
        can=["PLAN_ROWS"] if read_only else ["PLAN_ROWS", "PURGE_ROWS"],
    )


def _table(conn: Connection, name: str) -> list[Finding]:
    """What forbids the purge of one table forbids not those of the others: no more than a warning here."""
    try:
        found = findings_of(conn, read_table(conn, name), time_column=None)
    except TargetError as error:
        if error.transient:
            raise
        return [_finding("INFO", error.code, f"{name}: {error.detail}")]
    severities = {"ERROR": "WARNING", "WARNING": "INFO", "INFO": "INFO"}
    return [_finding(severities[item.severity], item.code, f"{item.table}: {item.detail}") for item in found]


def _replication(conn: Connection) -> list[Finding]:
    found = []
    for lag in lags_of_primary(conn):
        unknown = "catches up, or this role may not see its lag"
        told = unknown if lag.seconds is None else f"{lag.seconds:.0f} s behind"
        found.append(_finding("INFO", "REPLICA", f"{lag.replica}: {told}"))
    try:
        own = lag_of_replica(conn, "this database")
    except TargetError:  # without the right to ask it is taken for none
        return found
    if own.seconds is not None:
        found.append(_finding("INFO", "IS_REPLICA", f"follows another server, {own.seconds:.0f} s behind"))
    return found
