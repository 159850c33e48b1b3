"""Figures grow with the jobs that end; since when a job waits; lists by index; PostgreSQL tells of writes.

Revision: 0017
Revises: 0016
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_jobs_kind_state": ["kind", "state", "store"],
    "ix_jobs_kind_id": ["kind", "id"],
    "ix_jobs_created_at": ["created_at", "id"],
    "ix_jobs_waiting": ["waiting_cause", "waiting_since"],
}
ENDED = ("SUCCEEDED", "FAILED", "ABORTED", "ABANDONED")
SEPARATOR = "\t"
PIECE = 1_000
TOLD_OF = (
    "agreements",
    "backup_sessions",
    "erasure_cycles",
    "erasure_stores",
    "extinctions",
    "global_parameters",
    "protections",
    "stores",
    "sweep_ticks",
)
"""Whoever rests until somebody writes minds these; of jobs the columns that make work or orders."""
ORDERS = "state, not_before, throttle_requested, runs_on_key"
FUNCTION = """
create function lethe_tell() returns trigger language plpgsql as $$
begin
    perform pg_notify('lethe_news', '');
    return null;
end
$$
"""


def upgrade() -> None:
    figures = op.create_table(
        "figures",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", "store", "label"),
    )
    op.add_column("jobs", sa.Column("waiting_cause", sa.String(length=40), nullable=True))
    op.add_column("jobs", sa.Column("waiting_since", app.db.UtcDateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("abort_asked_at", app.db.UtcDateTime(timezone=True), nullable=True))
    for name, columns in INDEXES.items():
        op.create_index(name, "jobs", columns, unique=False)
    rows = _sums_of_what_is_remembered()
    if rows:
        op.bulk_insert(figures, rows)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(FUNCTION)
        _tell_of("jobs", f"insert or update of {ORDERS}")
        for table in TOLD_OF:
            _tell_of(table, "insert or update or delete")


def _tell_of(table: str, writes: str) -> None:
    op.execute(
        f"create trigger lethe_tell after {writes} on {table} for each statement"
        " execute function lethe_tell()"
    )


def _sums_of_what_is_remembered() -> list[dict[str, Any]]:
    """What the jobs that are still there would have added."""
    jobs = sa.table(
        "jobs",
        sa.column("kind"),
        sa.column("store"),
        sa.column("state"),
        sa.column("finished_at", app.db.UtcDateTime()),
        sa.column("result", sa.JSON()),
    )
    ended = sa.and_(jobs.c.state.in_(ENDED), jobs.c.finished_at.is_not(None))
    now = datetime.now(UTC)
    sums: dict[tuple[str, str, str], tuple[float, datetime]] = {}
    groups = sa.select(
        jobs.c.kind, jobs.c.store, jobs.c.state, sa.func.count(), sa.func.max(jobs.c.finished_at)
    ).where(ended)
    for kind, store, state, number, last in op.get_bind().execute(
        groups.group_by(jobs.c.kind, jobs.c.store, jobs.c.state)
    ):
        sums["jobs_ended", store or "", f"{kind}{SEPARATOR}{state}"] = (float(number), last)
        if state == "SUCCEEDED":
            sums["last_success", store or "", kind] = (last.timestamp(), last)
    purges = sa.select(jobs.c.store, jobs.c.result).where(ended, jobs.c.kind == "PURGE")
    for store, result in op.get_bind().execute(purges.execution_options(yield_per=PIECE)):
        for table, removed in ((result or {}).get("removed") or {}).items():
            key = ("purge_rows_removed", store or "", str(table))
            sums[key] = (sums.get(key, (0.0, now))[0] + int(removed), now)
    return [
        {"name": name, "store": store, "label": label, "value": value, "at": at}
        for (name, store, label), (value, at) in sums.items()
    ]


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("drop function lethe_tell() cascade")
    for name in INDEXES:
        op.drop_index(name, table_name="jobs")
    for column in ("waiting_cause", "waiting_since", "abort_asked_at"):
        op.drop_column("jobs", column)
    op.drop_table("figures")
