"""Audit rows name their actions in one form: noun.verb, with dashes inside a word.

Revision: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

FORMER_NOUNS = ("backup-session", "event-cleanup", "log-switch", "signing-key", "spark-pool")
FORMER_VERBS = ("accept-log", "release-files")
"""What the version before writes with an underscore."""


def upgrade() -> None:
    op.execute(
        "update audit_events set action = replace(action, '_', '-') where action <> replace(action, '_', '-')"
    )


def downgrade() -> None:
    for former in [f"{noun}.%" for noun in FORMER_NOUNS] + [f"%.{verb}" for verb in FORMER_VERBS]:
        word = former.strip(".%")
        statement = sa.text(
            "update audit_events set action = replace(action, :word, :former) where action like :like"
        )
        op.execute(statement.bindparams(word=word, former=word.replace("-", "_"), like=former))
