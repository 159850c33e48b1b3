"""The recurring tick of purges.

Revision: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "purge_ticks",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("cron", sa.String(length=200), nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=False),
        sa.Column("next_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("last_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("last_outcome", sa.String(length=20), nullable=True),
        sa.Column("last_detail", sa.String(length=500), nullable=True),
        sa.Column("last_job_id", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store", "kind"),
    )
    with op.batch_alter_table("purge_ticks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_purge_ticks_next_at"), ["next_at"], unique=False)
    _forget_old_switches()


def _forget_old_switches() -> None:
    """Until now `start.purge.job` did nothing, and stood for the program's own switch: it must not begin to
    purge by itself.
    """
    stores = sa.table("stores", sa.column("id", sa.String), sa.column("parameters", sa.JSON))
    bind = op.get_bind()
    for store, parameters in bind.execute(sa.select(stores.c.id, stores.c.parameters)).all():
        if "start.purge.job" in (parameters or {}):
            kept = {name: value for name, value in parameters.items() if name != "start.purge.job"}
            bind.execute(sa.update(stores).where(stores.c.id == store).values(parameters=kept))
    op.execute("delete from global_parameters where name = 'start.purge.job'")


def downgrade() -> None:
    with op.batch_alter_table("purge_ticks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_purge_ticks_next_at"))

    op.drop_table("purge_ticks")
