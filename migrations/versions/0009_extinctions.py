"""Extinctions, and the number of each store's extinction filter.

Revision: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "extinctions",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("origin", sa.String(length=12), nullable=False),
        sa.Column("databases", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("start_key", sa.Text(), nullable=True),
        sa.Column("end_key", sa.Text(), nullable=True),
        sa.Column("filter", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("requested_by", sa.String(length=120), nullable=True),
        sa.Column("csn", sa.String(length=20), nullable=True),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=True),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("logged_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("done_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("has_java_filter", sa.Boolean(), nullable=False),
        sa.Column("attested_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("attested_by", sa.String(length=120), nullable=True),
        sa.Column("attest_reason", sa.String(length=500), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store", "id"),
    )
    op.create_index("ix_extinctions_state", "extinctions", ["state"], unique=False)
    op.create_table(
        "extinction_bundles",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )
    with op.batch_alter_table("erasure_files", schema=None) as batch_op:
        batch_op.add_column(sa.Column("extinct", sa.JSON(none_as_null=True), nullable=True))
        batch_op.add_column(sa.Column("in_use", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("erasure_files", schema=None) as batch_op:
        batch_op.drop_column("in_use")
        batch_op.drop_column("extinct")
    op.drop_table("extinction_bundles")
    op.drop_index("ix_extinctions_state", "extinctions")
    op.drop_table("extinctions")
