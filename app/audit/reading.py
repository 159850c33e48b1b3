"""The chain as it lies in the metadata: pages by place, and the check of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lethe_client.audit_chain import FIRST, ChainCheck, Link, check_anchor, forgotten_of
from sqlmodel import Session, col, func, select

from app.auth.actions import Action
from app.auth.chain import anchor
from app.auth.rows import AuditChain, AuditEvent
from app.db import Database

PAGE_ROWS: Final = 500
UNCHAINED_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of some rows has found; `link` is where the next one goes on."""

    anchor: Link
    head: Link
    check: ChainCheck
    is_whole: bool


def rows_after(db: Session, seq: int, *, limit: int) -> list[dict[str, Any]]:
    """Rows by their places."""
    query = (
        select(AuditEvent).where(col(AuditEvent.seq) > seq).order_by(col(AuditEvent.seq), col(AuditEvent.id))
    )
    return [row.model_dump(warnings=False) for row in db.exec(query.limit(limit)).all()]


def hash_at(db: Session, seq: int) -> str | None:
    """The hash of the row at a place; None: there is none."""
    return db.exec(select(AuditEvent.hash).where(AuditEvent.seq == seq)).first()


def chain_of(database: Database) -> tuple[Link, Link]:
    """Where the chain begins, and its head."""
    with database.reading() as db:
        return anchor(db)


def check_chain(database: Database, *, after: Link | None, rows_max: int) -> Checked:
    """Check rows, a page at a time, while others go on to write.

    Args:
        after: the link that a former check ended with; None: from the beginning.
    """
    begin, head = chain_of(database)
    check = ChainCheck(link=after or begin)
    for page in _pages(database, check, head, rows_max=rows_max):
        for row in page:
            check.take(row)
    is_whole = check.link.seq >= head.seq or check.checked < rows_max
    if is_whole:
        check.end(head)
        with database.reading() as db:
            _check_rest(db, check, begin, head)
    return Checked(begin, head, check, is_whole)


def _pages(
    database: Database, check: ChainCheck, head: Link, *, rows_max: int
) -> Iterator[Sequence[dict[str, Any]]]:
    while check.link.seq < head.seq and check.checked < rows_max:
        limit = min(PAGE_ROWS, rows_max - check.checked)
        with database.reading() as db:
            found = rows_after(db, check.link.seq, limit=limit)
            begin, _ = anchor(db)
        page = [row for row in found if row["seq"] <= head.seq]
        if not page:
            return
        if check.link.seq < begin.seq and page[0]["seq"] > check.link.seq + 1:
            check.link = begin  # retention has removed them since
            page = [row for row in page if row["seq"] > begin.seq]
        yield page


def _check_rest(db: Session, check: ChainCheck, begin: Link, head: Link) -> None:
    """What no walk from the beginning to the head comes by."""
    # The rows first: the first one and the head come by one commit, which may fall between two statements.
    has_rows = db.exec(select(AuditEvent.seq).where(col(AuditEvent.seq).is_not(None))).first() is not None
    if has_rows and db.exec(select(AuditChain.id)).first() is None:
        check.blame("HEAD_MISSING", None, "the row that is the head of the chain was removed")
    known = select(AuditChain.anchor_seq).scalar_subquery()
    before = db.exec(select(func.min(AuditEvent.seq)).where(col(AuditEvent.seq) <= known)).one()
    if before is not None:
        check.blame("ROW_INSERTED", before, f"row {before} stands before the chain's beginning")
    end = select(AuditChain.seq).scalar_subquery()
    behind = db.exec(select(func.min(AuditEvent.seq)).where(col(AuditEvent.seq) > end)).one()
    if behind is not None:
        check.blame("ROW_INSERTED", behind, f"row {behind} stands behind the head of the chain")
    unchained = select(AuditEvent.id).where(col(AuditEvent.seq).is_(None)).order_by(col(AuditEvent.id))
    for row_id in db.exec(unchained.limit(UNCHAINED_SHOWN)).all():
        detail = f"row {row_id} has no place in the chain: it was written by hand, or by a former version"
        check.blame("ROW_UNCHAINED", None, f"{detail} (then a restart of the service takes it in)")
    check_anchor(check, begin, _forgotten(db, head))


def _forgotten(db: Session, head: Link) -> Link:
    """Up to where rows were forgotten, as the newest row that tells of it says."""
    query = (
        select(AuditEvent.detail)
        .where(AuditEvent.action == Action.AUDIT_FORGET, col(AuditEvent.seq) <= head.seq)
        .order_by(col(AuditEvent.seq).desc())
    )
    found = db.exec(query.limit(1)).first()
    return FIRST if found is None else forgotten_of(found)
