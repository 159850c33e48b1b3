"""Schedules, the due times that were fired, and windows.

Revision: 0019
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def _instant(name: str, *, nullable: bool = True) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, app.db.UtcDateTime(timezone=True), nullable=nullable)


def _text(name: str, length: int, *, nullable: bool = False) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.String(length=length), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "schedules",
        _text("id", 40),
        _text("name", 100, nullable=True),
        _text("verb", 40),
        sa.Column("body", sa.JSON(), nullable=False),
        _text("store", 63, nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        _text("cron", 200),
        _text("time_zone", 64),
        sa.Column("jitter_s", sa.Integer(), nullable=False),
        _text("overlap", 10),
        _text("missed", 10),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        _text("token_id", 40),
        _text("created_by", 120),
        _instant("created_at", nullable=False),
        _instant("updated_at", nullable=False),
        _instant("next_due"),
        _instant("next_at"),
        _instant("queued_due"),
        _instant("reckoned_at", nullable=False),
        _instant("last_due"),
        _instant("last_at"),
        _text("last_outcome", 20, nullable=True),
        sa.Column("last_detail", sa.Text(), nullable=True),
        _text("last_job_id", 40, nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    for column in ("next_at", "reckoned_at", "store"):
        op.create_index(f"ix_schedules_{column}", "schedules", [column], unique=False)
    op.create_table(
        "schedule_firings",
        _text("schedule_id", 40),
        _instant("due_at", nullable=False),
        _instant("fired_at", nullable=False),
        _text("outcome", 20),
        _text("job_id", 40, nullable=True),
        sa.ForeignKeyConstraint(["schedule_id"], ["schedules.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("schedule_id", "due_at"),
    )
    op.create_index("ix_schedule_firings_fired_at", "schedule_firings", ["fired_at"], unique=False)
    op.create_table(
        "windows",
        _text("id", 40),
        _text("name", 100, nullable=True),
        _text("kind", 10),
        _text("cron", 200),
        _text("time_zone", 64),
        sa.Column("duration_s", sa.Integer(), nullable=False),
        sa.Column("intensity", sa.Float(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        _text("created_by", 120),
        _instant("created_at", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def downgrade() -> None:
    op.drop_table("windows")
    op.drop_table("schedule_firings")
    op.drop_table("schedules")
