"""Grants to discard: an admin of the consumer says, once, that a supplier may empty what only it has.

Invariants:
- a grant is spent by one acquire, in one guarded update, before anything is discarded: a crash in between
  spends it for nothing, and never discards twice for one word;
- what a peer asks for is no grant: it is looked for only where something would be lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import CursorResult, update
from sqlmodel import Session, col, or_, select

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.auth.service import Caller
from app.db import Database
from app.errors import Conflict, NotFound
from app.kit.ids import new_id
from app.kit.pagination import Page, read_page
from app.replication.consumer.discards.models import DiscardGrantCreate, DiscardGrantRead, GrantState
from app.replication.consumer.discards.rows import DiscardGrant
from spark.replication.session_errors import DiscardNotGranted

SUBJECT_TYPE: Final = "discard_grant"


class DiscardGrantNotFound(NotFound):
    """There is no such grant of this store."""


class DiscardGrantOver(Conflict):
    """The grant was spent, revoked, or has run out."""


class GrantConsent:
    """The consent that an acquire asks for; spends a grant where there is one."""

    def __init__(
        self,
        database: Database,
        store_id: str,
        *,
        caller: Caller,
        supplier_rid: int,
        session_id: str,
        request_id: str,
    ) -> None:
        self._database = database
        self._store_id = store_id
        self._caller = caller
        self._supplier_rid = supplier_rid
        self._session_id = session_id
        self._request_id = request_id
        self._spent: str | None = None

    def __call__(self) -> bool:
        """Whether it was granted; the same again where this request's transaction is tried once more."""
        if self._spent is None:
            with self._database.transaction() as db:
                self._spent = self._spend(db)
        return self._spent is not None

    def _spend(self, db: Session) -> str | None:
        now = self._database.now(db)
        is_open = (
            col(DiscardGrant.consumed_at).is_(None),
            col(DiscardGrant.revoked_at).is_(None),
            col(DiscardGrant.expires_at) > now,
        )
        token = col(DiscardGrant.peer_token_id)
        found = db.exec(
            select(DiscardGrant.id)
            .where(
                DiscardGrant.store == self._store_id,
                DiscardGrant.supplier_rid == self._supplier_rid,
                or_(token.is_(None), token == self._caller.token_id),
                *is_open,
            )
            .order_by(col(DiscardGrant.expires_at), col(DiscardGrant.id))
        ).all()
        for grant_id in found:
            done = db.execute(
                update(DiscardGrant)
                .where(col(DiscardGrant.id) == grant_id, *is_open)
                .values(consumed_at=now, consumed_by=self._session_id)
            )
            assert isinstance(done, CursorResult), "an update counts its rows"
            if done.rowcount == 1:
                db.add(self._audit(grant_id, now))
                return grant_id
        return None

    def _audit(self, grant_id: str, now: datetime) -> AuditEvent:
        return audited(
            Action.DISCARD_GRANT_CONSUME,
            (SUBJECT_TYPE, grant_id),
            at=now,
            actor=self._caller.name,
            token_id=self._caller.token_id,
            store=self._store_id,
            request_id=self._request_id,
            detail={"supplier_rid": self._supplier_rid, "session_id": self._session_id},
        )


@contextmanager
def naming_the_grant(store_id: str, supplier_rid: int) -> Iterator[None]:
    """A refusal for want of a grant says who gives it, and how."""
    try:
        yield
    except Conflict as error:
        if error.code == DiscardNotGranted.code:
            error.detail += (
                "; an admin of this service grants it once by `lethe replication discard-grant create"
                f" {store_id} --supplier-rid {supplier_rid} --reason ...`"
            )
        raise


def insert_grant(
    db: Session, store_id: str, request: DiscardGrantCreate, *, caller: Caller, now: datetime
) -> DiscardGrant:
    """Keep an admin's word."""
    expires_in: timedelta = request.expires_in
    row = DiscardGrant(
        id=new_id("dgr"),
        store=store_id,
        supplier_rid=request.supplier_rid,
        peer_token_id=request.peer_token_id,
        reason=request.reason,
        granted_by=caller.name,
        created_at=now,
        expires_at=now + expires_in,
    )
    db.add(row)
    db.flush()
    return row


def get_grant(db: Session, store_id: str, grant_id: str) -> DiscardGrant:
    """The row of a grant.

    Raises: DiscardGrantNotFound.
    """
    row = db.get(DiscardGrant, grant_id)
    if row is None or row.store != store_id:
        raise DiscardGrantNotFound("there is no such grant of this store")
    return row


def list_grants(
    db: Session, store_id: str, *, page_size: int, page_token: str, now: datetime
) -> Page[DiscardGrantRead]:
    """The grants of a store, newest first; those that are over too."""
    return read_page(
        db,
        select(DiscardGrant).where(DiscardGrant.store == store_id),
        col(DiscardGrant.id),
        filters={"list": "discard-grants", "store": store_id},
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_grant(row, now=now),
    )


def revoke_grant(
    db: Session, store_id: str, grant_id: str, *, caller: Caller, now: datetime
) -> DiscardGrantRead:
    """Take a grant back that was not used; again it changes nothing.

    Raises: DiscardGrantNotFound; DiscardGrantOver: it was spent.
    """
    row = get_grant(db, store_id, grant_id)
    if row.revoked_at is None:
        done = db.execute(
            update(DiscardGrant)
            .where(col(DiscardGrant.id) == grant_id, col(DiscardGrant.consumed_at).is_(None))
            .values(revoked_at=now, revoked_by=caller.name)
        )
        assert isinstance(done, CursorResult), "an update counts its rows"
        if done.rowcount != 1:
            raise DiscardGrantOver("the grant was used: what it was given for is done")
        db.refresh(row)
    return read_grant(row, now=now)


def read_grant(row: DiscardGrant, *, now: datetime) -> DiscardGrantRead:
    """Show a grant to a client."""
    state = GrantState.OPEN
    if row.consumed_at is not None:
        state = GrantState.CONSUMED
    elif row.revoked_at is not None:
        state = GrantState.REVOKED
    elif row.expires_at <= now:
        state = GrantState.EXPIRED
    return DiscardGrantRead.model_validate(row.model_dump() | {"state": state})
