"""What recurs is kept in one table: purges by their cron, cleanups and trimmings by their interval.

Revision: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

LAST = "next_at, last_at, last_outcome, last_detail, last_job_id"


def _instant(name: str, *, nullable: bool) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, app.db.UtcDateTime(timezone=True), nullable=nullable)


def _make(table: str, *columns: sa.Column, keys: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    op.create_table(
        table,
        sa.Column("store", sa.String(length=63), nullable=False),
        *columns,
        _instant("next_at", nullable=False),
        _instant("last_at", nullable=True),
        sa.Column("last_outcome", sa.String(length=20), nullable=True),
        sa.Column("last_detail", sa.String(length=500), nullable=True),
        sa.Column("last_job_id", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(*keys),
    )
    op.create_index(f"ix_{table}_next_at", table, ["next_at"], unique=False)


def upgrade() -> None:
    _make(
        "sweep_ticks",
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("cron", sa.String(length=200), nullable=True),
        sa.Column("time_zone", sa.String(length=64), nullable=True),
        sa.Column("interval_s", sa.Float(), nullable=True),
        keys=("store", "kind"),
    )
    op.execute(
        f"insert into sweep_ticks (store, kind, cron, time_zone, {LAST})"
        f" select store, kind, cron, time_zone, {LAST} from purge_ticks"
    )
    op.execute(
        f"insert into sweep_ticks (store, kind, interval_s, {LAST})"
        f" select store, 'EVENT_CLEANUP', interval_s, {LAST} from cleanup_ticks"
    )
    op.drop_table("purge_ticks")
    op.drop_table("cleanup_ticks")


def downgrade() -> None:
    _make(
        "purge_ticks",
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("cron", sa.String(length=200), nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=False),
        keys=("store", "kind"),
    )
    _make("cleanup_ticks", sa.Column("interval_s", sa.Float(), nullable=False), keys=("store",))
    op.execute(
        f"insert into purge_ticks (store, kind, cron, time_zone, {LAST})"
        f" select store, kind, cron, time_zone, {LAST} from sweep_ticks where cron is not null"
    )
    op.execute(
        f"insert into cleanup_ticks (store, interval_s, {LAST})"
        f" select store, interval_s, {LAST} from sweep_ticks where kind = 'EVENT_CLEANUP'"
    )
    op.drop_table("sweep_ticks")  # trimmings had no row: their last job tells when they are due
