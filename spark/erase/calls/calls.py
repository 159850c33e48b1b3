"""What hands are asked to do, and what they answer: frozen values that cross processes by pickle.

A call is one bounded piece of work at the files of one environment. Nobody who does a call waits, retries,
or asks for the time: a lock that is not free is an answer (`Refusal`), and whoever asked decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark.erase.calls.request import LogExtinction, PlanRequest
from spark.erase.reading.directory import Identity, Witness
from spark.erase.verified import FileToVerify, VerifiedFile


class Mode(StrEnum):
    """How the environment is shared with JE.

    CLOSED: JE's own lock bytes are held meanwhile. LIVE: none is; a JE process may be there, or come.
    """

    CLOSED = "CLOSED"
    LIVE = "LIVE"


class Step(StrEnum):
    """Where a round was."""

    LOCK = "LOCK"
    CHECK = "CHECK"
    TOUCH = "TOUCH"
    MARK = "MARK"
    OVERWRITE = "OVERWRITE"
    DONE = "DONE"


class RefusalCode(StrEnum):
    """Why a call was not done, or not to its end.

    The first group passes by itself, the second ends the file, the third ends the attempt.
    """

    STOPPED = "STOPPED"  # the stop counter has changed
    PROTECTED = "PROTECTED"
    FILE_LOCKED = "FILE_LOCKED"  # somebody else holds the byte of the file
    ENVIRONMENT_IN_USE = "ENVIRONMENT_IN_USE"
    READER_PRESENT = "READER_PRESENT"  # LIVE: a read-only process has the environment open
    LOG_MOVED = "LOG_MOVED"  # LIVE: a file vanished or changed while it was read; or see Witness: plan anew

    ALREADY_DELETED = "ALREADY_DELETED"
    FILE_REPLACED = "FILE_REPLACED"
    FILE_RESIZED = "FILE_RESIZED"
    HARD_LINKED = "HARD_LINKED"
    HEADER_CHANGED = "HEADER_CHANGED"
    FILE_TOUCHED = "FILE_TOUCHED"  # mtime changed between plan and our first write
    DISK_ERROR = "DISK_ERROR"
    UNPROVEN = "UNPROVEN"  # a failed fsync, or bytes that are not what they should be
    LOG_REFUSED = "LOG_REFUSED"  # `detail` begins with the code of LogRefused
    EPOCH_PASSED = "EPOCH_PASSED"  # the control file has another epoch
    CONTROL_FILE_INVALID = "CONTROL_FILE_INVALID"
    PERMISSION = "PERMISSION"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why, where, and for whose sake.

    Attributes:
        code: see RefusalCode.
        ref: what stands in the way: ids of protected ranges, a LogRefused's own code, an errno's name.
        file, offset: where, when it is known.
    """

    code: RefusalCode
    detail: str
    ref: str = ""
    file: str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """What a call has cost, in the units of the document's stats; bytes are real bytes."""

    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    write_bytes: int = 0
    fsyncs: int = 0
    fsync_s: tuple[float, ...] = ()

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(
            self.reads + other.reads,
            self.read_bytes + other.read_bytes,
            self.writes + other.writes,
            self.write_bytes + other.write_bytes,
            self.fsyncs + other.fsyncs,
            self.fsync_s + other.fsync_s,
        )


@dataclass(frozen=True, slots=True)
class LiveTerms:
    """What LIVE demands beyond CLOSED (facts je-live).

    Attributes:
        now_ms: the time by the caller's clock.
        backup_grace_ms: a backup marker (type 38) younger than this refuses.
        node_grace_ms: nodes only under a checkpoint that is older than a later one by this.
        backups_ms: begin and end of backups that went through Lethe; a marker from within one refuses
            nothing.
    """

    now_ms: int
    backup_grace_ms: int
    node_grace_ms: int
    backups_ms: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderTimesCall:
    """Read the creation times of files: at most `count` of them from number `first` on."""

    directory: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class HeaderTime:
    """One file: number, size in bytes, creation time in ms, names that share its bytes."""

    number: int
    size: int
    created_ms: int | None
    links: int


@dataclass(frozen=True, slots=True)
class HeaderTimesAnswer:
    """The files found, ascending; the last file of the log is among them."""

    files: tuple[HeaderTime, ...] = ()
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class PlanCall:
    """Plan an erasure. `live` is None in CLOSED mode."""

    directory: str
    request: PlanRequest
    live: LiveTerms | None = None


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """What is erased in one file, and what is not.

    Attributes:
        causes: cause -> what there is to say, where nothing of the file may be erased.
        entries: (plan.PLANNED) as an Arrow IPC stream with zstd; the entries to erase, ascending.
        entry_count: rows of `entries`.
        erased, kept: by reason and by cause: (entries, bytes of their items).
        reserved: JE has put the file aside for deletion; `barren`: nothing in it is live or vetoed.
        extinct: what is erased as EXTINCT, by the extinction's id: (entries, bytes of their items).
        in_use: offsets (four bytes each) of those entries among them that slots still name.
        after_checkpoint: (entries, bytes of their items) that a checkpoint by JE would free besides.
    """

    number: int
    identity: Identity
    created_ms: int | None
    causes: Mapping[str, str]
    entries: bytes
    entry_count: int
    erased: Mapping[str, tuple[int, int]]
    kept: Mapping[str, tuple[int, int]]
    reserved: bool
    barren: bool
    extinct: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    in_use: bytes = b""
    after_checkpoint: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan of a whole environment.

    Attributes:
        first_active: A of the safe rule, an LSN.
        vetoed: (LSN, reason) pairs, at most 1,000 of `vetoed_count`.
        vlsn: first, last, last_sync, first_file and the truncation that would free files, as documents show
            them; None in an environment that is not replicated.
        torn_at: file and offset of a torn tail.
        nodes_wait: LIVE: old nodes were left for later (progress rule).
        mode: the mode that the plan is good for.
        witness: must stand in the log whenever something of the plan is done.
        log_extinctions: those that the log itself has.
    """

    files: tuple[PlannedFile, ...] = ()
    first_active: int = 0
    checkpoint_lsn: int = 0
    vetoed: tuple[tuple[int, str], ...] = ()
    vetoed_count: int = 0
    missing_count: int = 0
    vlsn: Mapping[str, int | None] | None = None
    torn_at: tuple[str, int] | None = None
    nodes_wait: bool = False
    mode: Mode = Mode.CLOSED
    witness: Witness | None = None
    log_extinctions: tuple[LogExtinction, ...] = ()
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class PrepareCall:
    """Hash a file before its first write.

    Attributes:
        identity: as planned; mtime is compared unless `was_written`.
        entries: all planned entries of the file, as PlannedFile.entries.
        was_written: a round of ours has written to it since the plan.
    """

    directory: str
    number: int
    identity: Identity
    entries: bytes
    was_written: bool = False


@dataclass(frozen=True, slots=True)
class PrepareAnswer:
    """SHA-256 in hex of the file as it is, and as it will be once its planned entries are erased.

    The second one is the same before, between and after all rounds, if they change nothing but what is
    planned: it proves every byte.
    """

    sha256_now: str = ""
    sha256_expected: str = ""
    mtime_ns: int = 0
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class RoundCall:
    """Overwrite some entries of a file: touch (first round only), types, items, each with its fsync.

    Attributes:
        epoch: of the claim; the control file must have the same.
        identity: device, inode, size and links are compared; mtime only in the first round.
        entries: those of this round, as PlannedFile.entries.
        is_first: nothing of ours has been written to the file yet.
    """

    directory: str
    number: int
    mode: Mode
    epoch: int
    identity: Identity
    entries: bytes
    is_first: bool
    witness: Witness | None = None


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """What a round has done. With a refusal, `step` is where it stopped; nothing after it was written.

    In LIVE `witness` is a newer one that stood in the same log, for the rounds to come.
    """

    step: Step = Step.LOCK
    entries_done: int = 0
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None
    witness: Witness | None = None


@dataclass(frozen=True, slots=True)
class ProveCall:
    """Read a finished file again from the medium and compare.

    Attributes:
        identity: device, inode and size are compared.
        entries: all planned entries of the file.
    """

    directory: str
    number: int
    identity: Identity
    entries: bytes
    sha256_expected: str


@dataclass(frozen=True, slots=True)
class ProveAnswer:
    """What was found: proved only if the hash is the expected one and every planned entry is erased.

    Attributes:
        read_by: "O_DIRECT", or "DROPPED_PAGES" where the medium refuses that.
        entries_erased: planned entries with type 43 and nothing but zeros.
        mtime_ns, size: as they are now, for the digest that is shown.
    """

    is_proved: bool = False
    sha256_now: str = ""
    read_by: str = ""
    entries_erased: int = 0
    size: int = 0
    mtime_ns: int = 0
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class DeleteReservedCall:
    """CLOSED only: rename a barren reserved file to `.del` (unless that was begun), sync, unlink it."""

    directory: str
    number: int
    epoch: int
    identity: Identity
    witness: Witness | None = None
    was_begun: bool = False


@dataclass(frozen=True, slots=True)
class DeleteReservedAnswer:
    """Whether it is gone by our doing; ALREADY_DELETED is a refusal."""

    deleted: bool = False
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class VerifyCall:
    """Read a whole environment again; nothing is written and no lock is taken."""

    directory: str
    files: tuple[FileToVerify, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyAnswer:
    """What was found.

    Attributes:
        reached: LSNs of erased entries that a live slot, or the tail of the log, leads to.
        unerased: LSNs of planned entries that are not erased.
        missing_count: LSNs that slots name and the log has not: expired records whose file was cleaned, or
            records of a file that was lost; `missing_in`: how many in each file.
        moved: the log was written meanwhile; what was read is a beginning of it.
    """

    files: tuple[VerifiedFile, ...] = ()
    first_active: int = 0
    checkpoint_lsn: int = 0
    reached: tuple[int, ...] = ()
    reached_count: int = 0
    unerased: tuple[int, ...] = ()
    unerased_count: int = 0
    missing_count: int = 0
    missing_in: Mapping[int, int] = field(default_factory=dict)
    moved: bool = False
    costs: Costs = field(default_factory=Costs)
    refusal: Refusal | None = None
