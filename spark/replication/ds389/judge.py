"""What is wrong with the replicas of a suffix, by what they tell. Pure; the clock comes with the readings.

The rules and their sources: facts/replication-session sections 1 to 3, 6, 12, 13; docs/how-to/ds389.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark.formats.csn import Csn
from spark.replication.ds389.agreements import judge_agreements
from spark.replication.ds389.records import (
    Edge,
    HealthFinding,
    Lag,
    Limits,
    Reading,
    Readings,
    Role,
    Severity,
    rank,
)
from spark.replication.ds389.topology import rid_lags, unreached

NAMED_MAX: Final = 10
SKEW_MAX_S: Final = 86_400
"""389 refuses a session whose clocks are a day apart (nsslapd-ignore-time-skew aside)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """How much was seen.

    Attributes:
        known_rids: of servers that were not asked now, as they were last seen.
        is_whole: every registered server of the suffix answered, or its RID is known.
        answered: every one answered: nothing is judged by the absence of an agreement otherwise.
        moving: (store, RID) that a second look has found to go on.
    """

    known_rids: frozenset[int] = frozenset()
    is_whole: bool = True
    answered: bool = True
    moving: frozenset[tuple[str, int]] = field(default_factory=frozenset)


def judge(
    readings: Readings, edges: list[Edge], limits: Mapping[str, Limits], sight: Sight
) -> list[HealthFinding]:
    """All findings, the worst first."""
    found = [
        each for store, reading in readings.items() for each in judge_clock(store, reading, limits[store])
    ]
    found += judge_agreements(edges)
    found += _generations(readings)
    found += _restored(readings)
    found += _twice(readings)
    if sight.is_whole:
        found += _dangling(readings, sight.known_rids)
    if sight.answered and len(readings) > 1:
        found += _missing(readings, edges)
    found += _lags(readings, limits, sight)
    return sorted(found, key=order)


def order(found: HealthFinding) -> tuple[int, str, tuple[str, ...], int]:
    """The worst first."""
    return (-rank(found.severity), found.code, found.servers, found.rid or 0)


def worst(found: list[HealthFinding]) -> Severity:
    """The worst of all; OK where there is none."""
    return max((each.severity for each in found), key=rank, default=Severity.OK)


def judge_clock(store: str, reading: Reading, limits: Limits) -> Iterator[HealthFinding]:
    """The server's clock beside ours, the offsets of its generator, and CSNs from the future."""
    now_s = reading.at.timestamp()
    limit = limits.clock_s
    if not limit:
        return
    if reading.clock is not None:
        apart = reading.clock.timestamp() - now_s
        if abs(apart) > limit + 1:  # it is told in whole seconds
            yield HealthFinding(
                code="SERVER_CLOCK_WRONG",
                severity=_by_skew(abs(apart)),
                servers=(store,),
                rid=reading.rid,
                detail=f"the clock of {store} is {abs(apart):.0f} s {'ahead' if apart > 0 else 'behind'}",
                advice="Set its clock by NTP. A clock that was ahead stays in the CSNs: see CSN_AHEAD.",
                measured=abs(apart),
                limit=limit,
            )
    own = reading.ruv.maxima.get(reading.rid)
    if own is not None and own.timestamp - now_s > limit:
        yield _ahead(store, reading.rid, own, own.timestamp - now_s, limit)
    state = reading.generator
    offset = 0 if state is None else max(state.local_offset_s, state.remote_offset_s)
    if offset > limit:
        yield HealthFinding(
            code="CSN_OFFSET",
            severity=_by_skew(offset),
            servers=(store,),
            rid=reading.rid,
            detail=f"the CSN generator of {store} runs {offset} s ahead of its clock (nsState)",
            advice="A peer's clock was ahead, or its own went back, and all follow. It does not wear off, and"
            " adds up: find the server with SERVER_CLOCK_WRONG before it is a day, which ends sessions.",
            measured=float(offset),
            limit=limit,
        )


def _by_skew(seconds: float) -> Severity:
    return Severity.CRITICAL if seconds >= SKEW_MAX_S / 2 else Severity.WARNING


def _ahead(store: str, rid: int, csn: Csn, ahead_s: float, limit: float) -> HealthFinding:
    return HealthFinding(
        code="CSN_AHEAD",
        severity=_by_skew(ahead_s),
        servers=(store,),
        rid=rid,
        detail=f"{store} has made CSN {csn}, which is {ahead_s:.0f} s in the future",
        advice="Its clock is or was ahead: set it by NTP. All peers follow a greater CSN, and refuse sessions"
        " at a day.",
        measured=round(ahead_s, 3),
        limit=limit,
    )


def _generations(readings: Readings) -> Iterator[HealthFinding]:
    by_generation: dict[str, list[str]] = {}
    for store, reading in sorted(readings.items()):
        by_generation.setdefault(str(reading.ruv.generation or "none"), []).append(store)
    if len(by_generation) < 2:
        return
    most = max(by_generation, key=lambda each: (len(by_generation[each]), each))
    for generation, stores in by_generation.items():
        if generation != most:
            yield HealthFinding(
                code="GENERATIONS_DIFFER",
                severity=Severity.CRITICAL,
                servers=tuple(stores),
                detail=f"{_some(stores)} {'is' if len(stores) == 1 else 'are'} of generation {generation},"
                f" {_some(by_generation[most])} of {most}: nothing is exchanged between them",
                advice="Initialise the one that is wrong from a good one:"
                " `dsconf INSTANCE repl-agmt init --suffix SUFFIX AGREEMENT`.",
            )


def _restored(readings: Readings) -> Iterator[HealthFinding]:
    """A server whose own changes others have and it has not. Source: decision table, D14 and D15."""
    for store, reading in readings.items():
        own = reading.ruv.maxima.get(reading.rid)
        for other, seen in readings.items():
            theirs = seen.ruv.maxima.get(reading.rid)
            same = seen.ruv.generation == reading.ruv.generation
            if other == store or not same or theirs is None or reading.role is not Role.SUPPLIER:
                continue
            if own is None or own < theirs:
                yield HealthFinding(
                    code="SERVER_RESTORED",
                    severity=Severity.CRITICAL,
                    servers=(store, other),
                    rid=reading.rid,
                    detail=f"{store} ends at {own or 'nothing'} of its own RID {reading.rid}, and {other} has"
                    f" {theirs} of it: {store} was restored from a backup",
                    advice=f"Let nobody write to {store} until its peers have sent its own changes back; what"
                    " is written before that hides what is missing. Then `lethe ds389 lost`.",
                )
                break


def _twice(readings: Readings) -> Iterator[HealthFinding]:
    by_rid: dict[int, list[str]] = {}
    for store, reading in sorted(readings.items()):
        if reading.role is Role.SUPPLIER:
            by_rid.setdefault(reading.rid, []).append(store)
    for rid, stores in by_rid.items():
        if len({readings[store].identity for store in stores}) > 1:
            yield HealthFinding(
                code="RID_TWICE",
                severity=Severity.CRITICAL,
                servers=tuple(stores),
                rid=rid,
                detail=f"RID {rid} is that of {_some(stores)}: changes of one are taken for the other's",
                advice="Give one of them a RID that was never used, and initialise it anew.",
            )


def _dangling(readings: Readings, known: frozenset[int]) -> Iterator[HealthFinding]:
    there = known | {reading.rid for reading in readings.values()}
    seen_by: dict[int, list[str]] = {}
    for store, reading in sorted(readings.items()):
        for element in reading.ruv.elements:
            if element.rid not in there:
                seen_by.setdefault(element.rid, []).append(store)
    for rid, stores in sorted(seen_by.items()):
        yield HealthFinding(
            code="RID_DANGLING",
            severity=Severity.WARNING,
            servers=tuple(stores),
            rid=rid,
            detail=f"RID {rid} is in the RUV of {_some(stores)}, and no registered server has it",
            advice="Register the server if there is one. A server that is gone for good: `dsconf INSTANCE"
            f" repl-tasks cleanallruv --suffix SUFFIX --replica-id {rid}`.",
        )


def _missing(readings: Readings, edges: list[Edge]) -> Iterator[HealthFinding]:
    for store, sources in sorted(unreached(readings, edges).items()):
        if sources:
            yield HealthFinding(
                code="AGREEMENT_MISSING",
                severity=Severity.CRITICAL,
                servers=(store,),
                rid=readings[store].rid,
                detail=f"no way of enabled agreements leads to {store} from {_some(sorted(sources))}",
                advice="Add or enable an agreement: `dsconf INSTANCE repl-agmt create`, `repl-agmt enable`.",
            )


def _lags(readings: Readings, limits: Mapping[str, Limits], sight: Sight) -> Iterator[HealthFinding]:
    most = _usual_generation(readings)
    alike = {store: one for store, one in readings.items() if one.ruv.generation == most}
    for store, lags in sorted(rid_lags(alike).items()):
        for lag in lags:
            if lag.rid == readings[store].rid:
                continue  # of its own changes: SERVER_RESTORED
            found = _lag(store, lag, limits[store], is_moving=(store, lag.rid) in sight.moving)
            if found is not None:
                yield found
            yield from _short(store, lag, alike)


def _usual_generation(readings: Readings) -> Csn | None:
    all_ = [reading.ruv.generation for reading in readings.values()]
    return max(all_, key=lambda each: (all_.count(each), each or ""), default=None)


def judged_lag_s(lag: Lag, *, is_moving: bool) -> float:
    """By what a lag is judged: what it is at least, and at most where the server does not move."""
    if is_moving or lag.at_most_s is None:
        return lag.at_least_s
    return lag.at_most_s


def _lag(store: str, lag: Lag, limits: Limits, *, is_moving: bool) -> HealthFinding | None:
    seconds = judged_lag_s(lag, is_moving=is_moving)
    steps = ((Severity.CRITICAL, limits.lag_critical_s), (Severity.WARNING, limits.lag_warning_s))
    passed = [(severity, limit) for severity, limit in steps if limit and seconds > limit]
    if not passed:
        return None
    severity, limit = passed[0]
    return HealthFinding(
        code="RID_LAGS",
        severity=severity,
        servers=(store,),
        rid=lag.rid,
        detail=f"{store} has the changes of RID {lag.rid} up to {lag.consumer_csn or 'none'}, others up to"
        f" {lag.supplier_csn}: behind for {lag.at_least_s:.0f}"
        + ("" if lag.at_most_s is None else f" to {lag.at_most_s:.0f}")
        + " s",
        advice=f"`lethe ds389 topology --suffix SUFFIX` shows the agreements that lead to {store}, and their"
        " status.",
        measured=round(seconds, 3),
        limit=limit,
    )


def _short(store: str, lag: Lag, readings: Readings) -> Iterator[HealthFinding]:
    """Nobody keeps changes as long as this server has been behind."""
    ages = [
        reading.changelog_age_s
        for other, reading in readings.items()
        if other != store and reading.ruv.maxima.get(lag.rid) == lag.supplier_csn
    ]
    kept = [age for age in ages if age is not None]
    if not ages or len(kept) < len(ages) or lag.at_most_s is None or lag.at_most_s <= max(kept):
        return
    yield HealthFinding(
        code="CHANGELOG_SHORT",
        severity=Severity.WARNING,
        servers=(store,),
        rid=lag.rid,
        detail=f"{store} may have been behind in RID {lag.rid} for {lag.at_most_s:.0f} s, and changes stay in"
        f" the changelogs for {max(kept)} s: what it lacks may be gone",
        advice="Look whether the agreements still find their place (CHANGELOG_TRIMMED); else initialise it"
        " anew, and prove that nothing is missing: `lethe ds389 lost`.",
        measured=round(lag.at_most_s, 3),
        limit=float(max(kept)),
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
