"""A change over HTTP: key, effect, audit row and answer in one transaction.

Rules:
- an answer leaves only after its transaction has committed;
- a key that was used answers the same again, or 422 for another request, or 409 while in flight;
- every effect leaves one audit row in its own transaction, with the reason where the request says one;
- of a request that waits (`mutate_waiting`) the first transaction holds key and effect, the second the
  answer; a key without an answer, whose request is dead, is taken up where it was.
"""

import hashlib
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from sqlalchemy import text
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import clock_of, database_of, via_of
from app.auth.actions import Action
from app.auth.audit_rows import audit_row, with_reason
from app.auth.fingerprint import Fingerprint
from app.auth.rows import IdempotencyKey
from app.auth.service import Caller
from app.db import Database
from app.errors import Conflict, InvalidHeader, ServiceError, Unprocessable, problem

_KEY = re.compile(r"[!-~]{1,255}")
UNANSWERED = 0
"""The status of a key whose request still waits."""

IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="1 to 255 visible ASCII characters. Repeating a request with its key answers the same "
        "for 7 days.",
    ),
]


Named = tuple[Action, str, str]
"""Action, subject type and store of the audit row of a request that waits."""


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


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first transaction of a waiting request has left.

    Args:
        subject_id: what it made, or what it is about.
        until: when nobody waits for it any more, whatever has happened.
        is_taken_up: the request that began it is dead; this one goes on where it was.
    """

    subject_id: str
    until: datetime
    is_taken_up: bool = False
    audit: Mapping[str, Any] = field(default_factory=dict)


Conclude = Callable[[Session], Answer]
"""The effect of the second transaction."""


class _InFlight:
    """The keys that this process works on."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._keys: set[tuple[str, ...]] = set()

    @contextmanager
    def hold(self, key: tuple[str, ...]) -> Iterator[None]:
        with self._guard:
            if key in self._keys:
                raise key_in_flight()
            self._keys.add(key)
        try:
            yield
        finally:
            with self._guard:
                self._keys.discard(key)


_keys_in_flight = _InFlight()


def key_in_flight() -> Conflict:
    """The problem of a request whose Idempotency-Key is worked on now."""
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


def idempotency_key_of(request: Request) -> str | None:
    """The Idempotency-Key of a request. Raises: InvalidHeader."""
    key = request.headers.get("idempotency-key")
    if key is not None and _KEY.fullmatch(key) is None:
        raise InvalidHeader("Idempotency-Key is 1 to 255 visible ASCII characters")
    return key


def _key_of(request: Request, caller: Caller) -> tuple[str, str, str, str] | None:
    key = idempotency_key_of(request)
    return None if key is None else (caller.token_id, request.method, request.url.path, key)


def _lock_key(database: Database, db: Session, key: tuple[str, ...]) -> None:
    """On PostgreSQL another instance may hold the same key: a try-lock tells without waiting."""
    if database.is_sqlite:
        return
    digest = hashlib.sha256("\0".join(key).encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    if not db.execute(text("select pg_try_advisory_xact_lock(:n)"), {"n": number}).scalar_one():
        raise key_in_flight()


def key_reused() -> Unprocessable:
    """The problem of a request whose Idempotency-Key came with another one before."""
    return Unprocessable("this Idempotency-Key belongs to another request", code="IDEMPOTENCY_KEY_REUSED")


def _replay(row: IdempotencyKey, fingerprint: Fingerprint) -> Response:
    if not fingerprint.is_that_of(row):
        raise key_reused()
    return _stored(row)


def _stored(row: IdempotencyKey) -> Response:
    return _render(row.body, row.status, row.headers | {"Idempotency-Replayed": "true"})


def _audit(
    db: Session,
    request: Request,
    caller: Caller,
    answer: Answer,
    subject: tuple[str, str],
    action: Action,
    store: str | None,
) -> None:
    subject_type, subject_id = subject
    named = (subject_type, answer.subject_id or subject_id)
    detail = jsonable_encoder(dict(answer.audit)) | via_of(request)
    db.add(audit_row(request, caller, action, named, store=answer.store or store, detail=detail))


def find_replay(request: Request, caller: Caller, *, body: Any = None) -> Response | None:
    """The stored answer of a request that was answered before, for handlers that look outside first.

    Raises: InvalidHeader, Unprocessable: as `mutate`.
    """
    key = _key_of(request, caller)
    if key is None:
        return None
    with database_of(request).reading() as db:
        row = db.get(IdempotencyKey, key)
    if row is None or row.status == UNANSWERED:
        return None
    return _replay(row, Fingerprint.of(request, body))


def mutate(
    request: Request,
    caller: Caller,
    effect: Callable[[Session], Answer],
    *,
    action: Action,
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
    key, effect = _key_of(request, caller), with_reason(effect, body)
    if key is None:
        with database_of(request).transaction() as db:
            answer = effect(db)
            _audit(db, request, caller, answer, subject, action, store)
        return _render(jsonable_encoder(answer.body), answer.status, answer.headers)
    with _keys_in_flight.hold(key):
        named = (action, subject, store)
        return _mutate_once(request, caller, effect, key, named, Fingerprint.of(request, body))


def _mutate_once(
    request: Request,
    caller: Caller,
    effect: Callable[[Session], Answer],
    key: tuple[str, str, str, str],
    named: tuple[Action, tuple[str, str], str | None],
    fingerprint: Fingerprint,
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
                request_sha256=fingerprint.whole,
                sent_sha256=fingerprint.sent,
                status=answer.status,
                headers=dict(answer.headers),
                body=replayed,
                created_at=clock_of(request).now(),
            )
        )
        _audit(db, request, caller, answer, subject, action, store)
    return _render(shown, answer.status, answer.headers)


def problem_answer(request: Request, error: ServiceError) -> Answer:
    """An error as an answer that is kept: what was tried has failed for good."""
    rendered = problem(request, error)
    return Answer(
        body=json.loads(bytes(rendered.body)),
        status=error.status,
        headers={**error.headers, "Content-Type": str(rendered.media_type)},
    )


async def mutate_waiting(
    request: Request,
    caller: Caller,
    *,
    begin: Callable[[Session], Begun],
    wait: Callable[[Begun], Awaitable[Conclude]],
    owner: str,
    action: Action,
    subject_type: str,
    store: str,
    body: Any = None,
) -> Response:
    """Run a change that waits in its middle, holding neither a thread nor a connection meanwhile.

    Args:
        begin: the effect of the first transaction.
        wait: waits, and returns the effect of the second one. What it raises is not kept under the key: the
            same request goes on where this one was.
        owner: this instance; a key of its own that nobody works on belongs to a request that died.
    Raises: as `mutate`.
    Source: api.md, Idempotency.
    """
    key, begin = _key_of(request, caller), with_reason(begin, body)
    named = (action, subject_type, store)
    if key is None:
        begun = await run_in_threadpool(_begin, request, caller, begin, named)
        conclude = await wait(begun)
        return await run_in_threadpool(_conclude, request, conclude, None)
    fingerprint = Fingerprint.of(request, body)
    with _keys_in_flight.hold(key):
        found = await run_in_threadpool(_begin_once, request, caller, begin, named, key, fingerprint, owner)
        if isinstance(found, Response):
            return found
        conclude = await wait(found)
        return await run_in_threadpool(_conclude, request, conclude, key)


def _begin(request: Request, caller: Caller, begin: Callable[[Session], Begun], named: Named) -> Begun:
    with database_of(request).transaction() as db:
        begun = begin(db)
        _audit_begun(db, request, caller, begun, named)
    return begun


def _audit_begun(db: Session, request: Request, caller: Caller, begun: Begun, named: Named) -> None:
    action, subject_type, store = named
    _audit(db, request, caller, Answer(audit=begun.audit), (subject_type, begun.subject_id), action, store)


def _begin_once(
    request: Request,
    caller: Caller,
    begin: Callable[[Session], Begun],
    named: Named,
    key: tuple[str, str, str, str],
    fingerprint: Fingerprint,
    owner: str,
) -> Begun | Response:
    database = database_of(request)
    with database.transaction() as db:
        _lock_key(database, db, key)
        row = db.get(IdempotencyKey, key)
        if row is not None:
            return _take_up(db, row, fingerprint, owner, now=database.now(db))
        begun = begin(db)
        token_id, method, path, name = key
        left = {"subject_id": begun.subject_id, "until": begun.until.isoformat(), "owner": owner}
        row = IdempotencyKey(
            token_id=token_id,
            method=method,
            path=path,
            key=name,
            request_sha256=fingerprint.whole,
            sent_sha256=fingerprint.sent,
            status=UNANSWERED,
            body=left,
            created_at=clock_of(request).now(),
        )
        db.add(row)
        _audit_begun(db, request, caller, begun, named)
    return begun


def _take_up(
    db: Session, row: IdempotencyKey, fingerprint: Fingerprint, owner: str, *, now: datetime
) -> Begun | Response:
    """The stored answer of a key, or its request where it was, if whoever made it is dead."""
    if row.status != UNANSWERED or not fingerprint.is_that_of(row):
        return _replay(row, fingerprint)
    until = datetime.fromisoformat(row.body["until"])
    if row.body["owner"] != owner and now < until:
        raise key_in_flight()
    row.body = {**row.body, "owner": owner}
    db.add(row)
    return Begun(subject_id=row.body["subject_id"], until=until, is_taken_up=True)


def _conclude(request: Request, conclude: Conclude, key: tuple[str, str, str, str] | None) -> Response:
    with database_of(request).transaction() as db:
        row = None if key is None else db.get(IdempotencyKey, key, with_for_update=True)
        if row is not None and row.status != UNANSWERED:  # another instance has taken it up
            return _stored(row)
        answer = conclude(db)
        shown = jsonable_encoder(answer.body)
        if row is not None:
            row.status, row.headers, row.body = answer.status, dict(answer.headers), shown
            db.add(row)
    return _render(shown, answer.status, answer.headers)
