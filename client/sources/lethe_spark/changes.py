"""`lethe_changes`: the changelog of a REPLICA store, as a table and as a stream.

The offset of the stream is the replica's RUV: of each replica id the newest CSN that was read, with the
generation and incarnation of the replica. Rules:
- a partition is one replica id, behind a CSN and up to another: read twice, it has the same records;
- a stream that would miss records, because they were trimmed, or because the replica was made anew or put
  back, ends with an error; it never goes on with a gap.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lethe_client.replication import ReplicaVectors
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from lethe_spark.options import Options
from lethe_spark.service import SERVICE_OPTIONS, ReadService
from spark.worker import keep_modules

SCHEMA: Final = (
    "rid int, csn string, prev string, kind string, database binary, key binary, payload binary, "
    "logged_at timestamp"
)
OPTIONS: Final = (*SERVICE_OPTIONS, "store", "rids", "starting")
EMPTY: Final = "EMPTY"
RID_MAX: Final = 65_534
STARTING: Final = ("earliest", "latest")


class ChangesMissing(Exception):
    """Records that are asked for are not there any more; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which records of which replica are asked for."""

    service: ReadService
    store: str
    rids: tuple[int, ...] | None
    starting: str

    def vectors(self) -> ReplicaVectors:
        """Where the replica stands; one that nobody has written to has an empty RUV. Raises: LetheError."""
        with self.service.connect() as lethe:
            found = lethe.replication.vectors(self.store)
        return replace(found, ruv={}) if found.ruv is None and found.status == EMPTY else found

    def of(self, vector: Mapping[str, Any] | None) -> dict[str, str]:
        """Those replica ids of a vector that are asked for."""
        found = {str(rid): str(csn) for rid, csn in (vector or {}).items()}
        return {rid: csn for rid, csn in found.items() if self.rids is None or int(rid) in self.rids}


def asked(given: Mapping[str, str]) -> Asked:
    """What options ask for. Raises: OptionInvalid."""
    options = Options("lethe_changes", given)
    options.only(OPTIONS)
    return Asked(
        ReadService(options),
        options.required("store", "the name of a REPLICA store"),
        options.numbers("rids", least=1, most=RID_MAX),
        options.choice("starting", STARTING, default="earliest"),
    )


class ChangesSource(DataSource):
    """`lethe_changes`: a row for each record of the changelog that is still there.

    Options: `store`; `url` and `token_file`, or LETHE_URL and LETHE_TOKEN of each process; `ca_file`; `rids`:
    only these replica ids, between commas; `starting` of a new stream: earliest (default) or latest.
    """

    @classmethod
    def name(cls) -> str:
        return "lethe_changes"

    def schema(self) -> str:
        asked(self.options)
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return ChangesReader(asked(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        return ChangesStream(asked(self.options))


@dataclass(frozen=True)
class Window(InputPartition):
    """The records of one replica id behind a CSN (None: from the first on), up to and with another."""

    rid: int
    after: str | None
    upto: str
    incarnation: str


class ChangesReader(DataSourceReader):
    """Reads the changelog as it was when the frame was planned."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """One for each replica id.

        Raises: ChangesMissing: the replica has no RUV, or half a copy. LetheError.
        """
        found = self._asked.vectors()
        if found.ruv is None:
            raise ChangesMissing(
                f"the replica {self._asked.store} is {found.status}: it has no RUV, or half a copy; "
                "read it when it is ONLINE"
            )
        purged = self._asked.of(found.purged)
        return [
            Window(int(rid), purged.get(rid), csn, found.incarnation)
            for rid, csn in sorted(self._asked.of(found.ruv).items(), key=lambda each: int(each[0]))
            if csn > purged.get(rid, "")
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The records of one replica id. Raises: ChangesMissing, LetheError."""
        return read_window(self._asked, partition)


class ChangesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from one RUV to the next."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._available: ReplicaVectors | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Take the RUV of this moment as the end. Raises: LetheError.

        A source without this method gets one batch of Spark, and that is the one which a run before it left
        behind, where there is one.
        """
        self._available = self._asked.vectors()

    def _found(self) -> ReplicaVectors:
        return self._asked.vectors() if self._available is None else self._available

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Where a new stream begins: behind what was trimmed, or at the end. Raises: ChangesMissing."""
        found = self._found()
        if found.ruv is None:
            raise ChangesMissing(
                f"the replica {self._asked.store} is {found.status}; start the stream when it is ONLINE"
            )
        return _offset(
            found, self._asked.of(found.purged if self._asked.starting == "earliest" else found.ruv)
        )

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The RUV as it is now; the start where there is none at the moment. Raises: ChangesMissing."""
        found = self._found()
        if found.ruv is None:
            return start
        _require_same(self._asked.store, start, found)
        now = self._asked.of(found.ruv)
        for rid, csn in start["ruv"].items():
            if self._asked.rids is not None and int(rid) not in self._asked.rids:
                raise ChangesMissing(
                    f"the stream has read replica {rid}, which the option 'rids' does not name now; name it "
                    "again, or start with a new checkpoint"
                )
            if now.get(rid, "") < csn:
                raise ChangesMissing(
                    f"the replica {self._asked.store} is at {now.get(rid)} of replica {rid}, and {csn} was "
                    "read: it was restored from a backup; start with a new checkpoint"
                )
        return _offset(found, now)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One for each replica id with new records."""
        before: Mapping[str, str] = start["ruv"]
        return [
            Window(int(rid), before.get(rid), csn, end["incarnation"])
            for rid, csn in sorted(end["ruv"].items(), key=lambda each: int(each[0]))
            if csn != before.get(rid)
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The records of one replica id. Raises: ChangesMissing, LetheError."""
        return read_window(self._asked, partition)


def _offset(found: ReplicaVectors, ruv: dict[str, str]) -> dict[str, Any]:
    return {"generation": found.generation, "incarnation": found.incarnation, "ruv": ruv}


def _require_same(store: str, start: Mapping[str, Any], found: ReplicaVectors) -> None:
    """Refuse a replica that is not the one that was read, but another under its name."""
    before = (start["generation"], start["incarnation"])
    if start["ruv"] and before != (found.generation, found.incarnation):
        raise ChangesMissing(
            f"the replica {store} was made anew or restored since (generation {found.generation}, "
            f"incarnation {found.incarnation}); start with a new checkpoint"
        )


def read_window(asked: Asked, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
    """The records of a window, in the order of their CSNs.

    What was trimmed meanwhile is looked for behind the last record: until then they count for nothing. A
    replica that was restored gets its records back one by one: it must have all before the first is read.
    Where its metadata was restored with it nobody knows of that, and it writes on from where it was: each
    record must name the one that was read before it, from the window's begin to its end.
    Raises: ChangesMissing, LetheError.
    """
    if not isinstance(partition, Window):  # a frame without partitions gets one of Spark's own
        return
    keep_modules()
    with asked.service.connect() as lethe:
        _require_reached(asked.store, partition, lethe.replication.vectors(asked.store))
        last = partition.after
        for record in lethe.changes.list(asked.store, rid=partition.rid, after=partition.after):
            if record.csn > partition.upto:
                break
            if last is not None and record.prev != last:
                break
            last = record.csn
            yield (
                record.rid,
                record.csn,
                record.prev,
                record.kind,
                record.database,
                record.key,
                record.payload,
                record.logged_at,
            )
        _require_whole(asked.store, partition, lethe.replication.vectors(asked.store))
        _require_history(asked.store, partition, last)


def _require_reached(store: str, window: Window, found: ReplicaVectors) -> None:
    """Refuse a replica that lacks the newest record of a window, which it had when the window was made."""
    reached = (found.ruv or {}).get(str(window.rid))
    if found.incarnation == window.incarnation and str(reached or "") < window.upto:
        raise ChangesMissing(
            f"the replica {store} ({found.status}) is at {reached} of replica {window.rid}, and had records "
            f"up to {window.upto}: it was restored; read again, or start the stream again, when it has them"
        )


def _require_history(store: str, window: Window, last: str | None) -> None:
    """Refuse a window whose records do not lead, each to the next, from its begin to its end."""
    if last is not None and last != window.upto:
        raise ChangesMissing(
            f"the replica {store} has another history of replica {window.rid} behind {last} than was read: "
            "it was restored from a backup, and written to since; start with a new checkpoint"
        )


def _require_whole(store: str, window: Window, found: ReplicaVectors) -> None:
    _require_reached(store, window, found)
    purged = str(found.purged.get(str(window.rid), ""))
    if purged > (window.after or ""):
        raise ChangesMissing(
            f"records of replica {window.rid} up to {purged} were trimmed from {store}, and those behind "
            f"{window.after or 'its first'} are asked for; keep the changelog longer, and start anew: "
            "a table is read again, a stream begins with a new checkpoint"
        )
    if found.incarnation != window.incarnation:
        raise ChangesMissing(f"the replica {store} was made anew while it was read; start anew")
