"""How an agreement stands, in 389's words and in figures: from the target and the last session's row.

The consumer is not asked. Colours as 389 shows them: green went well, amber is tried again, red needs
somebody. One difference, on purpose: what 389 calls a transient warning for ever although changes are missing
is NEEDS_TOTAL here, and red.
Source: facts/replication-session, sections 6 and 13; data/replication/status-json-lines.txt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.kit.instants import instant_text
from app.replication.agreements.models import (
    AgreementStatusRead,
    LastUpdateRead,
    UnsentRead,
)
from app.replication.peer.answers import shown_ruv
from app.replication.rows import Agreement, ReplicationSession, SessionOutcome
from spark.formats.csn import Csn
from spark.replication.agreements import read_agreements
from spark.replication.replica.replica import snapshot
from spark.replication.supplier.backlog import count_missing, oldest_missing
from spark.replication.supplier.decide import Consumer, Outcome, Reason, Strategy, Supplier, decide
from spark.targets.connection import Connection, target_now

UNREACHED: Final = frozenset({"PEER_UNANSWERED", "PEER_ANSWER_INVALID"})


@dataclass(frozen=True, slots=True)
class Words:
    """One of 389's states of an agreement."""

    state: str
    repl_rc: int
    repl_rc_text: str
    text: str
    ldap_rc: int = 0
    ldap_rc_text: str = "Success"


ACQUIRED: Final = "replica acquired"
NEVER: Final = Words(
    "green", 0, ACQUIRED, "No replication sessions started since server startup", ldap_rc_text="success"
)
STARTED: Final = Words("green", 0, ACQUIRED, "Replica acquired successfully: Incremental update started")
SUCCEEDED: Final = Words("green", 0, ACQUIRED, "Replica acquired successfully: Incremental update succeeded")
TOTAL_STARTED: Final = Words("green", 0, ACQUIRED, "Total update in progress")
TOTAL_SUCCEEDED: Final = Words("green", 0, ACQUIRED, "Total update succeeded")
YIELDED: Final = Words(
    "green", 0, ACQUIRED, "Replica acquired successfully: Incremental update succeeded and yielded"
)
ABORTED: Final = Words("amber", 0, ACQUIRED, "Replica acquired successfully: Incremental update aborted")
BUSY: Final = Words(
    "amber",
    1,
    "replica busy",
    "Can't acquire busy replica (Unable to acquire replica: the replica is currently being updated by another"
    " supplier.)",
)
TRANSIENT: Final = Words(
    "amber",
    18,
    "transient warning",
    "Can't acquire replica (Incremental update transient warning.  Backing off, will retry update later.)",
)
UNREACHABLE: Final = Words(
    "red",
    16,
    "connection error",
    "Problem connecting to replica - LDAP error: Can't contact LDAP server (connection error)",
    ldap_rc=-1,
    ldap_rc_text="Can't contact LDAP server",
)
OTHER_GENERATION: Final = Words(
    "red",
    19,
    "RUV error",
    "Replication error acquiring replica: Replica has different database generation ID, remote replica may"
    " need to be initialized (RUV error)",
)
_FAILURES: Final[Mapping[str, tuple[int, str]]] = {
    "CLOCK_SKEW": (2, "excessive clock skew"),
    "SCOPE_MISSING": (3, "permission denied"),
    "STORE_FORBIDDEN": (3, "permission denied"),
    "TOKEN_UNKNOWN": (3, "permission denied"),
    "TOKEN_EXPIRED": (3, "permission denied"),
    "PROTOCOL_UNKNOWN": (5, "unknown update protocol"),
    "STORE_NOT_FOUND": (6, "no such replica"),
    "STORE_KIND_WRONG": (6, "no such replica"),
    "DIVERGED": (19, "RUV error"),
    "HISTORY_UNPROVEN": (19, "RUV error"),
    "CHANGES_UNPROVEN": (3, "permission denied"),
    "PROOFS_MISSING": (5, "unknown update protocol"),
    "DUPLICATE_RID": (11, "duplicate replica ID detected"),
}
"""Codes of a session that has failed, with 389's return code and its words."""
INTERNAL: Final = (8, "internal error")
PURGED: Final = (7, "CSN has been purged")


def words_of(session: ReplicationSession | None, *, is_active: bool) -> Words:
    """What 389 would say of a session."""
    if session is None:
        return NEVER
    problem = session.problem or {}
    code = str(problem.get("code", ""))
    is_total = session.mode == "TOTAL"
    if is_active:
        return _held_up(code) if problem else TOTAL_STARTED if is_total else STARTED
    ends = {
        SessionOutcome.UP_TO_DATE: TOTAL_SUCCEEDED if is_total else SUCCEEDED,
        SessionOutcome.YIELDED: TOTAL_SUCCEEDED if is_total else YIELDED,
        SessionOutcome.ABORTED: ABORTED,
    }
    if session.outcome in ends:
        return ends[SessionOutcome(session.outcome)]
    return _failed(session.outcome, code, problem)


def _held_up(code: str) -> Words:
    if code == "REPLICA_BUSY":
        return BUSY
    return UNREACHABLE if code in UNREACHED else TRANSIENT


def _failed(outcome: str | None, code: str, problem: Mapping[str, Any]) -> Words:
    detail = str(problem.get("detail", ""))
    if outcome == SessionOutcome.NEEDS_TOTAL:
        if problem.get("reason") in (Reason.GENERATION_MISMATCH, Reason.NO_RUV):
            return OTHER_GENERATION
        rc, text = PURGED
    elif code in UNREACHED:
        return UNREACHABLE
    else:
        rc, text = _FAILURES.get(code, INTERNAL)
    state = "amber" if outcome in (SessionOutcome.HALTED, SessionOutcome.UNPROVEN) else "red"
    return Words(state, rc, text, f"{detail} ({text})")


def status_json(words: Words, *, at: datetime | None, is_total: bool) -> dict[str, str]:
    """389's status document, all of it text; a total update that went well has two members more."""
    total = {"conn_rc": "0", "conn_rc_text": "operation success"}
    return {
        "state": words.state,
        "ldap_rc": str(words.ldap_rc),
        "ldap_rc_text": words.ldap_rc_text,
        "repl_rc": str(words.repl_rc),
        "repl_rc_text": words.repl_rc_text,
        **(total if is_total and words.state == "green" else {}),
        "date": _date(at),
        "message": message_of(words),
    }


def message_of(words: Words) -> str:
    """The status as one line of text: `Error (0) ...`."""
    return f"Error ({words.ldap_rc or words.repl_rc}) {words.text}"


def changes_sent(agreement: Agreement, active: ReplicationSession | None) -> str:
    """389's `rid:replayed/skipped ` for each replica id; a session under way counts too."""
    total = {int(rid): list(pair) for rid, pair in agreement.sent.items()}
    for rid, counted in ({} if active is None else active.counters).items():
        pair = total.setdefault(int(rid), [0, 0])
        pair[0] += counted["acknowledged"]
        pair[1] += counted["rejected"]
    return "".join(f"{rid}:{total[rid][0]}/{total[rid][1]} " for rid in sorted(total))


@dataclass(frozen=True, slots=True)
class Standing:
    """What the target says of one consumer."""

    acknowledged: Mapping[int, Csn]
    lag_changes: int
    lag: timedelta
    oldest: Csn | None
    headroom: timedelta | None
    needs_total: bool


def standing_of(conn: Connection, agreement_id: str) -> Standing:
    """Compare what a consumer has acknowledged with what is there, in one read transaction.

    Raises: TargetError, ReplicationRefused.
    """
    with conn.transaction(read_only=True):
        seen = snapshot(conn)
        known = {each.agreement_id: each.acknowledged for each in read_agreements(conn)}
        acknowledged = known.get(agreement_id, {})
        vectors = seen.vectors
        decision = decide(
            Supplier(vectors.ruv, vectors.min, vectors.purged, seen.replica.generation),
            Consumer(acknowledged, seen.replica.generation),
            strategy=Strategy.WINDOW,
        )
        missing = decide(
            Supplier(vectors.ruv, vectors.min, {}, seen.replica.generation),
            Consumer(acknowledged, seen.replica.generation),
            strategy=Strategy.WINDOW,
        )
        rows = sum(count_missing(conn, missing.windows).values())
        oldest = oldest_missing(conn, missing.windows)
        now_s = target_now(conn).timestamp()
    return Standing(
        acknowledged=acknowledged,
        lag_changes=rows,
        lag=timedelta(seconds=0 if oldest is None else max(0, round(now_s - oldest.logged_at_s))),
        oldest=None if oldest is None else oldest.csn,
        headroom=_headroom(acknowledged, vectors.purged),
        needs_total=decision.outcome is Outcome.NEEDS_TOTAL,
    )


def _headroom(acknowledged: Mapping[int, Csn], purged: Mapping[int, Csn]) -> timedelta | None:
    """The least distance between what a consumer has and what has left, in time of CSNs."""
    distances = [
        acknowledged[rid].timestamp - csn.timestamp if rid in acknowledged else 0
        for rid, csn in purged.items()
    ]
    return timedelta(seconds=max(0, min(distances))) if distances else None


def status_of(
    agreement: Agreement,
    session: ReplicationSession | None,
    *,
    is_active: bool,
    standing: Standing | None,
    target_code: str | None = None,
) -> AgreementStatusRead:
    """Put together what clients see of an agreement.

    Args:
        session: the last one.
        is_active: whether its job has not ended.
        standing: None: the target cannot be read now, and `target_code` says why.
    """
    words = words_of(session, is_active=is_active)
    ended_at = None if is_active or session is None else session.ended_at
    at = ended_at or (None if session is None else session.updated_at)
    known = agreement.acknowledged or {}
    was_refused = session is not None and session.outcome == SessionOutcome.NEEDS_TOTAL
    oldest = None if standing is None else standing.oldest
    return AgreementStatusRead(
        lag_changes=None if standing is None else standing.lag_changes,
        lag=None if standing is None else standing.lag,
        oldest_unsent=None
        if oldest is None
        else UnsentRead(csn=oldest, at=datetime.fromtimestamp(oldest.timestamp, UTC)),
        purge_headroom=None if standing is None else standing.headroom,
        needs_total=None if standing is None else standing.needs_total or was_refused,
        acknowledged=known if standing is None else shown_ruv(standing.acknowledged),
        changes_sent=changes_sent(agreement, session if is_active else None),
        last_update=LastUpdateRead(start=None if session is None else session.started_at, end=ended_at),
        last_update_status=message_of(words),
        last_update_status_json=status_json(
            words, at=at, is_total=session is not None and session.mode == "TOTAL"
        ),
        update_in_progress=is_active,
        target_code=target_code,
    )


def _date(at: datetime | None) -> str:
    """As 389 writes it: whole seconds; the epoch where nothing has happened."""
    moment = datetime.fromtimestamp(0, UTC) if at is None else at.replace(microsecond=0)
    return instant_text(moment)
