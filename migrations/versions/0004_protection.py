"""Protected sets of log files, digests, claims of environments, and sessions of backup tools.

Revision: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _time(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, app.db.UtcDateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    _create_protections()
    _create_backups()


def _create_protections() -> None:
    op.create_table(
        "protections",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("lease", sa.Integer(), nullable=False),
        _time("lease_expires_at"),
        sa.Column("backup_session_id", sa.String(length=40), nullable=True),
        sa.Column("requested_by", sa.String(length=120), nullable=False),
        _time("created_at"),
        _time("ended_at", nullable=True),
        sa.Column("files", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ranges", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("control_due", sa.Boolean(), nullable=False),
        sa.Column("token_id", sa.String(length=40), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("protections", schema=None) as batch_op:
        batch_op.create_index("ix_protections_store_state", ["store", "state", "id"], unique=False)
        batch_op.create_index("ix_protections_lease", ["state", "lease_expires_at"], unique=False)
        batch_op.create_index("ix_protections_control_due", ["control_due"], unique=False)
    op.create_table(
        "log_file_digests",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("store", "number"),
    )
    op.create_table(
        "environment_claims",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        _time("claimed_at"),
        sa.PrimaryKeyConstraint("store"),
    )


def _create_backups() -> None:
    op.create_table(
        "backup_sessions",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("mode", sa.String(length=20), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("tool", sa.String(length=100), nullable=True),
        sa.Column("label", sa.String(length=200), nullable=True),
        sa.Column("lease", sa.Integer(), nullable=False),
        _time("lease_expires_at", nullable=True),
        sa.Column("erase_abort_timeout", sa.Integer(), nullable=False),
        sa.Column("protection_id", sa.String(length=40), nullable=False),
        sa.Column("erasure_aborted", sa.Boolean(), nullable=True),
        sa.Column("abort_latency_ms", sa.Float(), nullable=True),
        sa.Column("valid", sa.Boolean(), nullable=True),
        sa.Column("file_count", sa.Integer(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("requested_by", sa.String(length=120), nullable=False),
        _time("created_at"),
        _time("activated_at", nullable=True),
        _time("ended_at", nullable=True),
        _time("prepare_until"),
        sa.Column("owner", sa.String(length=40), nullable=False),
        sa.Column("failure", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("token_id", sa.String(length=40), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("backup_sessions", schema=None) as batch_op:
        batch_op.create_index("ix_backup_sessions_store_state", ["store", "state", "id"], unique=False)
        batch_op.create_index("ix_backup_sessions_prepare", ["state", "prepare_until"], unique=False)
    op.create_table(
        "backup_files",
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("device", sa.String(length=20), nullable=False),
        sa.Column("inode", sa.String(length=20), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.Column("is_growing", sa.Boolean(), nullable=False),
        _time("released_at", nullable=True),
        sa.Column("fault", sa.String(length=10), nullable=True),
        sa.ForeignKeyConstraint(["session_id"], ["backup_sessions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "number"),
    )


def downgrade() -> None:
    for table in ("backup_files", "backup_sessions", "environment_claims", "log_file_digests", "protections"):
        op.drop_table(table)
