"""An admin's word that a supplier may discard what only a replica here has, once.

Revision: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "discard_grants",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("supplier_rid", sa.Integer(), nullable=False),
        sa.Column("peer_token_id", sa.String(length=40), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=False),
        sa.Column("granted_by", sa.String(length=120), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("expires_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("consumed_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("consumed_by", sa.String(length=64), nullable=True),
        sa.Column("revoked_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("revoked_by", sa.String(length=120), nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_discard_grants_store", "discard_grants", ["store", "id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_discard_grants_store", table_name="discard_grants")
    op.drop_table("discard_grants")
