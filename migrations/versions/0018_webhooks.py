"""Webhooks, their outbox and its deliveries.

Revision: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def _instant(name: str, *, nullable: bool) -> sa.Column:
    return sa.Column(name, app.db.UtcDateTime(timezone=True), nullable=nullable)


def _json(name: str, *, nullable: bool = False) -> sa.Column:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("url", sa.String(length=1000), nullable=False),
        sa.Column("description", sa.String(length=200), nullable=False),
        _json("events"),
        _json("stores", nullable=True),
        _json("labels"),
        sa.Column("waits_longer_than", app.db.DurationSeconds(), nullable=True),
        sa.Column("clear_text_on_loopback", sa.Boolean(), nullable=False),
        sa.Column("ca_file", sa.String(length=1000), nullable=True),
        sa.Column("secret", sa.String(length=1010), nullable=True),
        sa.Column("own_key", sa.String(length=200), nullable=True),
        sa.Column("former_secret", sa.String(length=1010), nullable=True),
        sa.Column("former_key", sa.String(length=200), nullable=True),
        _instant("former_until", nullable=True),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_because", sa.String(length=200), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        _instant("rest_until", nullable=True),
        sa.Column("delivered", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("given_up", sa.Integer(), nullable=False),
        _instant("created_at", nullable=False),
        _instant("updated_at", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "webhook_events",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("type", sa.String(length=60), nullable=False),
        _instant("at", nullable=False),
        sa.Column("store", sa.String(length=63), nullable=True),
        sa.Column("subject", sa.String(length=300), nullable=False),
        _json("data"),
        sa.Column("once", sa.String(length=300), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("once"),
    )
    op.create_index("ix_webhook_events_at", "webhook_events", ["at"])
    _deliveries()
    _looks()


def _deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("webhook_id", sa.String(length=40), nullable=False),
        sa.Column("event_id", sa.String(length=40), nullable=False),
        sa.Column("type", sa.String(length=60), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=True),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        _instant("created_at", nullable=False),
        _instant("next_at", nullable=True),
        _instant("give_up_at", nullable=False),
        sa.Column("lease", sa.String(length=40), nullable=True),
        sa.Column("lease_instance", sa.String(length=40), nullable=True),
        _instant("last_at", nullable=True),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        _instant("ended_at", nullable=True),
        sa.ForeignKeyConstraint(["event_id"], ["webhook_events.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    for name, columns in {
        "due": ["webhook_id", "state", "next_at"],
        "hook": ["webhook_id", "id"],
        "state": ["state", "give_up_at"],
        "ended": ["ended_at"],
        "event": ["event_id"],
    }.items():
        op.create_index(f"ix_webhook_deliveries_{name}", "webhook_deliveries", columns)


def _looks() -> None:
    op.create_table(
        "webhook_expectations",
        sa.Column("webhook_id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("within", app.db.DurationSeconds(), nullable=False),
        _instant("last_success_at", nullable=True),
        _instant("due_at", nullable=True),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("webhook_id", "store", "kind"),
    )
    op.create_index("ix_webhook_expectations_due", "webhook_expectations", ["due_at"])
    op.create_index("ix_webhook_expectations_store", "webhook_expectations", ["store", "kind"])
    op.create_table(
        "webhook_waits",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("cause", sa.String(length=200), nullable=False),
        _instant("since", nullable=False),
        _instant("seen_at", nullable=False),
        _json("told"),
        sa.PrimaryKeyConstraint("job_id"),
    )


def downgrade() -> None:
    for table in (
        "webhook_waits",
        "webhook_expectations",
        "webhook_deliveries",
        "webhook_events",
        "webhooks",
    ):
        op.drop_table(table)
