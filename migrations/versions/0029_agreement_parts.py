"""Agreements that send a part of the keys.

Revision: 0029
Revises: 0028
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("agreements") as batch:
        batch.add_column(sa.Column("part", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("agreements") as batch:
        batch.drop_column("part")
