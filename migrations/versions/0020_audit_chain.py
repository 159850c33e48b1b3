"""Audit rows are chained by hashes; those that are there get their places now. Indexes for its filters.

Revision: 0020
Revises: 0019
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from lethe_client.audit_chain import GENESIS, row_hash

import app.db

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

PAGE_ROWS = 1_000
FILTERS = ("actor", "token_id", "store", "action", "subject_id")
EVENTS = sa.table(
    "audit_events",
    sa.column("id", sa.String()),
    sa.column("at", app.db.UtcDateTime()),
    *(sa.column(name, sa.String()) for name in ("token_id", "actor", "action", "subject_type", "subject_id")),
    *(sa.column(name, sa.String()) for name in ("store", "request_id", "previous_hash", "hash")),
    sa.column("detail", app.db.JSON_TYPE),
    sa.column("seq", sa.BigInteger()),
)


def _pages(connection: sa.Connection) -> Iterator[list[dict[str, Any]]]:
    after = ""
    while True:
        query = sa.select(EVENTS).where(EVENTS.c.id > after).order_by(EVENTS.c.id).limit(PAGE_ROWS)
        rows = [dict(row) for row in connection.execute(query).mappings()]
        if not rows:
            return
        yield rows
        after = rows[-1]["id"]


def upgrade() -> None:
    with op.batch_alter_table("audit_events") as table:
        table.add_column(sa.Column("seq", sa.BigInteger(), nullable=True))
        table.add_column(sa.Column("previous_hash", sa.String(length=64), nullable=True))
        table.add_column(sa.Column("hash", sa.String(length=64), nullable=True))
    chain = op.create_table(
        "audit_chain",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("anchor_seq", sa.BigInteger(), nullable=False),
        sa.Column("anchor_hash", sa.String(length=64), nullable=False),
        sa.Column("adopted_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    connection = op.get_bind()
    seq, last = 0, GENESIS
    change = (
        sa.update(EVENTS)
        .where(EVENTS.c.id == sa.bindparam("row_id"))
        .values(
            seq=sa.bindparam("new_seq"),
            previous_hash=sa.bindparam("new_previous"),
            hash=sa.bindparam("new_hash"),
        )
    )
    for rows in _pages(connection):
        places = []
        for row in rows:
            seq += 1
            row |= {"seq": seq, "previous_hash": last, "detail": row["detail"] or {}}
            place = {"row_id": row["id"], "new_seq": seq, "new_previous": last}
            last = row_hash(row)
            places.append(place | {"new_hash": last})
        connection.execute(change, places)
    head = {"id": 1, "seq": seq, "hash": last, "anchor_seq": 0, "anchor_hash": GENESIS, "adopted_seq": seq}
    connection.execute(sa.insert(chain), [head])
    with op.batch_alter_table("audit_events") as table:
        table.create_unique_constraint("audit_events_seq_key", ["seq"])
    op.drop_index("ix_audit_events_store", "audit_events")
    for name in FILTERS:
        op.create_index(f"ix_audit_events_{name}_id", "audit_events", [name, "id"], unique=False)


def downgrade() -> None:
    for name in FILTERS:
        op.drop_index(f"ix_audit_events_{name}_id", "audit_events")
    op.create_index("ix_audit_events_store", "audit_events", ["store"], unique=False)
    op.drop_table("audit_chain")
    with op.batch_alter_table("audit_events") as table:
        table.drop_constraint("audit_events_seq_key", type_="unique")
        for name in ("hash", "previous_hash", "seq"):
            table.drop_column(name)
