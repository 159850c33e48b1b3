"""Stores of kind DS389: who binds, and the replicated suffix.

Revision: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("stores") as batch:
        batch.add_column(sa.Column("bind_dn", sa.String(length=1000), nullable=True))
        batch.add_column(sa.Column("suffix", sa.String(length=1000), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("stores") as batch:
        batch.drop_column("suffix")
        batch.drop_column("bind_dn")
