"""Public keys of signatures, and certificates of erasure cycles.

Revision: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "signing_keys",
        sa.Column("public_key", sa.String(length=60), nullable=False),
        sa.Column("algorithm", sa.String(length=20), nullable=False),
        sa.Column("instance", sa.String(length=40), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("retired_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "erasure_certificates",
        sa.Column("cycle_id", sa.String(length=40), nullable=False),
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("issued_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(length=80), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cycle_id"),
    )
    with op.batch_alter_table("erasure_certificates", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_erasure_certificates_issued_at"), ["issued_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_erasure_certificates_store"), ["store"], unique=False)


def downgrade() -> None:
    op.drop_table("erasure_certificates")
    op.drop_table("signing_keys")
