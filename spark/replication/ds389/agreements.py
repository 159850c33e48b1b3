"""What is wrong with the agreements, by the status that their servers tell of them. Pure.

Source: facts/replication-session, sections 5, 6 and 13: busy and transient are amber, all else is red.
"""

from collections.abc import Iterator
from typing import Final

from spark.replication.ds389.records import Edge, HealthFinding, Severity

BUSY: Final = 1
TRANSIENT: Final = 18
PURGED: Final = frozenset({7, 15})
"""Below the purge point; the changelog cannot be read."""


def judge_agreements(edges: list[Edge]) -> Iterator[HealthFinding]:
    """Each agreement by itself."""
    for edge in edges:
        yield from _agreement(edge)


def _agreement(edge: Edge) -> Iterator[HealthFinding]:
    one, who = edge.agreement, f"agreement {edge.agreement.name} of {edge.supplier}"
    if edge.consumer is None:
        yield _finding(
            edge,
            "AGREEMENT_UNKNOWN",
            Severity.WARNING,
            f"{who} leads to {one.host}:{one.port}, and no registered server is that",
            "Register it: `lethe store add STORE URL --kind DS389`; or remove the agreement of a server that"
            " is gone.",
        )
    if not one.is_enabled:
        yield _finding(
            edge,
            "AGREEMENT_OFF",
            Severity.WARNING,
            f"{who} is disabled: it sends nothing",
            f"`dsconf INSTANCE repl-agmt enable --suffix SUFFIX {one.name}`, unless that is meant so.",
        )
    else:
        yield from _last_sessions(edge, who)


def _last_sessions(edge: Edge, who: str) -> Iterator[HealthFinding]:
    one = edge.agreement
    if one.init_state == "red":
        yield _finding(
            edge,
            "INIT_FAILED",
            Severity.CRITICAL,
            f"the total update by {who} has failed: {one.init_status}",
            "The consumer may be empty. Look into its error log, and initialise it again.",
        )
    if _is_trimmed(edge):
        yield _finding(
            edge,
            "CHANGELOG_TRIMMED",
            Severity.CRITICAL,
            f"{who} does not find in its changelog what the consumer lacks: {one.status}",
            "The changes were trimmed; 389 tries again for ever. Initialise the consumer anew"
            f" (`dsconf INSTANCE repl-agmt init --suffix SUFFIX {one.name}`), from a server that has all.",
        )
    elif one.state == "red":
        yield _finding(
            edge,
            "AGREEMENT_FAILED",
            Severity.CRITICAL,
            f"{who} has failed: {one.status}",
            "Look at the consumer and its error log. After a fatal error the agreement goes on only when it"
            f" is changed: `dsconf INSTANCE repl-agmt poke --suffix SUFFIX {one.name}`.",
        )
    elif one.state == "amber" and one.repl_rc != BUSY:
        yield _finding(
            edge,
            "AGREEMENT_WAITS",
            Severity.WARNING,
            f"{who} tries again and again: {one.status}",
            "It goes on by itself when the cause is gone: a consumer that is away, or its credentials.",
        )


def _is_trimmed(edge: Edge) -> bool:
    """389 tells a missing anchor as a transient warning; a consumer that has everything lacks none."""
    if edge.agreement.repl_rc in PURGED:
        return True
    return edge.agreement.repl_rc == TRANSIENT and bool(edge.lags)


def _finding(edge: Edge, code: str, severity: Severity, detail: str, advice: str) -> HealthFinding:
    about = (edge.supplier,) if edge.consumer is None else (edge.supplier, edge.consumer)
    return HealthFinding(
        code=code,
        severity=severity,
        servers=about,
        agreement=edge.agreement.name,
        detail=detail,
        advice=advice,
    )
