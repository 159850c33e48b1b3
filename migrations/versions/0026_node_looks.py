"""What the last check of a node of Slony-I saw of its cluster.

Revision: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_looks",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("target", app.db.JSON_TYPE, nullable=False),
        sa.Column("local_node", sa.Integer(), nullable=False),
        sa.Column("confirmations", app.db.JSON_TYPE, nullable=False),
        sa.Column("log_status", app.db.JSON_TYPE, nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )


def downgrade() -> None:
    op.drop_table("node_looks")
