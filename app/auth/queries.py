"""Lists of tokens and audit rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
        item=TokenRead.of,
    )


def _within(db: Session, visible: Sequence[str]) -> list[str]:
    """The tokens whose stores are all among these; databases differ in how they look into JSON."""
    rows = db.execute(select(Token.id, Token.stores).where(col(Token.stores).is_not(None))).all()
    return [token_id for token_id, stores in rows if stores is not None and set(stores) <= set(visible)]


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """What a list of audit rows is narrowed to; None: not by that."""

    action: str | None = None
    actor: str | None = None
    token_id: str | None = None
    store: str | None = None
    subject_id: str | None = None
    after: datetime | None = None
    before: datetime | None = None


def list_audit_events(
    db: Session, *, page_size: int, page_token: str, stores: Sequence[str] | None, wanted: AuditFilters
) -> Page[AuditEventRead]:
    """Audit rows, newest first."""
    query = select(AuditEvent)
    if stores is not None:
        query = query.where(col(AuditEvent.store).in_(stores))
    for name in ("action", "actor", "token_id", "store", "subject_id"):
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(getattr(AuditEvent, name) == value)
    if wanted.after is not None:
        query = query.where(AuditEvent.at > wanted.after)
    if wanted.before is not None:
        query = query.where(AuditEvent.at < wanted.before)
    return read_page(
        db,
        query,
        col(AuditEvent.id),
        filters={"list": "audit", "stores": stores} | asdict(wanted),
        page_size=page_size,
        page_token=page_token,
        item=lambda row: AuditEventRead.model_validate(row.model_dump()),
    )
