"""The feed of events, series of stores, what the last check of each store found; retries by index.

Revision: 0022
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def _instant(name: str, *, nullable: bool = True) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, app.db.UtcDateTime(timezone=True), nullable=nullable)


def _text(name: str, length: int, *, nullable: bool = False) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.String(length=length), nullable=nullable)


def _whole(name: str, *, nullable: bool = False) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "feed_events",
        _text("id", 40),
        _whole("number", nullable=True),
        _instant("at", nullable=False),
        _text("type", 40),
        _text("kind", 40),
        _text("store", 63, nullable=True),
        _text("subject", 200),
        _whole("seq"),
        _text("token_id", 40, nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_feed_events_number", "feed_events", ["number"], unique=True)
    op.create_index("ix_feed_events_at", "feed_events", ["at"], unique=False)
    op.create_table(
        "feed_numbers",
        _text("name", 20),
        _whole("last"),
        _whole("forgotten"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "series_points",
        _text("store", 63),
        _text("name", 40),
        sa.Column("step_s", sa.Integer(), nullable=False),
        _instant("at", nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        _whole("number"),
        sa.Column("most", sa.Float(), nullable=False),
        sa.Column("last", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("store", "name", "step_s", "at"),
    )
    op.create_index("ix_series_points_at", "series_points", ["step_s", "at"], unique=False)
    op.create_table(
        "store_health",
        _text("store", 63),
        _instant("checked_at"),
        _instant("trouble_since"),
        _text("trouble", 60, nullable=True),
        sa.Column("is_reachable", sa.Boolean(), nullable=True),
        sa.Column("warnings", sa.Integer(), nullable=False),
        sa.Column("findings", sa.JSON(), nullable=False),
        _instant("stale_at"),
        _instant("due_at", nullable=False),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )
    for column in ("due_at", "trouble", "stale_at"):
        op.create_index(f"ix_store_health_{column}", "store_health", [column], unique=False)
    op.create_index("ix_jobs_retried_from", "jobs", ["retried_from"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_jobs_retried_from", table_name="jobs")
    op.drop_table("store_health")
    op.drop_table("series_points")
    op.drop_table("feed_numbers")
    op.drop_table("feed_events")
