"""The changes of a node of Slony-I, SYNC by SYNC, for whoever keeps the position.

Rules:
- the records of a unit come in their order and end with its SYNC: what came without one is not whole;
- a START says where the units behind it begin: whatever came since the last SYNC is to be dropped, it comes
  again;
- where what follows the position was cleaned away the service refuses (409 NEEDS_TOTAL), and so does this.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from lethe_client.decoding import decode
from lethe_client.errors import LetheError, ProblemError, TransportFailed, UnexpectedAnswer
from lethe_client.jobs import job_of
from lethe_client.paths import resource
from lethe_client.results import Job, Result
from lethe_client.retries import passing
from lethe_client.streaming import lines
from lethe_client.transport import Call, Transport

SILENCE_MAX_S: Final = 660.0
"""A large SYNC is sorted at the node before its first record comes."""
POLL_S: Final = 2.0
"""As often as slon makes a SYNC where there is work."""
START: Final = "START"
SYNC: Final = "SYNC"
END: Final = "END"
ERROR: Final = "ERROR"
NDJSON: Final = "application/x-ndjson"


@dataclass(frozen=True, kw_only=True)
class SlonyChange(Result):
    """A record: INSERT, UPDATE, DELETE, TRUNCATE, DDL, DDL_END, SEQUENCE, EVENT, SYNC or START; COPY and END.

    `key` and `values` are texts by column, as PostgreSQL prints them, None for NULL. `detail` has what the
    other kinds tell; of a START `snapshot` and `origin` are set.
    """

    kind: str
    seqno: int
    actionseq: int | None = None
    txid: int | None = None
    set: int | None = None
    table_id: int | None = None
    schema: str | None = None
    table: str | None = None
    key: Mapping[str, Any] | None = None
    values: Mapping[str, Any] | None = None
    detail: Mapping[str, Any] | None = None
    origin: int | None = None
    snapshot: str | None = None


class SlonyChanges:
    """`/v1/stores/{store}/slony-changes`, `/slony-copy` and `/slony-feeds`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def page(
        self,
        store_id: str,
        *,
        after: int | None = None,
        snapshot: str | None = None,
        copied: str | None = None,
        sets: Sequence[int] = (),
        limit: int | None = None,
        rows: int | None = None,
    ) -> Generator[SlonyChange]:
        """Yield a START and the units behind a position, as many as one answer has.

        Args:
            after: seqno of the last SYNC that was applied; None: the oldest that is kept.
            snapshot: of that SYNC, to be compared with the node's.
            copied: snapshot of a first copy, until the first SYNC behind it has come.
            sets: only tables and sequences of these.
            limit, rows: at most so many units; no further one once so many records came.
        Raises: Conflict: NEEDS_TOTAL. TransportFailed: the answer was cut off; what came after its last SYNC
            is not whole.
        """
        params = {
            "after": after,
            "snapshot": snapshot,
            "copied": copied,
            "set": [*sets] or None,
            "limit": limit,
            "rows": rows,
        }
        call = Call(
            method="GET",
            path=resource("stores", store_id, "slony-changes"),
            params=params,
            headers={"Accept": NDJSON},
            timeout_s=SILENCE_MAX_S,
        )
        yield from self._records(call, ends=(START, SYNC))

    def copy(self, store_id: str, *, sets: Sequence[int]) -> Generator[SlonyChange]:
        """Yield a START, every row of the tables of some sets as COPY, the sequences, and an END.

        Go on with `page` or `follow`: `after` the START's seqno, `copied` its detail's. Nothing is left out,
        and nothing comes twice.

        Raises: Conflict; TransportFailed: it was cut off, begin again.
        """
        call = Call(
            method="GET",
            path=resource("stores", store_id, "slony-copy"),
            params={"set": [*sets]},
            headers={"Accept": NDJSON},
            timeout_s=SILENCE_MAX_S,
        )
        yield from self._records(call, ends=(END,))

    def feed(
        self,
        replica_id: str,
        source: str,
        *,
        sets: Sequence[int] = (),
        tables: Sequence[str] = (),
        prefix: str | None = None,
        first_copy: bool = False,
        syncs_max: int | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Carry a node's changes into a replica, each SYNC exactly once; the answer is the job.

        Args:
            source: the store of the node.
            sets, tables: only these; tables as `schema.table`, then without sequences.
            prefix: what the key of each entry begins with.
            first_copy: begin with a new first copy, whatever stands there.
            syncs_max: at most so many SYNCs; None: up to the newest one at the job's start.
        """
        body = {
            "source": source,
            "sets": [*sets] or None,
            "tables": [*tables] or None,
            "prefix": prefix,
            "first_copy": first_copy or None,
            "syncs_max": syncs_max,
            "reason": reason,
        }
        call = Call(
            method="POST",
            path=resource("stores", replica_id, "slony-feeds"),
            json={name: value for name, value in body.items() if value is not None},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(self._transport.request(call))

    def _records(self, call: Call, *, ends: tuple[str, ...]) -> Generator[SlonyChange]:
        """The records of an answer, whose last one must be of a kind that ends it."""
        with self._transport.stream(call) as response:
            request_id = response.request.headers["x-request-id"]
            kind = ""
            try:
                for line in lines(response.iter_bytes()):
                    found = _record(line)
                    kind = found["kind"]
                    if kind == ERROR:
                        detail = f"{found.get('code')}: {found.get('detail')}"
                        raise TransportFailed(detail, maybe_done=False, request_id=request_id)
                    yield decode(SlonyChange, found)
            except httpx.TransportError as error:
                detail = f"the stream of changes was cut: {error or type(error).__name__}"
                raise TransportFailed(detail, maybe_done=False, request_id=request_id) from error
            if kind not in ends:
                detail = "the stream of changes ended before its end"
                raise TransportFailed(detail, maybe_done=False, request_id=request_id)

    def follow(
        self,
        store_id: str,
        *,
        after: int | None = None,
        snapshot: str | None = None,
        copied: str | None = None,
        sets: Sequence[int] = (),
        limit: int | None = None,
        poll_s: float = POLL_S,
    ) -> Iterator[SlonyChange]:
        """Yield units for ever, asking again from the last SYNC; a cut answer begins again with a START.

        Args:
            poll_s: between two answers without a unit.
            after, snapshot, copied, sets, limit: as of `page`.
        Raises: ProblemError: the service refuses, such as NEEDS_TOTAL. TransportFailed: it cannot be reached
            in all the time that the policy allows.
        """
        policy = self._transport.retries
        heard_at = policy.monotonic()
        fruitless = 0
        begin = True
        while True:
            failure: LetheError | None = None
            units = 0
            try:
                for record in self.page(
                    store_id, after=after, snapshot=snapshot, copied=copied, sets=sets, limit=limit
                ):
                    heard_at = policy.monotonic()
                    if record.kind == START:
                        after, snapshot = record.seqno, record.snapshot
                    if record.kind != START or begin:
                        yield record
                    begin = False
                    if record.kind == SYNC:
                        units += 1
                        after, snapshot = record.seqno, str((record.detail or {}).get("snapshot"))
                        copied = None
            except (ProblemError, TransportFailed) as error:
                failure, begin = passing(error), True
            fruitless = 0 if failure is None or units else fruitless + 1
            delay_s = policy.delay_s(fruitless + 1) if failure is not None else (0.0 if units else poll_s)
            if failure is not None and policy.monotonic() + delay_s - heard_at > policy.total_s:
                raise failure
            policy.sleep(delay_s)


def _record(line: str) -> dict[str, Any]:
    """A line as a JSON object.

    Raises: UnexpectedAnswer.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise UnexpectedAnswer(f"a line that is no record: {line!r:.80}")
    return found
