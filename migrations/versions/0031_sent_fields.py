"""What was sent under an Idempotency-Key, apart from the defaults of a version's fields.

Null in rows of versions before: those have the digest of all fields alone, which they go on comparing while
they work beside this one.

Revision: 0031
Revises: 0030
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("idempotency_keys", sa.Column("sent_sha256", sa.String(64), nullable=True))


def downgrade() -> None:
    op.drop_column("idempotency_keys", "sent_sha256")
