"""The awkward rows that a plan warns of: what each is, and the condition that finds it in a chunk.

A condition is read on one chunk of ids at a time: `d` with `x` (the events of each data id), `x` (the events
of each batch id) or `b`. Source: facts/symmetricds-purge, sections 2, 4, 6 and 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from spark.formats.symmetricds import KNOWN_STATUSES, UNROUTED_NODE
from spark.purge.statements import Statements

SAMPLE_MAX = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of awkward row; `detail` says what the purge does with it."""

    code: str
    condition: str
    detail: str


@dataclass(slots=True)
class Found:
    """How many rows of a kind were met so far, and the first ids."""

    table: str
    code: str
    detail: str
    count: int = 0
    sample: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """A fact that somebody should know before the purge runs; `sample`: at most 10 ids, or keys as texts."""

    code: str
    table: str
    count: int
    sample: tuple[int | str, ...]
    detail: str


def warnings_of(found: Sequence[Found]) -> tuple[PlanWarning, ...]:
    """The kinds of awkward rows that there are."""
    return tuple(
        PlanWarning(item.code, item.table, item.count, tuple(item.sample), item.detail)
        for item in found
        if item.count
    )


def data_findings(statements: Statements) -> tuple[Finding, ...]:
    """On `sym_data d` left joined with its events `x`."""
    old = statements.old("d")
    return (
        Finding("DATA_TIME_NULL", "d.create_time is null", "create_time is NULL: never removed"),
        Finding(
            "DATA_TIME_IN_FUTURE", "d.create_time > :now", "captured after the target's clock: check clocks"
        ),
        Finding(
            "DATA_UNROUTED", f"{old} and x.data_id is null", "old, but routed to nobody yet: never removed"
        ),
        Finding(
            "DATA_PROTECTED",
            f"{old} and x.protected = 1",
            "old, but in a batch that is not delivered: stays until it is",
        ),
        Finding(
            "DATA_LEFT_STRANDED",
            f"({old}) is not true and x.kept = 0",
            "stays for its time, but loses all its events: no later purge of this kind can remove it",
        ),
    )


def event_findings(statements: Statements) -> tuple[Finding, ...]:
    """On the events `x` of each batch id; samples are batch ids."""
    batch = f"select 1 from {statements.names.outgoing_batch} b where b.batch_id = x.batch_id"
    return (
        Finding(
            "EVENT_WITHOUT_BATCH",
            f"not exists ({batch})",
            "no such batch: protects no data, and is removed inside the range of batch ids",
        ),
    )


def batch_findings(statements: Statements) -> tuple[Finding, ...]:
    """On `sym_outgoing_batch b`; samples are batch ids."""
    known = ", ".join(f"'{status}'" for status in KNOWN_STATUSES)
    inside = "b.batch_id between :blo and :bhi"
    delivered = statements.delivered("b")
    null_status = (
        "status is NULL: protects its data and events because of `strict`"
        if statements.strict
        else "status is NULL: does not protect its data and events (`strict` would)"
    )
    return (
        Finding(
            "BATCH_TIME_NULL", "b.create_time is null", "create_time is NULL: does not widen the range of ids"
        ),
        Finding(
            "BATCH_TIME_IN_FUTURE", "b.create_time > :now", "made after the target's clock: check clocks"
        ),
        Finding("BATCH_STATUS_NULL", "b.status is null", null_status),
        Finding(
            "BATCH_STATUS_UNKNOWN", f"b.status not in ({known})", "unknown status: counts as not delivered"
        ),
        Finding(
            "BATCH_IGNORED",
            f"b.status = 'IG' and {inside}",
            "ignored batches count as delivered in SymmetricDS's SQL; SymmetricDS 3.x itself keeps them",
        ),
        Finding(
            "BATCH_YOUNGER_IN_RANGE",
            f"{inside} and {delivered} and {statements.young_all_the_same('b')}",
            "not older than the cut-off, but between ids that are: SymmetricDS's SQL removes it and its"
            " events",
        ),
        Finding(
            "BATCH_COMMON_HELD",
            f"{inside} and {delivered} and {shared_with_protecting(statements)}",
            "delivered to this node, but another node of the same batch waits: stays with its events",
        ),
        Finding(
            "BATCH_OF_DISABLED_NODE",
            f"({statements.stranded('b')}) is true",
            "its node is disabled or unknown: marked OK first, so this backlog is lost"
            if statements.as_if_marked
            else "its node is disabled or unknown: protects its data for as long as it stays so",
        ),
        Finding(
            "BATCH_OF_UNROUTED_NODE",
            f"b.node_id = '{UNROUTED_NODE}' and b.status != 'OK'",
            "rows routed to nobody, in a batch that is not OK; node -1 counts as unknown",
        ),
    )


def shared_with_protecting(statements: Statements) -> str:
    """True for a batch `b` whose id has a row that protects, and events."""
    names = statements.names
    return (
        f"exists (select 1 from {names.outgoing_batch} p where p.batch_id = b.batch_id"
        f" and {statements.keeps('p')})"
        f" and exists (select 1 from {names.data_event} e where e.batch_id = b.batch_id)"
    )
