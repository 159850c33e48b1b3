"""The replicas of the wire model, each a real SQLite file, and an oracle that knows what they must hold.

The oracle is a plain log of what writers were answered and what peers were shown. It shares no code with the
replicas but the reading of their tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark.formats.csn import Csn
from spark.replication.errors import ReplicaNotOnline, ReplicaWasRestored
from spark.replication.records import ReplicaStatus, local_schema
from spark.replication.replica import local_write, replica
from spark.targets.connection import Connection, SessionLimits, Target, connect

START_S = 1_800_000_000
DATABASE = b"db"
GENERATION = str(Csn.of(START_S - 100, 0, 1))
WAITS = SessionLimits(lock_timeout_ms=200)
_ONCE = (
    "create table model_inserts (csn text primary key)",
    "create trigger model_insert after insert on replica_changelog"
    " begin insert into model_inserts values (new.csn); end",
)


class Violation(AssertionError):
    """A promise was broken; `kind` names it."""

    def __init__(self, kind: str, detail: object = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass
class Oracle:
    """What was written, in which CSN.

    Attributes:
        written: what each CSN stands for, in the line of time that counts.
        shown: CSNs that a writer was answered with, or that the service has noted before it showed them.
        answered: those of answered requests.
        given_up: changes that an admin has let go, by recover or by a TOTAL that discards.
        lines: files were put back, or changes discarded: a replica's changes may have two lines of time.
    """

    written: dict[Csn, tuple[bytes, bytes | None]] = field(default_factory=dict)
    shown: set[Csn] = field(default_factory=set)
    answered: set[Csn] = field(default_factory=set)
    given_up: set[Csn] = field(default_factory=set)
    lines: bool = False

    def committed(self, csn: Csn, key: bytes, value: bytes | None) -> None:
        """A change is in a changelog."""
        if csn in self.shown:
            raise Violation("CSN_REUSED", csn)
        self.written[csn] = (key, value)

    def noted(self, rid: int, upto: str | None) -> None:
        """The service remembers own changes up to here: others may hear of them."""
        self.shown.update(csn for csn in self.written if csn.rid == rid and csn <= (upto or ""))

    def gone(self, rid: int, after: str | None) -> None:
        """A target was put back: what nobody had heard of never happened."""
        for csn in [each for each in self.written if each.rid == rid and each > (after or "")]:
            if csn not in self.shown:
                del self.written[csn]

    def give_up(self, csns: set[Csn]) -> None:
        """An admin lets changes go."""
        self.given_up |= csns
        self.lines = self.lines or bool(csns)

    @property
    def promised(self) -> set[Csn]:
        """What every replica must have whose RUV names it."""
        return self.shown - self.given_up


@dataclass
class Pending:
    """A request of a writer before it is answered."""

    rows: list[tuple[bytes, bytes | None]]
    key: local_write.RequestKey | None
    expected: replica.Expected | None = None


@dataclass
class Site:
    """A replica and what the service in front of it remembers."""

    rid: int
    path: Path
    oracle: Oracle
    generation: str | None
    clock_s: int = START_S
    memory: tuple[str, str | None] | None = None
    backups: list[bytes] = field(default_factory=list)
    conn: Connection = field(init=False)
    incarnations: int = 0
    looked_at: tuple[int, int] = (0, 0)
    copies: int = 0
    """How often a total initialisation has begun here."""
    copied: dict[int, str] = field(default_factory=dict)
    """Of a total initialisation, what was never logged here."""

    @property
    def name(self) -> str:
        return f"site-{self.rid}"

    def create(self) -> None:
        """A new file with its layout."""
        self.path.write_bytes(_template(self.rid, self.generation))
        self.start()

    def start(self) -> None:
        """The service comes up: layout, and whether the target was put back."""
        target = Target(f"sqlite:///{self.path}", table_prefix="replica_")
        self.conn = connect(target, application_name="wire-model", limits=WAITS)
        found = replica.find_replica(self.conn)
        assert found is not None, "the layout is there"
        declared = self.generation if found.generation is None else None
        replica.ensure_layout(self.conn, rid=self.rid, generation=declared, incarnation="inc_other")
        self.compare()

    def stop(self) -> None:
        """Everything in memory is lost."""
        self.conn.close()

    def compare(self) -> None:
        """What a service does at a first use and before each acquire."""
        with suppress(ReplicaWasRestored):
            replica.check_restored(self.conn, self.remember())

    def remember(self) -> replica.Expected:
        """What the service knows; a replica that nobody was told of is taken as it is."""
        if self.memory is None or self.memory[1] is None:
            seen = replica.snapshot(self.conn)
            own = seen.vectors.ruv.get(self.rid)
            self.memory = (seen.replica.incarnation, own)
            self.oracle.noted(self.rid, own)
        return replica.Expected(*self.memory)

    def note_own(self, own_max: str | None) -> None:
        """Before anybody is told of own changes."""
        assert self.memory is not None
        if own_max is not None and own_max > (self.memory[1] or ""):
            self.memory = (self.memory[0], own_max)
        self.oracle.noted(self.rid, own_max)

    def adopt(self, incarnation: str, own_max: str | None) -> None:
        """After a total initialisation, or an accepted loss."""
        self.memory = (incarnation, own_max)

    def new_incarnation(self) -> str:
        self.incarnations += 1
        return f"inc_{self.rid}_{self.incarnations}"

    def write(self, request: Pending, *, dies: bool) -> str:
        """A local write; what became of it. `dies`: the service ends before it has noted the commit."""
        batch = pa.RecordBatch.from_pylist(
            [{"database": DATABASE, "key": key, "value": value} for key, value in request.rows],
            schema=local_schema(),
        )
        expected = request.expected or self.remember()
        try:
            written = local_write.write_group(
                self.conn,
                [local_write.LocalRequest(batch, request.key)],
                now_s=self.clock_s,
                expected=expected,
            )
        except ReplicaWasRestored:
            return "RESTORED"
        except ReplicaNotOnline as error:
            return error.status.value
        except Exception as error:
            if type(error).__name__ in ("ClockSkewExceeded", "InjectedFault"):
                return "REFUSED"
            raise
        [answer] = written.requests
        assert isinstance(answer, local_write.RequestWritten), answer
        csns = self._csns(answer.first_csn, answer.last_csn)
        if not answer.replayed:
            if len(csns) != len(request.rows):
                raise Violation("WRITE_INCOMPLETE", (answer, csns))
            for csn, (key, value) in zip(csns, request.rows, strict=True):
                self.oracle.committed(csn, key, value)
        if dies:
            return "UNANSWERED"
        self.note_own(written.own_max)
        self.oracle.answered.update(csns)
        return "ANSWERED"

    def _csns(self, first: str | None, last: str | None) -> list[Csn]:
        rows = self.conn.execute(
            "select csn from replica_changelog"
            " where rid = :rid and csn between :first and :last order by csn",
            {"rid": self.rid, "first": first, "last": last},
        )
        return [Csn(text) for (text,) in rows]

    def back_up(self) -> None:
        """Keep a copy of the file as it is."""
        self.conn.execute("pragma wal_checkpoint(truncate)")
        self.backups.append(self.path.read_bytes())

    def put_back(self, content: bytes) -> None:
        """The file is replaced by an older copy of it, while nothing runs."""
        self.stop()
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}{suffix}")
        self.path.write_bytes(content)
        target = Target(f"sqlite:///{self.path}", table_prefix="replica_")
        with connect(target, application_name="wire-model") as conn:
            own = replica.read_vectors(conn).ruv.get(self.rid)
        self.oracle.gone(self.rid, own)
        self.oracle.lines = True
        self.start()

    def has_changed(self) -> bool:
        """Whether a row was written since this was asked last."""
        raw = self.conn._session._raw
        at = (id(self.conn), raw.total_changes)
        is_new, self.looked_at = at != self.looked_at, at
        return is_new

    def state(self) -> replica.Snapshot:
        return replica.snapshot(self.conn)

    def held(self) -> Held:
        """What the tables hold, read by plain statements."""
        ruv = {
            row[0]: row[1:]
            for row in self.conn.execute("select rid, max_csn, purged_csn from replica_ruv")
            if row[1] is not None
        }
        log: dict[int, list[tuple[str, str | None]]] = {}
        for rid, csn, prev in self.conn.execute(
            "select rid, csn, prev from replica_changelog order by rid, csn"
        ):
            log.setdefault(rid, []).append((csn, prev))
        rows = self.conn.execute("select key, value, csn, is_tombstone from replica_entries")
        [(status, generation)] = self.conn.execute("select status, generation from replica_replica")
        entries = {key: (csn, value, bool(gone)) for key, value, csn, gone in rows}
        return Held(status, generation, ruv, log, entries)


@dataclass
class Held:
    """A replica's tables: RUV as (max, purged) by RID, (csn, prev) by RID, entries by key."""

    status: str
    generation: str | None
    ruv: Mapping[int, tuple[str, str | None]]
    log: Mapping[int, list[tuple[str, str | None]]]
    entries: Mapping[bytes, tuple[str, bytes | None, bool]]

    @property
    def tops(self) -> dict[int, str]:
        """The RUV."""
        return {rid: greatest for rid, (greatest, _) in self.ruv.items()}


def check(site: Site) -> None:
    """Everything that holds at every moment at one replica.

    Raises: Violation.
    """
    held = site.held()
    if held.status == ReplicaStatus.INITIALIZING and held.generation is None:
        return  # half a copy promises nothing
    _check_log(site, held)
    for csn in site.oracle.promised:
        greatest, purged = held.ruv.get(csn.rid, ("", None))
        if csn > greatest:
            continue
        if csn > (purged or "") and not any(csn == each for each, _ in held.log.get(csn.rid, ())):
            raise Violation("RUV_NOT_HONEST", f"{site.name} has no {csn}, its RUV says {greatest}")
        key, _ = site.oracle.written[csn]
        if key not in held.entries or held.entries[key][0] < csn:
            raise Violation("ENTRY_LOST", f"{site.name}: {key!r} lacks {csn}, its RUV says {greatest}")
    for key, (csn, value, is_gone) in held.entries.items():
        wanted = site.oracle.written.get(Csn(csn))
        if (wanted is not None and wanted != (key, value)) or is_gone is not (value is None):
            raise Violation("ENTRY_WRONG", f"{site.name}: {key!r} {csn}")


def _check_log(site: Site, held: Held) -> None:
    """The links of each replica id: from the purge point to the RUV without a hole."""
    for rid, rows in held.log.items():
        if rid not in held.ruv:
            raise Violation("RUV_MISSING", f"{site.name}: {rid}")
        greatest, purged = held.ruv[rid]
        before = purged
        for csn, prev in rows:
            if prev != before or csn <= (before or ""):
                raise Violation("PREV_BROKEN", f"{site.name}: {csn} follows {prev}, not {before}")
            before = csn
        if before != greatest:
            raise Violation("RUV_AND_LOG_DIFFER", f"{site.name}: {before}, the RUV says {greatest}")
    for rid, (greatest, purged) in held.ruv.items():
        if rid not in held.log and purged != greatest:
            raise Violation(
                "RUV_AND_LOG_DIFFER", f"{site.name}: no changes of {rid}, the RUV says {greatest}"
            )


@cache
def _template(rid: int, generation: str | None) -> bytes:
    """The bytes of a new replica's file, which also counts what is ever inserted."""
    import tempfile

    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        path = Path(folder) / "template.db"
        target = Target(f"sqlite:///{path}", table_prefix="replica_")
        replica.create_file(target)
        with connect(target, application_name="wire-model") as conn:
            replica.ensure_layout(conn, rid=rid, generation=generation, incarnation=f"inc_{rid}_0")
            for statement in _ONCE:
                conn.execute(statement)
        return path.read_bytes()


def fast_folder() -> str | None:
    """Where files cost no disk; None: the usual place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


Clock = Callable[[], int]
Facts = dict[str, Any]
