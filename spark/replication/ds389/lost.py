"""Was anything lost? By the lossless rule, from what servers have left in files. Pure.

A consumer's RUV moves to the greatest change that it was sent of a replica. So after a session it claims all
changes of that replica above what it had before, up to that one; each of them that anything names and
that was not among those sent is lost there: no later session sends it, for the RUV covers it.

Not so where more is known: the consumer's own changelog has the change, it has answered that it took it, or
a later session has sent it after all, as to a server that was restored in between. A changelog that goes
over the change and does not have it outweighs an answer, which may be from before a restore.

What the session should have sent is decided by WINDOW (rule C) on the vectors that it compared; a change of
that window that lies above all that was sent is held back, and no loss.

Source: facts/replication-decision-table, sections 5 (K4, K6) and 6.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark.formats.csn import Csn
from spark.replication.ds389.evidence import History, Session
from spark.replication.supplier.decide import Consumer, Outcome, Reason, Strategy, Supplier, decide


class Why(StrEnum):
    """How a change is known to be missing.

    JUMPED: a session sent a later one of the same replica without it. REFUSED: the consumer answered with an
    error, and the session went on. HOLE: the changelog has changes before and behind it, and not this one; a
    total update leaves such holes too, so this alone is a suspicion.
    """

    JUMPED = "JUMPED"
    REFUSED = "REFUSED"
    HOLE = "HOLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is given, by RID of the server; sessions in any order."""

    histories: Mapping[int, History] = field(default_factory=dict)
    sessions: Sequence[Session] = ()
    results: Mapping[int, Mapping[Csn, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """One change that a server does not have although its RUV says so.

    Attributes:
        session: which session jumped over it, as `Judged.number`.
        after, upto: the stretch in which that session may have jumped over more, that nothing given names.
        result: the LDAP result that it was refused with.
    """

    csn: Csn
    server: int
    why: Why
    session: int | None = None
    after: Csn | None = None
    upto: Csn | None = None
    result: int | None = None

    @property
    def is_proved(self) -> bool:
        return self.why is not Why.HOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A session beside the rule.

    Attributes:
        should: known changes that the consumer lacked; `held` and `lost` are those of them that did not go.
    """

    number: int
    session: Session
    outcome: Outcome
    reason: Reason | None
    should: tuple[Csn, ...]
    held: tuple[Csn, ...]
    lost: tuple[Csn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer. `known` is how many different changes the evidence names."""

    lost: tuple[Lost, ...]
    sessions: tuple[Judged, ...]
    known: int


def find_lost(evidence: Evidence) -> Verdict:
    """Name every change that is lost, and judge each session."""
    known = _known(evidence)
    taken = {
        rid: {csn for csn, code in results.items() if code == 0} for rid, results in evidence.results.items()
    }
    sessions = _in_order(evidence.sessions)
    last_sent = _last_sent(sessions)
    judged: list[Judged] = []
    found: dict[tuple[int, Csn], Lost] = {}
    for number, session in enumerate(sessions):
        rid = session.consumer or 0
        has = _Has(evidence.histories.get(rid), taken.get(rid, set()), last_sent.get(rid, {}), number)
        one = _judged(number, session, known, has)
        judged.append(one)
        for csn in one.lost:
            assert session.consumer is not None, "nobody lost it"
            lost = Lost(
                csn=csn,
                server=session.consumer,
                why=Why.JUMPED,
                session=number,
                after=session.seen.get(csn.rid),
                upto=_claims(session)[csn.rid],
            )
            found.setdefault((lost.server, csn), lost)
    for lost in (*_refused(evidence), *_holes(evidence, known, taken)):
        found.setdefault((lost.server, lost.csn), lost)
    return Verdict(
        lost=tuple(found[key] for key in sorted(found)),
        sessions=tuple(judged),
        known=sum(len(csns) for csns in known.values()),
    )


def _in_order(sessions: Sequence[Session]) -> list[Session]:
    """By their time where all tell it, else as they were given."""
    if any(one.at is None for one in sessions):
        return list(sessions)
    return sorted(sessions, key=lambda one: one.at or one.at)  # type: ignore[arg-type,return-value]


def _known(evidence: Evidence) -> dict[int, list[Csn]]:
    """Every change that anything names, by replica, in order: a vector's CSN is a change as well."""
    found: set[Csn] = set()
    for history in evidence.histories.values():
        found |= history.csns
        found.update(history.maxima.values(), history.minima.values())
    for one in evidence.sessions:
        found.update(one.sent, one.skipped, one.seen.values(), one.known.values(), one.minima)
    for results in evidence.results.values():
        found.update(results)
    by_rid: dict[int, list[Csn]] = {}
    for csn in sorted(found):
        by_rid.setdefault(csn.rid, []).append(csn)
    return by_rid


def _between(csns: list[Csn], after: Csn | None, upto: Csn) -> list[Csn]:
    low = 0 if after is None else bisect_right(csns, after)
    return csns[low : bisect_right(csns, upto)]


@dataclass(frozen=True, slots=True)
class _Has:
    """What else is known of a session's consumer.

    Attributes:
        history: its changelog.
        taken: what it has answered well to.
        last_sent: the last session that has sent it a change, by number; `number` is this one's.
    """

    history: History | None
    taken: set[Csn]
    last_sent: Mapping[Csn, int]
    number: int

    def __contains__(self, csn: Csn) -> bool:
        found = None if self.history is None else self.history.holds(csn)
        if found is not None:
            return found
        return csn in self.taken or self.last_sent.get(csn, -1) > self.number


def _last_sent(sessions: Sequence[Session]) -> dict[int, dict[Csn, int]]:
    """By consumer and change: the number of the last session that sent it, and came to its own end."""
    found: dict[int, dict[Csn, int]] = {}
    for number, one in enumerate(sessions):
        if one.ended:
            found.setdefault(one.consumer or 0, {}).update(dict.fromkeys(one.sent, number))
    return found


def _judged(number: int, session: Session, known: Mapping[int, list[Csn]], has: _Has) -> Judged:
    seen_generation, own_generation = session.generations
    decision = decide(
        Supplier(session.known, generation=own_generation),
        Consumer(session.seen or None, generation=seen_generation),
        strategy=Strategy.WINDOW,
    )
    sent = set(session.sent)
    claims = _claims(session)
    should = {
        csn
        for rid, window in decision.windows.items()
        for csn in _between(known.get(rid, []), window.after, max(window.upto, claims.get(rid, window.upto)))
    }
    lost = {
        csn
        for rid, upto in claims.items()
        for csn in _between(known.get(rid, []), session.seen.get(rid), upto)
        if csn not in sent and csn not in has
    }
    if session.consumer is None or seen_generation != own_generation:
        lost = set()
    held = {csn for csn in should - sent - lost if csn > claims.get(csn.rid, "")}
    return Judged(
        number=number,
        session=session,
        outcome=decision.outcome,
        reason=decision.reason,
        should=tuple(sorted(should)),
        held=tuple(sorted(held)),
        lost=tuple(sorted(lost)),
    )


def _claims(session: Session) -> dict[int, Csn]:
    """How far the consumer's RUV has moved by what it was sent, by replica."""
    found: dict[int, Csn] = {}
    for csn in session.sent:
        found[csn.rid] = max(found.get(csn.rid, csn), csn)
    return found


def _refused(evidence: Evidence) -> Iterable[Lost]:
    for rid, results in evidence.results.items():
        for csn, code in results.items():
            if code != 0 and csn.rid != rid:
                yield Lost(csn=csn, server=rid, why=Why.REFUSED, result=code)


def _holes(
    evidence: Evidence, known: Mapping[int, list[Csn]], taken: Mapping[int, set[Csn]]
) -> Iterable[Lost]:
    for server, history in evidence.histories.items():
        held: dict[int, list[Csn]] = {}
        for csn in sorted(history.csns):
            held.setdefault(csn.rid, []).append(csn)
        for rid, csns in held.items():
            low = max(csns[0], history.purged.get(rid, csns[0]))
            for csn in _between(known.get(rid, []), low, csns[-1]):
                # That a server took its own change says nothing: it may have been restored since.
                is_taken = csn in taken.get(server, ()) and csn.rid != server
                if csn not in history.csns and not is_taken:
                    yield Lost(csn=csn, server=server, why=Why.HOLE)


def document_of(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON: what the API and the command answer."""
    return {
        "known": verdict.known,
        "lost": [_change(each, verdict) for each in verdict.lost],
        "sessions": [
            {
                "agreement": each.session.agreement,
                "at": None if each.session.at is None else each.session.at.isoformat(),
                "consumer": each.session.consumer,
                "outcome": each.outcome.value,
                "reason": None if each.reason is None else each.reason.value,
                "should": len(each.should),
                "sent": len(each.session.sent),
                "held": len(each.held),
                "lost": len(each.lost),
            }
            for each in verdict.sessions
        ],
    }


def _change(one: Lost, verdict: Verdict) -> dict[str, Any]:
    by = None if one.session is None else verdict.sessions[one.session].session
    return {
        "csn": one.csn,
        "server": one.server,
        "why": one.why.value,
        "proved": one.is_proved,
        "agreement": None if by is None else by.agreement,
        "at": None if by is None or by.at is None else by.at.isoformat(),
        "after": one.after,
        "upto": one.upto,
        "result": one.result,
    }
