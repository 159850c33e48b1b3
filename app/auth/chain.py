"""The chain of audit rows: each holds its place and the hash of the row before it.

Rules:
- whoever adds an AuditEvent to a session of `Database.transaction()` has it linked and written as the last of
  that transaction, under the lock of the one row that is the head: no gaps, no forks, also between instances;
- nothing comes after the head's lock but the commit, so that it is held for one write to the disk;
- a row without a place was written past all this.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from lethe_client.audit_chain import FIRST, GENESIS, Link, row_hash
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.rows import AuditChain, AuditEvent, audited
from app.db import OPEN, Turn, before_commit, notes

CHAIN_ID: Final = 1
_CHAIN: Final[Any] = AuditChain.__table__  # type: ignore[attr-defined]
_EVENTS: Final[Any] = AuditEvent.__table__  # type: ignore[attr-defined]
# Made once: they are in every transaction that changes something, under the lock that all wait for.
_READ_HEAD: Final = sa.select(_CHAIN.c.seq, _CHAIN.c.hash).where(_CHAIN.c.id == CHAIN_ID).with_for_update()
_MOVE_HEAD: Final = (
    sa.update(_CHAIN)
    .where(_CHAIN.c.id == CHAIN_ID)
    .values(seq=sa.bindparam("new_seq"), hash=sa.bindparam("new_hash"))
)
_INSERT: Final = sa.insert(_EVENTS)
PENDING: Final = "lethe_audit_events"
ACTOR: Final = "lethe"
FORGET_EVERY: Final = timedelta(hours=12)
_FIELDS: Final = tuple(AuditEvent.model_fields)


@event.listens_for(Session, "before_flush")
def _take_out(db: Any, _context: Any, _instances: Any) -> None:
    """Keep audit rows back until the end of their transaction."""
    if not db.info.get(OPEN):
        return
    taken = [row for row in db.new if isinstance(row, AuditEvent) and row.seq is None]
    if not taken:
        return
    pending = notes(db, PENDING)
    if not pending:
        before_commit(db, _append, turn=Turn.CHAIN)
    for row in taken:
        db.expunge(row)
        pending.append(row)


def _append(db: Session) -> None:
    link(db, [{name: getattr(row, name) for name in _FIELDS} for row in notes(db, PENDING)])


def link(db: Session, rows: Sequence[Mapping[str, Any]]) -> Link:
    """Write rows at the end of the chain; the head is locked until the transaction ends."""
    head = locked_head(db)
    seq, last = head.seq, head.hash
    linked = []
    for row in rows:
        seq += 1
        found = {**row, "seq": seq, "previous_hash": last}
        found["detail"] = json.loads(json.dumps(row["detail"] or {}))
        last = found["hash"] = row_hash(found)
        linked.append({name: found[name] for name in _FIELDS})
    connection = db.connection()
    connection.execute(_INSERT, linked[0] if len(linked) == 1 else linked)
    connection.execute(_MOVE_HEAD, {"new_seq": seq, "new_hash": last})
    return Link(seq, last)


def locked_head(db: Session) -> Link:
    """The head of the chain, which nobody else moves until the transaction ends."""
    connection = db.connection()
    row = connection.execute(_READ_HEAD).first()
    if row is None:  # somebody has removed it: the check tells, the service goes on
        _make(db)
        row = connection.execute(_READ_HEAD).one()
    return Link(row.seq, row.hash)


def _make(db: Session) -> None:
    last = db.exec(
        select(AuditEvent.seq, AuditEvent.hash)
        .where(col(AuditEvent.seq).is_not(None))
        .order_by(col(AuditEvent.seq).desc())
        .limit(1)
    ).first()
    insert = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    seq, found = last or (0, GENESIS)
    row = {"id": CHAIN_ID, "seq": seq, "hash": found or GENESIS, "anchor_seq": 0, "anchor_hash": GENESIS}
    db.execute(insert(AuditChain).values(adopted_seq=0, **row).on_conflict_do_nothing(index_elements=["id"]))


def anchor(db: Session, *, lock: bool = False) -> tuple[Link, Link]:
    """Where the chain begins, and its head; equal places before the first row."""
    query = select(AuditChain.anchor_seq, AuditChain.anchor_hash, AuditChain.seq, AuditChain.hash)
    query = query.where(AuditChain.id == CHAIN_ID)
    row = db.exec(query.with_for_update() if lock else query).first()
    return (FIRST, FIRST) if row is None else (Link(row[0], row[1]), Link(row[2], row[3]))


def forget(db: Session, *, before: datetime, now: datetime, rows_max: int) -> int:
    """Remove the oldest rows; a row of the chain tells up to which, so that no others can be taken for them.

    Only what is older than `before` from the chain's beginning on: a row with a later time keeps those after
    it. A day's rows are waited for, for each time leaves a row.
    """
    begin, _ = anchor(db, lock=True)
    query = select(AuditEvent.seq, AuditEvent.hash, AuditEvent.at).where(col(AuditEvent.seq) > begin.seq)
    through, oldest = begin, None
    for seq, found, at in db.exec(query.order_by(col(AuditEvent.seq)).limit(rows_max)).all():
        if at >= before or seq != through.seq + 1:
            break
        through, oldest = Link(seq, found or ""), oldest or at
    rows = through.seq - begin.seq
    if oldest is None or (rows < rows_max and oldest > before - FORGET_EVERY):
        return 0
    db.execute(
        sa.delete(AuditEvent).where(col(AuditEvent.seq) > begin.seq, col(AuditEvent.seq) <= through.seq)
    )
    values = {"anchor_seq": through.seq, "anchor_hash": through.hash}
    db.execute(sa.update(AuditChain).where(col(AuditChain.id) == CHAIN_ID).values(**values))
    detail = {"through_seq": through.seq, "hash": through.hash, "rows": rows, "before": before.isoformat()}
    db.add(service_row(Action.AUDIT_FORGET, now=now, detail=detail))
    return rows


def adopt(db: Session, *, now: datetime, rows_max: int) -> int:
    """Take in rows without a place, which a version before the chain has written; a row tells of them."""
    query = select(AuditEvent).where(col(AuditEvent.seq).is_(None)).order_by(col(AuditEvent.id))
    head = locked_head(db)  # first: another instance may take in the same rows
    rows = db.exec(query.limit(rows_max)).all()
    if not rows:
        return 0
    for row in rows:
        found = row.model_dump(warnings=False) | {"seq": head.seq + 1, "previous_hash": head.hash}
        found["detail"] = json.loads(json.dumps(row.detail or {}))
        head = Link(head.seq + 1, row_hash(found))
        values = {"seq": head.seq, "previous_hash": found["previous_hash"], "hash": head.hash}
        db.execute(sa.update(AuditEvent).where(col(AuditEvent.id) == row.id).values(**values))
        db.expunge(row)
    db.connection().execute(_MOVE_HEAD, {"new_seq": head.seq, "new_hash": head.hash})
    detail = {"rows": len(rows), "first": rows[0].id, "last": rows[-1].id, "through_seq": head.seq}
    db.add(service_row(Action.AUDIT_ADOPT, now=now, detail=detail))
    return len(rows)


def service_row(action: Action, *, now: datetime, detail: Mapping[str, Any]) -> AuditEvent:
    """An audit row of what the service has done or seen about the audit itself."""
    return audited(action, ("audit", "chain"), at=now, actor=ACTOR, detail=detail)
