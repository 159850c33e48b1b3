"""One question of an audit, answered over one connection: counts and checksums, and the vectors around them.

A job's own connection, a request of a peer and a worker of an engine all answer by these functions.

Rules:
- the vectors are read before the first row and after the last one, by whoever reads the rows, over the same
  connection: whether a piece was quiet never depends on another piece;
- nothing is written;
- what the replica refuses is a value for a worker, whose errors would be taken for a mistake in a program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from spark.formats.csn import Csn
from spark.formats.part import Part
from spark.replication.errors import ReplicationRefused
from spark.replication.records import ReplicaStatus, Snapshot
from spark.replication.replica.digest import Digest, EntryKey, ShouldStop, digest_changes, digest_entries
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import ReplicaInitializing
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.work import UnitWork


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to count and hash; picklable.

    Attributes:
        ranges: changes of replica ids as (after, upto); `after` None: from the first.
        entries: as (after, upto); None: not at all.
        buried: tombstones up to this CSN count for nothing: one side has purged them.
    """

    ranges: Mapping[int, tuple[Csn | None, Csn]]
    entries: tuple[EntryKey, EntryKey | None] | None = None
    buried: str | None = None


@dataclass(frozen=True, slots=True)
class Digested:
    """The answer.

    Attributes:
        changes: of each range.
        entries: None: they were not wanted.
        ruv: before the reading.
        behind: replica and vectors after it.
    """

    changes: Mapping[int, Digest]
    entries: Digest | None
    ruv: Mapping[int, Csn]
    behind: Snapshot


@dataclass(frozen=True, slots=True)
class DigestUnit:
    """A piece for a worker."""

    number: int
    wanted: Wanted

    @property
    def unit_id(self) -> str:
        """No other piece of the audit has it."""
        return f"piece-{self.number}"


Answered = Digested | ReplicationRefused


def digest_piece(
    conn: Connection, wanted: Wanted, *, part: Part | None = None, should_stop: ShouldStop = lambda: False
) -> Digested:
    """Count and hash, and look at the vectors before and after.

    Args:
        part: as a consumer has it that holds only these keys; None: all that is here.
    Raises: DigestStopped; ReplicaInitializing, ReplicaMissing, LayoutUnknown, ExtinctionUnreadable;
        TargetError.
    """
    before = _readable(conn)
    changes = {
        rid: digest_changes(conn, rid, after=after, upto=upto, should_stop=should_stop, part=part)
        for rid, (after, upto) in wanted.ranges.items()
    }
    entries = None
    if wanted.entries is not None:
        after, upto = wanted.entries
        entries = digest_entries(
            conn, after=after, upto=upto, should_stop=should_stop, part=part, buried=wanted.buried
        )
    # A total initialisation may have emptied it meanwhile.
    return Digested(changes, entries, before.vectors.ruv, _readable(conn))


def run_unit(
    conn: Connection, unit: DigestUnit, *, part: Part | None, should_stop: ShouldStop = lambda: False
) -> Answered:
    """Answer one piece as a worker, which stops by the cancel of its connection.

    Raises: DigestStopped; TargetError.
    """
    try:
        return digest_piece(conn, unit.wanted, part=part, should_stop=should_stop)
    except ReplicationRefused as refused:
        return refused


def digest_work(
    target: Target, *, limits: SessionLimits, application_name: str, part: Part | None
) -> UnitWork[DigestUnit, Answered]:
    """What a worker does with pieces; picklable."""
    return UnitWork(
        target=target, limits=limits, application_name=application_name, run=partial(run_unit, part=part)
    )


def _readable(conn: Connection) -> Snapshot:
    found = snapshot(conn)
    if found.replica.status is ReplicaStatus.INITIALIZING:
        raise ReplicaInitializing("a total initialisation is under way: what is there is not complete")
    return found
