"""What must hold before a purge ROWS touches its target, and what its parameters mean there."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from app.errors import Conflict, InvalidRequest, Unprocessable
from app.rows.models import RowsParams, RowsRequest
from app.stores.rows import Store
from app.sweeps.cutoff import check_cutoff
from spark.rows.condition import Cutoff
from spark.rows.expression import ExpressionInvalid, parse
from spark.rows.family import Family, Selection
from spark.rows.table import TableFinding
from spark.targets.connection import Connection, target_now
from spark.targets.references import joined_with

PERMISSION_MISSING: Final = "PERMISSION_MISSING"


class TableNotPurgeable(Conflict):
    """Something about the table forbids the purge; `code` names it."""


class ExpressionRefused(Unprocessable):
    """The expression or the time column does not fit the table."""


def rows_resource(store: Store) -> str:
    """What all purges ROWS of a schema write: each claims a part of it, or the whole."""
    return f"{store.schema_name or 'public'}.rows"


def part_resource(store: Store, conn: Connection, table: str) -> str:
    """What a purge of one table writes: the name of claim and fence.

    Tables that foreign keys join are one part, named by its first table: of these one purge runs at a time.
    SQLite has one writer: there it is the whole.
    """
    whole = rows_resource(store)
    return whole if conn.dialect.name == "sqlite" else f"{whole}:{joined_with(conn, table)[0]}"


def unseen_resource(store: Store, table: str) -> str:
    """The same where nobody can ask for its foreign keys: the job takes the right one when it claims."""
    return f"{rows_resource(store)}:{table.lower()}"


def target_fields(store: Store) -> dict[str, Any]:
    """What tells one target of a store from another."""
    return {"url": store.url, "schema": store.schema_name, "time_zone": store.time_zone}


def check_request(request: RowsRequest, *, at: str = "") -> None:
    """Refuse a request that does not say which rows.

    Args:
        at: where the request lies in the body.
    Raises: InvalidRequest.
    """
    faults: list[tuple[str, str]] = []
    is_aged = request.older_than is not None or request.cutoff is not None
    if request.table is None:
        faults.append(("table", "a purge ROWS names its table"))
    if not is_aged and request.where is None and request.plan_id is None:
        faults.append(("older_than", "say which rows: older_than or cutoff, where, or both"))
    if request.older_than is not None and request.cutoff is not None:
        faults.append(("cutoff", "older_than and cutoff exclude each other"))
    if is_aged and request.time_column is None:
        faults.append(("time_column", "name the column that says how old a row is"))
    if request.time_column is not None and not is_aged and request.plan_id is None:
        faults.append(("older_than", "time_column is for older_than or cutoff"))
    if len({request.table, *request.children}) <= len(request.children):
        faults.append(("children", "each table once, and not the table itself"))
    if request.throttle is not None and request.max_rows_per_s is not None:
        faults.append(("max_rows_per_s", "max_rows_per_s and throttle exclude each other"))
    if request.replicas and request.max_replica_lag is None:
        faults.append(("max_replica_lag", "say how far the replicas may be behind"))
    if faults:
        errors = [{"pointer": f"{at}/{name}", "detail": detail} for name, detail in faults]
        raise InvalidRequest(f"{len(errors)} field(s) are not valid", errors=errors)


def decide_cutoff(params: RowsParams, conn: Connection) -> datetime | None:
    """The instant before which rows are old; None: rows of any age.

    Raises: FutureCutoff.
    """
    if params.cutoff is not None:
        check_cutoff(params.cutoff, target_now(conn))
        return params.cutoff
    if params.older_than is None:
        return None
    return target_now(conn) - params.older_than


def read_family(conn: Connection, store: Store, params: RowsParams, cutoff: datetime | None) -> Family:
    """The tables of a purge, as they are now.

    Raises: ExpressionRefused; any TargetError.
    """
    try:
        condition = None if params.where is None else parse(params.where)
        bound = None
        if cutoff is not None:
            assert params.time_column is not None, "an age is that of a column"
            bound = Cutoff(params.time_column, cutoff, params.time_unit)
        selection = Selection(params.table, bound, condition, tuple(params.children))
        family = Family.read(conn, selection, time_zone=store.time_zone)
        if not refusals(family):  # without a key there are no steps
            family.steps()
    except ExpressionInvalid as error:
        raise ExpressionRefused(error.detail, code=error.code) from error
    return family


def refusals(family: Family) -> list[TableFinding]:
    """What forbids the purge."""
    return [finding for finding in family.findings() if finding.severity == "ERROR"]


def check_findings(found: Sequence[TableFinding], *, is_plan: bool = False) -> None:
    """Raise TableNotPurgeable for the first of some findings; a plan needs no right but to read.

    Raises: TableNotPurgeable.
    """
    counting = [
        finding
        for finding in found
        if not (is_plan and finding.code == PERMISSION_MISSING and "SELECT" not in finding.detail)
    ]
    if counting:
        detail = "; ".join(f"{finding.table}: {finding.detail}" for finding in counting)
        raise TableNotPurgeable(detail, code=counting[0].code)
