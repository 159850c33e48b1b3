"""Stores of kind REPLICA; what is known of each replica, agreements, and sessions.

Revision: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.add_column(sa.Column("rid", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("generation", sa.String(length=20), nullable=True))
    op.create_table(
        "replicas",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("own_max_csn", sa.String(length=20), nullable=True),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )
    _create_agreements()
    _create_sessions()


def _create_agreements() -> None:
    op.create_table(
        "agreements",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("consumer_url", sa.String(length=1000), nullable=False),
        sa.Column("consumer_store", sa.String(length=63), nullable=False),
        sa.Column("consumer_token", sa.String(length=1010), nullable=False),
        sa.Column("consumer_ca_file", sa.String(length=1000), nullable=True),
        sa.Column("consumer_rid", sa.Integer(), nullable=True),
        sa.Column("strategy", sa.String(length=12), nullable=False),
        sa.Column("interval_s", sa.Float(), nullable=True),
        sa.Column("max_changes", sa.BigInteger(), nullable=True),
        sa.Column("max_duration_s", sa.Float(), nullable=True),
        sa.Column("batch_rows", sa.Integer(), nullable=False),
        sa.Column("batch_bytes", sa.BigInteger(), nullable=False),
        sa.Column("in_flight", sa.Integer(), nullable=False),
        sa.Column("next_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("sent", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("acknowledged", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("last_session_id", sa.String(length=40), nullable=True),
        sa.Column("last_started_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("last_ended_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("last_outcome", sa.String(length=20), nullable=True),
        sa.Column("last_code", sa.String(length=80), nullable=True),
        sa.Column("last_detail", sa.Text(), nullable=True),
        sa.Column("status", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("removed_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_agreements_store"), "agreements", ["store"], unique=False)


def _create_sessions() -> None:
    op.create_table(
        "replication_sessions",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("agreement_id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("mode", sa.String(length=12), nullable=False),
        sa.Column("strategy", sa.String(length=12), nullable=False),
        sa.Column("engine", sa.String(length=8), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("outcome", sa.String(length=12), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("max_changes", sa.BigInteger(), nullable=True),
        sa.Column("max_duration_s", sa.Float(), nullable=True),
        sa.Column("discard_consumer_changes", sa.Boolean(), nullable=False),
        sa.Column("supplier", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("consumer", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("decision", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("windows", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("anchors", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("counters", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("cursor", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("windows_done", sa.Integer(), nullable=False),
        sa.Column("rows_read", sa.BigInteger(), nullable=False),
        sa.Column("batches_sent", sa.BigInteger(), nullable=False),
        sa.Column("bytes_sent", sa.BigInteger(), nullable=False),
        sa.Column("problem", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("started_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("ended_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_replication_sessions_job_id"), "replication_sessions", ["job_id"], unique=True)
    op.create_index("ix_replication_sessions_store", "replication_sessions", ["store", "id"], unique=False)
    op.create_index(
        "ix_replication_sessions_agreement", "replication_sessions", ["agreement_id", "id"], unique=False
    )


def downgrade() -> None:
    op.drop_table("replication_sessions")
    op.drop_table("agreements")
    op.drop_table("replicas")
    op.execute("delete from stores where kind = 'REPLICA'")
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.drop_column("generation")
        batch_op.drop_column("rid")
