"""Erasure cycles: cycles, their files, what is planned in each, and the sums of a store.

Revision: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_cycles()
    _create_files()
    _create_stores()


def _create_cycles() -> None:
    op.create_table(
        "erasure_cycles",
        sa.Column("files_erased", sa.BigInteger(), nullable=False),
        sa.Column("files_deleted", sa.BigInteger(), nullable=False),
        sa.Column("files_already_deleted", sa.BigInteger(), nullable=False),
        sa.Column("fsyncs", sa.BigInteger(), nullable=False),
        sa.Column("reads", sa.BigInteger(), nullable=False),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("writes", sa.BigInteger(), nullable=False),
        sa.Column("write_bytes", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("step", sa.String(length=12), nullable=False),
        sa.Column("origin", sa.String(length=12), nullable=False),
        sa.Column("mode", sa.String(length=8), nullable=True),
        sa.Column("engine", sa.String(length=8), nullable=False),
        sa.Column("period_s", sa.Float(), nullable=True),
        sa.Column("min_file_age_s", sa.Float(), nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.Column("follows_period", sa.Boolean(), nullable=False),
        sa.Column("follows_kinds", sa.Boolean(), nullable=False),
        sa.Column("kinds", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("process", sa.String(length=40), nullable=True),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("started_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("cutoff_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("ends_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("ended_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("total_units", sa.BigInteger(), nullable=False),
        sa.Column("done_units", sa.BigInteger(), nullable=False),
        sa.Column("ms_per_unit", sa.Float(), nullable=False),
        sa.Column("next_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("debt_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files_selected", sa.Integer(), nullable=False),
        sa.Column("files_remaining", sa.Integer(), nullable=False),
        sa.Column("plan", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("incomplete", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("followed", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_erasure_cycles_job_id"), "erasure_cycles", ["job_id"], unique=True)
    op.create_index("ix_erasure_cycles_store", "erasure_cycles", ["store", "id"], unique=False)


def _create_files() -> None:
    op.create_table(
        "erasure_files",
        sa.Column("cycle_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=True),
        sa.Column("identity", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("causes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("planned", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("kept", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("is_reserved", sa.Boolean(), nullable=False),
        sa.Column("is_barren", sa.Boolean(), nullable=False),
        sa.Column("mode", sa.String(length=8), nullable=True),
        sa.Column("entry_count", sa.Integer(), nullable=False),
        sa.Column("rows_done", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("passes", sa.Integer(), nullable=False),
        sa.Column("done_offset", sa.BigInteger(), nullable=False),
        sa.Column("charged_units", sa.BigInteger(), nullable=False),
        sa.Column("prepares", sa.Integer(), nullable=False),
        sa.Column("was_written", sa.Boolean(), nullable=False),
        sa.Column("sha256_before", sa.String(length=64), nullable=True),
        sa.Column("sha256_expected", sa.String(length=64), nullable=True),
        sa.Column("sha256_after", sa.String(length=64), nullable=True),
        sa.Column("mtime_before_ns", sa.BigInteger(), nullable=True),
        sa.Column("first_write_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("finished_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("fsync_s", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("fsyncs", sa.BigInteger(), nullable=False),
        sa.Column("reads", sa.BigInteger(), nullable=False),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("writes", sa.BigInteger(), nullable=False),
        sa.Column("write_bytes", sa.BigInteger(), nullable=False),
        sa.Column("refusal", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("is_proved", sa.Boolean(), nullable=True),
        sa.Column("proved_by", sa.String(length=20), nullable=True),
        sa.Column("entries_erased", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["cycle_id"], ["erasure_cycles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cycle_id", "number"),
    )
    op.create_table(
        "erasure_entries",
        sa.Column("cycle_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["cycle_id"], ["erasure_cycles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cycle_id", "number"),
    )


def _create_stores() -> None:
    op.create_table(
        "erasure_stores",
        sa.Column("files_erased", sa.BigInteger(), nullable=False),
        sa.Column("files_deleted", sa.BigInteger(), nullable=False),
        sa.Column("files_already_deleted", sa.BigInteger(), nullable=False),
        sa.Column("fsyncs", sa.BigInteger(), nullable=False),
        sa.Column("reads", sa.BigInteger(), nullable=False),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("writes", sa.BigInteger(), nullable=False),
        sa.Column("write_bytes", sa.BigInteger(), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("seen_enabled", sa.Boolean(), nullable=False),
        sa.Column("seen_period_s", sa.Float(), nullable=False),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("store"),
    )


def downgrade() -> None:
    op.drop_table("erasure_stores")
    op.drop_table("erasure_entries")
    op.drop_table("erasure_files")
    op.drop_table("erasure_cycles")
