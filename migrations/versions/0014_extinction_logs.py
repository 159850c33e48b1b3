"""How far the logs of JE stores are read for what JE has discarded; which of its databases have duplicates.

Revision: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "extinction_logs",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("path", sa.String(length=1000), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("offset", sa.BigInteger(), nullable=True),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.Column("device", sa.BigInteger(), nullable=True),
        sa.Column("inode", sa.String(length=20), nullable=True),
        sa.Column("gap", sa.String(length=300), nullable=True),
        sa.Column("trouble", sa.String(length=300), nullable=True),
        sa.Column("updated_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )
    with op.batch_alter_table("extinctions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("secondary", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("extinctions", schema=None) as batch_op:
        batch_op.drop_column("secondary")
    op.drop_table("extinction_logs")
