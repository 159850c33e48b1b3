"""Changes of stores, schedules and windows have a sequence, which goes on from the times that stood for one.

Jobs in the queue wait for a runner, since they came into it.

Revision: 0025
Revises: 0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

NAME = "changes"


def upgrade() -> None:
    last = "select coalesce(max(seq), 0) from feed_events where kind in ('STORE', 'SCHEDULE', 'WINDOW')"
    op.execute(
        sa.text(
            f"insert into feed_numbers (name, last, forgotten) select :name, ({last}), 0 "
            "where not exists (select 1 from feed_numbers where name = :name)"
        ).bindparams(sa.bindparam("name", NAME, sa.String()))
    )
    op.execute(
        sa.text(
            "update jobs set waiting_cause = 'QUEUED', waiting_since = updated_at "
            "where state = 'QUEUED' and waiting_since is null"
        )
    )


def downgrade() -> None:
    op.execute(sa.text("delete from feed_numbers where name = :name").bindparams(name=NAME))
    op.execute(
        sa.text("update jobs set waiting_cause = null, waiting_since = null where waiting_cause = 'QUEUED'")
    )
