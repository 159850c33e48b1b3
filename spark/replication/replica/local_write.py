"""Local writes: the changes of several requests in one transaction of the target.

Invariants:
- CSNs are given under the lock of the generator's row, which is held to the commit: they commit in their
  order, and the RUV never passes a change that is not there;
- records, entries, RUV, generator and the answers of keyed requests commit together or not at all;
- a request whose key was seen changes nothing: it gets the answer of then;
- a request with an extinct key changes nothing: which keys are is read under the same lock;
- a request whose conditions do not hold changes nothing (conditions.py).
Source: design.md, Replication; facts/replication-session, sections 2 and 4.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark.formats.arrow import pa
from spark.formats.extinction import ExtinctionIndex
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.csn_generator import GeneratorState
from spark.replication.errors import ReplicaNotOnline
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.appending import Appender, Own, read_own
from spark.replication.replica.conditions import (
    Condition,
    Conditional,
    CsnDiffers,
    hold_arrivals,
    judge_conditions,
)
from spark.replication.replica.extinction_index import index_of, judge
from spark.replication.replica.replica import (
    Expected,
    lock_replica,
    loss_of,
    mark_loss,
    recalled,
)
from spark.targets.connection import Connection

__all__ = [
    "Expected",
    "GroupWritten",
    "KeyExtinct",
    "KeyReused",
    "LocalRequest",
    "RequestKey",
    "RequestWritten",
    "write_group",
]

REQUESTS_KEPT_S: Final = 7 * 86_400
_KEYS_AT_ONCE: Final = 500
_FORGOTTEN_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An Idempotency-Key with whose it is, and the fingerprint of the body that came with it."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """The changes of one request and what they depend on: a batch of `local_schema` in the writer's order."""

    batch: pa.RecordBatch
    idempotency: RequestKey | None = None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestWritten:
    """What became of a request; both CSNs are None where it had no change."""

    first_csn: str | None
    last_csn: str | None
    changes: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key came with another body before: nothing of this request was written."""

    key: str


@dataclass(frozen=True, slots=True)
class KeyExtinct:
    """A key of this request will never be used again, an extinction says: nothing of it was written.

    Attributes:
        row: the first such change, from 0.
    """

    extinction_id: str
    row: int


Answer = RequestWritten | KeyReused | KeyExtinct | CsnDiffers


@dataclass(frozen=True, slots=True)
class GroupWritten:
    """The answers in the order of the requests, and the greatest own CSN after the commit."""

    requests: tuple[Answer, ...]
    own_max: str | None


def write_group(
    conn: Connection, requests: Sequence[LocalRequest], *, now_s: int, expected: Expected
) -> GroupWritten:
    """Write the changes of several requests in one transaction, each with a CSN of its own.

    Args:
        now_s: seconds since 1970 by the service's clock, for the CSNs.
        expected: what the service remembers; a target that lacks it was put back from a backup.
    Raises: ReplicaWasRestored: found now; it is marked, nothing was written.
        ReplicaNotOnline, ReplicaMissing, LayoutUnknown: this replica takes no local writes.
        ClockSkewExceeded, TimestampOutOfRange: no CSN can be given.
        TargetLockTimeout: other writers are slower than the limit; the caller tries again.
    """
    tables = tables_of(conn)
    with conn.transaction():
        if any(request.conditions for request in requests):
            hold_arrivals(conn, tables)
        row, state = lock_replica(conn, tables)
        own = read_own(conn, tables, row.rid)
        expected = recalled(row, own.max_csn, expected)
        found = loss_of(row, own.max_csn, expected)
        if found is None:
            if row.status not in (ReplicaStatus.EMPTY, ReplicaStatus.ONLINE):
                raise ReplicaNotOnline(row.status)
            return _write(conn, tables, requests, row=row, state=state, own=own, now_s=now_s)
        mark_loss(conn, tables, row, expected, found)
    raise found


def _write(
    conn: Connection,
    tables: ReplicaTables,
    requests: Sequence[LocalRequest],
    *,
    row: ReplicaRow,
    state: GeneratorState,
    own: Own,
    now_s: int,
) -> GroupWritten:
    if now_s // 3600 != state.sampled_s // 3600:  # the first group of an hour
        forget_requests(conn, tables, now_s=own.now_s)
    answers = _known_answers(requests, _stored(conn, tables, requests, own))
    _refuse_extinct(requests, answers, index_of(conn, tables, own.extinctions))
    _refuse_changed(conn, tables, requests, answers)
    fresh = [index for index, answer in answers.items() if answer is None]
    batches = [requests[index].batch for index in fresh]
    csns = Appender(conn, tables, row, state, own, now_s=now_s).append(batches)
    at = 0
    parts: dict[int, list[str]] = {}
    for index, batch in zip(fresh, batches, strict=True):
        part = parts[index] = csns[at : at + batch.num_rows]
        at += batch.num_rows
        answers[index] = (
            RequestWritten(part[0], part[-1], len(part)) if part else RequestWritten(None, None, 0)
        )
    for index, answer in answers.items():
        if isinstance(answer, CsnDiffers) and answer.by is not None:
            answers[index] = replace(answer, csn=parts[answer.by[0]][answer.by[1]])
    _keep_answers(conn, tables, requests, fresh, answers, own)
    return GroupWritten(_all_answers(requests, answers), csns[-1] if csns else own.max_csn)


def forget_requests(conn: Connection, tables: ReplicaTables, *, now_s: int) -> None:
    """Remove the answers of keyed requests that are kept no longer; `now_s` by the target's clock."""
    conn.execute(f"delete from {tables.requests} where at_s <= :at_s", {"at_s": now_s - REQUESTS_KEPT_S})


def forget_given_up(conn: Connection, tables: ReplicaTables, *, after: str | None) -> None:
    """Remove the answers of keyed requests whose own changes are given up: asked again, they are written.

    In the transaction that gives them up.

    Args:
        after: the greatest own CSN that is kept, or comes back; None: none is.
    """
    last = ""
    while rows := conn.execute(
        f"select request_key, answer from {tables.requests} where request_key > :last"
        f" order by request_key limit {_FORGOTTEN_AT_ONCE}",
        {"last": last},
    ):
        gone = [key for key, answer in rows if (json.loads(answer)["last_csn"] or "") > (after or "")]
        conn.execute_many(
            f"delete from {tables.requests} where request_key = :key", [{"key": key} for key in gone]
        )
        last = rows[-1][0]


def _stored(
    conn: Connection, tables: ReplicaTables, requests: Sequence[LocalRequest], own: Own
) -> dict[str, tuple[str, RequestWritten]]:
    """Fingerprint and answer of the keys that were seen before."""
    keys = sorted({each.idempotency.key for each in requests if each.idempotency is not None})
    found: dict[str, tuple[str, RequestWritten]] = {}
    for begin in range(0, len(keys), _KEYS_AT_ONCE):
        some = {f"key{at}": key for at, key in enumerate(keys[begin : begin + _KEYS_AT_ONCE])}
        rows = conn.execute(
            f"select request_key, fingerprint, answer from {tables.requests}"
            f" where request_key in ({', '.join(f':{name}' for name in some)}) and at_s > :at_s",
            {**some, "at_s": own.now_s - REQUESTS_KEPT_S},
        )
        for key, fingerprint, answer in rows:
            found[key] = (fingerprint, RequestWritten(**json.loads(answer), replayed=True))
    return found


def _known_answers(
    requests: Sequence[LocalRequest], stored: dict[str, tuple[str, RequestWritten]]
) -> dict[int, Answer | None]:
    """Of each request the answer that is known before anything is written; None: it is to be written.

    The second and later requests with one key and body are missing: they take the answer of the first.
    """
    answers: dict[int, Answer | None] = {}
    fingerprints = {key: fingerprint for key, (fingerprint, _) in stored.items()}
    for index, request in enumerate(requests):
        key = request.idempotency
        if key is None or key.key not in fingerprints:
            answers[index] = None
        elif fingerprints[key.key] != key.fingerprint:
            answers[index] = KeyReused(key.key)
        elif key.key in stored:
            answers[index] = stored[key.key][1]
        if key is not None:
            fingerprints.setdefault(key.key, key.fingerprint)
    return answers


def _refuse_extinct(
    requests: Sequence[LocalRequest], answers: dict[int, Answer | None], index: ExtinctionIndex
) -> None:
    """Answer the fresh requests that have an extinct key."""
    if not index:
        return
    for at in [at for at, answer in answers.items() if answer is None]:
        batch = requests[at].batch
        is_extinct = judge(index, batch).is_extinct
        if is_extinct is not None:
            row = int(is_extinct.argmax())
            found = index.find(batch.column("database")[row].as_py(), batch.column("key")[row].as_py())
            assert found is not None, "what is extinct is covered"
            answers[at] = KeyExtinct(found.id, row)


def _refuse_changed(
    conn: Connection,
    tables: ReplicaTables,
    requests: Sequence[LocalRequest],
    answers: dict[int, Answer | None],
) -> None:
    """Answer the fresh requests whose entries are not what their writers know."""
    fresh = [
        Conditional(at, requests[at].batch, requests[at].conditions)
        for at, answer in answers.items()
        if answer is None
    ]
    answers.update(judge_conditions(conn, tables, fresh))


def _all_answers(requests: Sequence[LocalRequest], answers: dict[int, Answer | None]) -> tuple[Answer, ...]:
    """Every request's answer; one that came twice has the first one's, as a replay."""
    written: dict[str, RequestWritten | KeyExtinct | CsnDiffers] = {}
    done: list[Answer] = []
    for index, request in enumerate(requests):
        answer, key = answers.get(index), request.idempotency
        if answer is None:
            assert key is not None, "only what came twice is without an answer"
            answer = written[key.key]
            if isinstance(answer, RequestWritten):
                answer = replace(answer, replayed=True)
        elif key is not None and isinstance(answer, RequestWritten | KeyExtinct | CsnDiffers):
            written.setdefault(key.key, answer)
        done.append(answer)
    return tuple(done)


def _keep_answers(
    conn: Connection,
    tables: ReplicaTables,
    requests: Sequence[LocalRequest],
    fresh: Sequence[int],
    answers: dict[int, Answer | None],
    own: Own,
) -> None:
    rows = []
    for index in fresh:
        key, answer = requests[index].idempotency, answers[index]
        if key is None:
            continue
        assert isinstance(answer, RequestWritten), answer
        text = {"first_csn": answer.first_csn, "last_csn": answer.last_csn, "changes": answer.changes}
        rows.append(
            {"key": key.key, "fingerprint": key.fingerprint, "answer": json.dumps(text), "at_s": own.now_s}
        )
    if rows:
        # The key may stand there still, older than answers are kept.
        conn.execute_many(
            f"insert into {tables.requests} (request_key, fingerprint, answer, at_s)"
            " values (:key, :fingerprint, :answer, :at_s) on conflict (request_key) do update set"
            " fingerprint = excluded.fingerprint, answer = excluded.answer, at_s = excluded.at_s",
            rows,
        )
