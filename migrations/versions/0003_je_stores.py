"""Stores of kind JE: an environment's directory instead of a database's URL.

Revision: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.alter_column("url", existing_type=sa.String(length=1000), nullable=True)
        batch_op.add_column(sa.Column("path", sa.String(length=1000), nullable=True))
        batch_op.add_column(sa.Column("mode", sa.String(length=10), nullable=True))
        batch_op.add_column(sa.Column("extinction_filter", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("backups", sa.String(length=20), nullable=True))
        for name in ("accept_medium", "delete_reserved_files", "erase_expired"):
            batch_op.add_column(sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
        batch_op.add_column(sa.Column("node_grace", sa.Integer(), nullable=False, server_default="600"))
        batch_op.add_column(sa.Column("backup_grace", sa.Integer(), nullable=False, server_default="86400"))
    with op.batch_alter_table("stores", schema=None) as batch_op:
        for name in ("accept_medium", "delete_reserved_files", "erase_expired"):
            batch_op.alter_column(name, existing_type=sa.Boolean(), server_default=None)
        for name in ("node_grace", "backup_grace"):
            batch_op.alter_column(name, existing_type=sa.Integer(), server_default=None)


def downgrade() -> None:
    op.execute("delete from stores where kind = 'JE'")
    with op.batch_alter_table("stores", schema=None) as batch_op:
        for name in ("backup_grace", "node_grace", "erase_expired", "delete_reserved_files", "accept_medium"):
            batch_op.drop_column(name)
        for name in ("backups", "extinction_filter", "mode", "path"):
            batch_op.drop_column(name)
        batch_op.alter_column("url", existing_type=sa.String(length=1000), nullable=False)
