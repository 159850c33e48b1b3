"""The borders of tenants: who chose a store's target, and scopes of their own for what reading gave too much.

Revision: 0011
Revises: 0010

Stores that are there keep their targets, whoever chose them. Tokens keep what their other scopes make them
need: whoever writes changes reads the data, whoever makes events waits for them, whoever purges or erases
verifies it.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

DATA_READ, EVENTS_WAIT, EVIDENCE_VERIFY = "data:read", "events:wait", "evidence:verify"
KEPT = (
    (DATA_READ, "stores:read", {"changes:write", "replication:write"}),
    (EVENTS_WAIT, "jobs:read", {"events:write"}),
    (EVIDENCE_VERIFY, "jobs:read", {"purges:write", "erasure:write"}),
)
"""The new scope, the one that gave it before, and those of which one makes it legitimate."""


def upgrade() -> None:
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.add_column(sa.Column("target_limit", sa.JSON(none_as_null=True), nullable=True))
        batch_op.add_column(sa.Column("target_proof", sa.String(length=200), nullable=True))
    _change_scopes(lambda held: held | {new for new, old, reasons in KEPT if old in held and held & reasons})


def downgrade() -> None:
    _change_scopes(lambda held: held - {new for new, _, _ in KEPT})
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.drop_column("target_proof")
        batch_op.drop_column("target_limit")


def _change_scopes(change) -> None:
    tokens = sa.table("tokens", sa.column("id", sa.String), sa.column("scopes", sa.JSON))
    connection = op.get_bind()
    for token_id, scopes in connection.execute(sa.select(tokens.c.id, tokens.c.scopes)).all():
        held = frozenset(json.loads(scopes) if isinstance(scopes, str) else scopes)
        wanted = change(held)
        if wanted != held:
            connection.execute(tokens.update().where(tokens.c.id == token_id).values(scopes=sorted(wanted)))
