"""A change over HTTP: key, effect, audit row and answer in one transaction.

Invariants:
- an answer leaves only after its transaction has committed;
- a key that was used answers the same again, or 422 for another request, or 409 while in flight;
- every effect leaves one audit row in its own transaction.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from sqlalchemy import text
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import clock_of, database_of
from app.auth.models import AuditEvent, IdempotencyKey
from app.auth.service import Caller
from app.db import Database
from app.errors import Conflict, InvalidHeader, Unprocessable
from app.kit.ids import new_id

KEY_MAX_CHARS = 255

IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="1 to 255 visible ASCII characters. Repeating a request with its key answers the same "
        "for 7 days.",
    ),
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a change answers.

    Args:
        body: a JSON-able value or model; None for an empty answer.
        replay_body: what a replay shows instead (a secret is shown once).
        subject_id, store: for the audit row, where only the effect knows them.
        audit: further facts for the audit row.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    replay_body: Any = None
    subject_id: str | None = None
    store: str | None = None
    audit: Mapping[str, Any] = field(default_factory=dict)


class _InFlight:
    """The keys that this process works on."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._keys: set[tuple[str, ...]] = set()

    @contextmanager
    def hold(self, key: tuple[str, ...]) -> Iterator[None]:
        with self._guard:
            if key in self._keys:
                raise _in_flight()
            self._keys.add(key)
        try:
            yield
        finally:
            with self._guard:
                self._keys.discard(key)


_keys_in_flight = _InFlight()


def _in_flight() -> Conflict:
    error = Conflict(
        "a request with this Idempotency-Key is in flight",
        code="IDEMPOTENCY_KEY_IN_FLIGHT",
        headers={"Retry-After": "1"},
    )
    error.retryable = True
    return error


def _render(body: Any, status: int, headers: Mapping[str, str]) -> Response:
    if body is None:
        return Response(status_code=status, headers=dict(headers))
    return JSONResponse(body, status_code=status, headers=dict(headers))


def _fingerprint(request: Request, body: Any) -> str:
    content = {"query": sorted(request.query_params.multi_items()), "body": jsonable_encoder(body)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _key_of(request: Request, caller: Caller) -> tuple[str, str, str, str] | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_MAX_CHARS or not all("!" <= char <= "~" for char in key):
        raise InvalidHeader("Idempotency-Key is 1 to 255 visible ASCII characters")
    return caller.token_id, request.method, request.url.path, key


def _lock_key(database: Database, db: Session, key: tuple[str, ...]) -> None:
    """On PostgreSQL another instance may hold the same key: a try-lock tells without waiting."""
    if database.is_sqlite:
        return
    digest = hashlib.sha256("\0".join(key).encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    if not db.execute(text("select pg_try_advisory_xact_lock(:n)"), {"n": number}).scalar_one():
        raise _in_flight()


def _replay(row: IdempotencyKey, fingerprint: str) -> Response:
    if row.request_sha256 != fingerprint:
        raise Unprocessable("this Idempotency-Key belongs to another request", code="IDEMPOTENCY_KEY_REUSED")
    return _render(row.body, row.status, row.headers | {"Idempotency-Replayed": "true"})


def _audit(
    db: Session,
    request: Request,
    caller: Caller,
    answer: Answer,
    subject: tuple[str, str],
    action: str,
    store: str | None,
) -> None:
    subject_type, subject_id = subject
    db.add(
        AuditEvent(
            id=new_id("aud"),
            at=clock_of(request).now(),
            token_id=caller.token_id,
            actor=caller.name,
            action=action,
            subject_type=subject_type,
            subject_id=answer.subject_id or subject_id,
            store=answer.store or store,
            request_id=request.state.request_id,
            detail=jsonable_encoder(dict(answer.audit)),
        )
    )


def find_replay(request: Request, caller: Caller, *, body: Any = None) -> Response | None:
    """The stored answer of a request that was answered before, for handlers that look outside first.

    Raises: InvalidHeader, Unprocessable: as `mutate`.
    """
    key = _key_of(request, caller)
    if key is None:
        return None
    with database_of(request).reading() as db:
        row = db.get(IdempotencyKey, key)
    return None if row is None else _replay(row, _fingerprint(request, body))


def mutate(
    request: Request,
    caller: Caller,
    effect: Callable[[Session], Answer],
    *,
    action: str,
    subject: tuple[str, str],
    store: str | None = None,
    body: Any = None,
) -> Response:
    """Run a change and answer it.

    Args:
        effect: does the change in the given session and returns the answer; may raise ServiceError.
        action: the audit row's verb, `store.create`.
        subject: type and id; the answer's `subject_id` wins where the id is made by the effect.
        body: the validated request, for the key's comparison.
    Raises:
        InvalidHeader: a malformed key.
        Unprocessable: the key belongs to another request.
        Conflict: the key is in flight.
    Source: api.md, Idempotency.
    """
    key = _key_of(request, caller)
    if key is None:
        with database_of(request).transaction() as db:
            answer = effect(db)
            _audit(db, request, caller, answer, subject, action, store)
        return _render(jsonable_encoder(answer.body), answer.status, answer.headers)
    with _keys_in_flight.hold(key):
        return _mutate_once(
            request, caller, effect, key, (action, subject, store), _fingerprint(request, body)
        )


def _mutate_once(
    request: Request,
    caller: Caller,
    effect: Callable[[Session], Answer],
    key: tuple[str, str, str, str],
    named: tuple[str, tuple[str, str], str | None],
    fingerprint: str,
) -> Response:
    action, subject, store = named
    database = database_of(request)
    with database.transaction() as db:
        _lock_key(database, db, key)
        row = db.get(IdempotencyKey, key)
        if row is not None:
            return _replay(row, fingerprint)
        answer = effect(db)
        shown = jsonable_encoder(answer.body)
        replayed = shown if answer.replay_body is None else jsonable_encoder(answer.replay_body)
        db.add(
            IdempotencyKey(
                token_id=key[0],
                method=key[1],
                path=key[2],
                key=key[3],
                request_sha256=fingerprint,
                status=answer.status,
                headers=dict(answer.headers),
                body=replayed,
                created_at=clock_of(request).now(),
            )
        )
        _audit(db, request, caller, answer, subject, action, store)
    return _render(shown, answer.status, answer.headers)
