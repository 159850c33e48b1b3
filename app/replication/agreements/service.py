"""Agreements: rules of a consumer's address, and their rows.

Invariants:
- what a supplier calls is what an admin has written here, checked against the allowed hosts and those of its
  token when it is written, and again, by the address, when it is used; no other request can name a URL;
- one agreement for each (store, consumer);
- the target knows an agreement before its first session acquires, and before it is trimmed: what trimming may
  take hangs on it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlmodel import Session, col, select

from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import TERMINAL
from app.kit.conditional import require_match
from app.kit.pagination import Page, read_page
from app.outgoing.hosts import place_of_url
from app.replication.agreements.errors import (
    AgreementExists,
    AgreementInUse,
    AgreementNotFound,
    ConsumerRefused,
)
from app.replication.agreements.models import (
    AgreementCreate,
    AgreementPatch,
    AgreementRead,
    AgreementStatusRead,
    ConsumerRead,
)
from app.replication.peer.client import ConsumerAddress
from app.replication.replica.models import part_named, shown_keys
from app.replication.replica.replicas import writer_turn
from app.replication.rows import Agreement, AgreementState, ReplicationSession
from app.secrets.service import credential_of, permitted_secret
from app.settings import Settings
from app.stores.service import get_store
from app.stores.targets import check_root, user_of
from spark.formats.part import Part, shown_part
from spark.replication.agreements import read_agreements, register_agreement, remove_agreement
from spark.targets.connection import Connection, target_now
from spark.targets.hosts import may_connect


def check_consumer_allowed(*, url: str, ca_file: str | None, settings: Settings) -> None:
    """Refuse an address that this service may not call, and files that it may not read.

    Which address a name has is judged at each connection.

    Raises: ConsumerRefused, StoreUrlRefused.
    """
    host, port = place_of_url(url)
    if settings.allowed_hosts and not may_connect([tuple(settings.allowed_hosts)], host, port):
        detail = f"the host {host!r} is not among LETHE_ALLOWED_HOSTS"
        raise ConsumerRefused(detail, code="HOST_NOT_ALLOWED")
    if ca_file is not None:
        check_root(Path(ca_file), settings)


def check_address(db: Session, agreement: Agreement, settings: Settings, *, by_label: bool = True) -> None:
    """Refuse an agreement whose consumer may not be called, or not with its token.

    Args:
        by_label: whether the token may be one that goes by labels of the store.
    Raises: ConsumerRefused, StoreUrlRefused, SecretNotAllowed.
    """
    check_consumer_allowed(url=agreement.consumer_url, ca_file=agreement.consumer_ca_file, settings=settings)
    user = user_of(get_store(db, agreement.store))
    place = place_of_url(agreement.consumer_url)
    permitted_secret(db, agreement.consumer_token, user, place=place, by_label=by_label)


def address_of(agreement: Agreement, settings: Settings, database: Database) -> ConsumerAddress:
    """Where the consumer of an agreement is, allowed now, and what is shown to it.

    Raises: ConsumerRefused, StoreUrlRefused: the settings have changed since; SecretUnavailable.
    """
    check_consumer_allowed(url=agreement.consumer_url, ca_file=agreement.consumer_ca_file, settings=settings)
    with database.reading() as db:
        user = user_of(get_store(db, agreement.store))
    token = credential_of(agreement.consumer_token, user, settings=settings, database=database)
    assert token is not None, "an agreement names a token"
    return ConsumerAddress(
        url=agreement.consumer_url,
        store=agreement.consumer_store,
        token=token.value,
        ca_file=agreement.consumer_ca_file,
        hosts=tuple(listed for listed in (tuple(settings.allowed_hosts), token.hosts) if listed),
    )


def agreements_naming(db: Session, reference: str) -> list[str]:
    """The agreements whose token is a secret."""
    query = select(Agreement).where(
        Agreement.consumer_token == reference, col(Agreement.state) != AgreementState.REMOVED
    )
    rows = db.exec(query.order_by(col(Agreement.id))).all()
    return [f"the agreement {row.id} of the store {row.store}" for row in rows]


def agreements_of(db: Session, store_id: str) -> Sequence[Agreement]:
    """The agreements of a store, without those removed."""
    is_there = col(Agreement.state) != AgreementState.REMOVED
    query = select(Agreement).where(Agreement.store == store_id, is_there)
    return db.exec(query.order_by(col(Agreement.id))).all()


def get_agreement(db: Session, store_id: str, agreement_id: str, *, lock: bool = False) -> Agreement:
    """The row of an agreement that has not been removed.

    Raises: AgreementNotFound.
    """
    row = db.get(Agreement, agreement_id, with_for_update=lock)
    if row is None or row.store != store_id or row.state == AgreementState.REMOVED:
        raise AgreementNotFound("there is no such agreement of this store")
    return row


def list_agreements(db: Session, store_id: str, *, page_size: int, page_token: str) -> Page[AgreementRead]:
    """Agreements of a store by id, without those removed."""
    filters = {"list": "agreements", "store": store_id}
    query = select(Agreement).where(
        Agreement.store == store_id, col(Agreement.state) != AgreementState.REMOVED
    )
    return read_page(
        db,
        query,
        col(Agreement.id),
        ascending=True,
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_agreement(row, None),
    )


def insert_agreement(
    db: Session,
    store_id: str,
    agreement_id: str,
    request: AgreementCreate,
    *,
    by_label: bool = True,
    settings: Settings,
    now: datetime,
) -> Agreement:
    """Make the row of an agreement that the target does not know yet; the store's row is locked.

    Raises: ConsumerRefused, StoreUrlRefused, AgreementExists.
    """
    consumer = request.consumer
    _refuse_second(db, store_id, consumer.url, consumer.store, but=None)
    row = Agreement(
        id=agreement_id,
        store=store_id,
        state=AgreementState.REGISTERING,
        consumer_url=consumer.url,
        consumer_store=consumer.store,
        consumer_token=consumer.token,
        consumer_ca_file=consumer.ca_file,
        part=shown_part(part_named(request.keys)),
        strategy=request.strategy,
        interval_s=_seconds(request.interval),
        max_changes=request.max_changes,
        max_duration_s=_seconds(request.max_duration),
        batch_rows=request.batch_rows,
        batch_bytes=request.batch_bytes,
        in_flight=request.in_flight,
        created_at=now,
        updated_at=now,
    )
    check_address(db, row, settings, by_label=by_label)
    db.add(row)
    db.flush()
    return row


def change_agreement(
    db: Session,
    store_id: str,
    agreement_id: str,
    patch: AgreementPatch,
    *,
    if_match: str | None,
    by_label: bool = True,
    settings: Settings,
    now: datetime,
) -> Agreement:
    """Change what an admin chose; a session under way keeps its limits, and ends where the address changed.

    Raises: AgreementNotFound, EtagMismatch, PreconditionMissing, ConsumerRefused, AgreementExists.
    """
    row = get_agreement(db, store_id, agreement_id, lock=True)
    require_match(if_match, row.version)
    changes = patch.model_dump(exclude_unset=True)
    consumer = changes.pop("consumer", None) or {}
    for name in ("interval", "max_duration"):
        if name in changes:
            changes[f"{name}_s"] = _seconds(changes.pop(name))
    changes |= {f"consumer_{name}": value for name, value in consumer.items()}
    row.sqlmodel_update(changes)
    check_address(db, row, settings, by_label=by_label)
    if "url" in consumer:
        _refuse_second(db, store_id, row.consumer_url, row.consumer_store, but=row.id)
    row.next_at, row.failures = None, 0  # whoever changes it wants it to be tried
    row.version += 1
    row.updated_at = now
    db.add(row)
    db.flush()
    return row


def remove_agreement_row(
    db: Session, store_id: str, agreement_id: str, *, if_match: str | None, now: datetime
) -> Agreement:
    """Take an agreement away; its sessions stay as history, its floor in the target for a while.

    Raises: AgreementNotFound, EtagMismatch, PreconditionMissing, AgreementInUse.
    """
    row = get_agreement(db, store_id, agreement_id, lock=True)
    require_match(if_match, row.version)
    refuse_in_use(db, agreement_id)
    row.state = AgreementState.REMOVED
    row.removed_at = row.updated_at = now
    row.version += 1
    db.add(row)
    db.flush()
    return row


def refuse_in_use(db: Session, agreement_id: str) -> None:
    """Raise AgreementInUse while a session of the agreement has not ended."""
    job_id = active_job(db, agreement_id)
    if job_id is not None:
        raise AgreementInUse(job_id)


def active_job(db: Session, agreement_id: str) -> str | None:
    """The job of an agreement's session that has not ended."""
    query = (
        select(Job.id)
        .join(ReplicationSession, col(ReplicationSession.job_id) == col(Job.id))
        .where(ReplicationSession.agreement_id == agreement_id, col(Job.state).not_in(sorted(TERMINAL)))
        .limit(1)
    )
    return db.exec(query).first()


def note_registered(db: Session, agreement_id: str) -> Agreement | None:
    """The target knows the agreement now; None where it is gone."""
    row = db.get(Agreement, agreement_id, with_for_update=True)
    if row is not None and row.state == AgreementState.REGISTERING:
        row.state = AgreementState.REGISTERED
        db.add(row)
        db.flush()
    return row


def register_missing(database: Database, conn: Connection, store_id: str) -> list[str]:
    """Let a target know the agreements that it has forgotten: it was put back to a time before them.

    And which of those that it minds were removed, meanwhile or by a request that died before it told so.

    Returns: the ids of the forgotten ones.
    """
    there = {each.agreement_id: each.removed_at_s for each in read_agreements(conn)}
    missing = sorted(_agreements(database, store_id, are_removed=False) - there.keys())
    for agreement_id in missing:
        with writer_turn(conn):
            register_agreement(conn, agreement_id, now_s=int(target_now(conn).timestamp()))
    minded = {name for name, removed_at_s in there.items() if removed_at_s is None}.union(missing)
    for agreement_id in sorted(minded & _agreements(database, store_id, are_removed=True)):
        with writer_turn(conn):
            remove_agreement(conn, agreement_id, now_s=int(target_now(conn).timestamp()))
    return missing


def _agreements(database: Database, store_id: str, *, are_removed: bool) -> set[str]:
    state = col(Agreement.state)
    wanted = state == AgreementState.REMOVED if are_removed else state != AgreementState.REMOVED
    with database.reading() as db:
        return set(db.exec(select(Agreement.id).where(Agreement.store == store_id, wanted)).all())


def read_agreement(row: Agreement, status: AgreementStatusRead | None) -> AgreementRead:
    """Show an agreement's row to a client."""
    same = ("id", "store", "state", "strategy", "max_changes", "batch_rows", "batch_bytes", "in_flight")
    fields: dict[str, Any] = {name: getattr(row, name) for name in same}
    consumer = ConsumerRead(
        url=row.consumer_url, store=row.consumer_store, ca_file=row.consumer_ca_file, rid=row.consumer_rid
    )
    return AgreementRead.model_validate(
        fields
        | {
            "consumer": consumer,
            "keys": shown_keys(part_of(row)),
            "interval": _span(row.interval_s),
            "max_duration": _span(row.max_duration_s),
            "last_session_id": row.last_session_id,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
            "status": status,
        }
    )


def part_of(row: Agreement) -> Part | None:
    """Which keys an agreement sends; None: all."""
    return None if row.part is None else Part.read(row.part)


def _refuse_second(db: Session, store_id: str, url: str, consumer_store: str, *, but: str | None) -> None:
    query = select(Agreement.id).where(
        Agreement.store == store_id,
        Agreement.consumer_url == url,
        Agreement.consumer_store == consumer_store,
        col(Agreement.state) != AgreementState.REMOVED,
    )
    for other in db.exec(query).all():
        if other != but:
            raise AgreementExists(other)


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
