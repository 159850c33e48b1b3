"""Lists of tokens and audit rows."""

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, select

from app.auth.models import AuditEventRead, TokenRead
from app.auth.rows import AuditEvent, Token
from app.kit.pagination import Page, read_page


def list_tokens(
    db: Session, *, visible: Sequence[str] | None, page_size: int, page_token: str
) -> Page[TokenRead]:
    """Tokens, newest first, revoked ones too.

    Args:
        visible: only tokens that reach no further than these stores; None: all.
    """
    filters: dict[str, object] = {"list": "tokens", "visible": visible}
    query = select(Token)
    if visible is not None:
        query = query.where(col(Token.id).in_(_within(db, visible)))
    return read_page(
        db,
        query,
        col(Token.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: TokenRead.model_validate(row.model_dump(warnings=False)),
    )


def _within(db: Session, visible: Sequence[str]) -> list[str]:
    """The tokens whose stores are all among these; databases differ in how they look into JSON."""
    rows = db.execute(select(Token.id, Token.stores).where(col(Token.stores).is_not(None))).all()
    return [token_id for token_id, stores in rows if stores is not None and set(stores) <= set(visible)]


def list_audit_events(
    db: Session,
    *,
    page_size: int,
    page_token: str,
    stores: Sequence[str] | None,
    action: str | None,
    subject_id: str | None,
    after_time: datetime | None,
) -> Page[AuditEventRead]:
    """Audit rows, newest first."""
    filters = {"list": "audit", "stores": stores, "action": action, "subject": subject_id, "at": after_time}
    query = select(AuditEvent)
    if stores is not None:
        query = query.where(col(AuditEvent.store).in_(stores))
    if action is not None:
        query = query.where(AuditEvent.action == action)
    if subject_id is not None:
        query = query.where(AuditEvent.subject_id == subject_id)
    if after_time is not None:
        query = query.where(AuditEvent.at > after_time)
    return read_page(
        db,
        query,
        col(AuditEvent.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: AuditEventRead.model_validate(row.model_dump()),
    )
