"""The file of a replica's snapshot: a tar that any tar reads, of Parquet files and a signed manifest.

    extinctions.parquet          record_schema(), first, where there are any
    entries-000002.parquet ...   entry_schema(), by ascending (database, key) over all files
    manifest.json                last: RUV, generation and history; SHA-256 of each file; signature

The signature is by the key of the replica, over the manifest without it. A file that was cut short has no
manifest; one that was changed does not match it.
"""

import errno
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Self

import pyarrow as pa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from spark.formats.changes.checks import csn_column, rids_of
from spark.formats.csn import RID_MAX, RID_MIN, Csn
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES, VALUE_MAX_BYTES
from spark.formats.ruv import parse_rid
from spark.replication.errors import ReplicationRefused
from spark.replication.proofs.values import SIGNATURE_BYTES, History
from spark.replication.records import RecordKind, entry_schema, record_schema

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
EXTINCTIONS: Final = "extinctions.parquet"
MANIFEST_MAX_BYTES: Final = 64 * 1024 * 1024
PART_MAX_BYTES: Final = 256 * 1024 * 1024
"""Larger than any part that is written: 16 MiB of entries, or one entry and its neighbours."""
ROWS_MAX_BYTES: Final = 512 * 1024 * 1024
"""Of the rows of a part: a small file may stand for many more bytes than any replica writes."""
_READ_ROWS: Final = 64
_SIGNED: Final = b"lethe snapshot 1\0"


class SnapshotDamaged(ReplicationRefused):
    """The file is no snapshot, or not the one that its replica has signed."""

    code: ClassVar[str] = "SNAPSHOT_DAMAGED"


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the tar."""

    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is of.

    Attributes:
        ruv: every change up to it is in the entries, and none above it.
        history: the replica's key, its heads at that RUV, the keys that it knows.
        taken_at_s: seconds since 1970, by the clock of the service.
        buried: up to where tombstones are missing among the entries, purged at the replica; None: nowhere.
    """

    rid: int
    generation: str
    ruv: Mapping[int, Csn]
    history: History
    taken_at_s: int
    entries: int = 0
    tombstones: int = 0
    extinctions: int = 0
    parts: tuple[Part, ...] = ()
    buried: Csn | None = None
    signature: bytes = field(default=b"", repr=False)

    def document(self) -> dict[str, Any]:
        """As JSON has it, without the signature.

        A version that knows no bound of tombstones does not find its signature: it refuses the file.
        """
        buried = {} if self.buried is None else {"buried": str(self.buried)}
        return buried | {
            "format": FORMAT,
            "rid": self.rid,
            "generation": self.generation,
            "ruv": {str(rid): str(csn) for rid, csn in sorted(self.ruv.items())},
            "history": self.history.document(),
            "taken_at_s": self.taken_at_s,
            "entries": self.entries,
            "tombstones": self.tombstones,
            "extinctions": self.extinctions,
            "parts": [
                {"name": each.name, "rows": each.rows, "bytes": each.bytes, "sha256": each.sha256}
                for each in self.parts
            ],
        }

    @property
    def to_sign(self) -> bytes:
        """What the replica signs."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return _SIGNED + sha256(text.encode()).digest()

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read a manifest whose signature is that of the key in it.

        Raises: SnapshotDamaged.
        """
        try:
            found = json.loads(text)
            if found["format"] != FORMAT:
                raise SnapshotDamaged(f"a snapshot of format {found['format']!r:.20}, where {FORMAT} is read")
            manifest = cls(
                rid=_whole(found["rid"]),
                generation=str(Csn(found["generation"])),
                ruv={parse_rid(rid): _of_rid(csn, rid) for rid, csn in found["ruv"].items()},
                history=History.of(found["history"]),
                taken_at_s=_whole(found["taken_at_s"]),
                entries=_whole(found["entries"]),
                tombstones=_whole(found["tombstones"]),
                extinctions=_whole(found["extinctions"]),
                parts=tuple(_part(each) for each in found["parts"]),
                buried=None if found.get("buried") is None else Csn(found["buried"]),
                signature=bytes.fromhex(found["signature"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SnapshotDamaged(f"the manifest cannot be read: {error}") from error
        manifest.check()
        return manifest

    def check(self) -> None:
        """Raise unless the replica's key has signed it.

        Raises: SnapshotDamaged.
        """
        if not RID_MIN <= self.rid <= RID_MAX:
            raise SnapshotDamaged(f"{self.rid} is no replica id")
        if len(self.signature) != SIGNATURE_BYTES:
            raise SnapshotDamaged("the manifest is not signed")
        try:
            Ed25519PublicKey.from_public_bytes(self.history.key).verify(self.signature, self.to_sign)
        except (InvalidSignature, ValueError) as error:
            raise SnapshotDamaged("the manifest is not what its replica has signed") from error


class SnapshotWriter:
    """Writes a snapshot part by part; whoever dies in between leaves a file without a manifest."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.parts: list[Part] = []

    def put(self, name: str, rows: pa.RecordBatch) -> int:
        """Add rows as one Parquet file; how many bytes it has."""
        import pyarrow.parquet as pq

        held = io.BytesIO()
        pq.write_table(pa.Table.from_batches([rows]), held, compression="zstd")
        return self._add(name, held.getvalue(), rows.num_rows)

    def end(self, manifest: Manifest) -> None:
        """Add the signed manifest: the snapshot is whole."""
        text = json.dumps(manifest.document() | {"signature": manifest.signature.hex()}, indent=1)
        self._add(MANIFEST, text.encode(), 0)
        self._out.write(bytes(2 * tarfile.BLOCKSIZE))

    def _add(self, name: str, body: bytes, rows: int) -> int:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(body), 0o600
        padding = bytes(-len(body) % tarfile.BLOCKSIZE)
        self._out.write(member.tobuf(tarfile.PAX_FORMAT) + body + padding)
        if name != MANIFEST:
            self.parts.append(Part(name, rows, len(body), sha256(body).hexdigest()))
        return len(body)


def read_manifest(path: Path) -> Manifest:
    """Read all of a file: the manifest is there, signed, and every part is as it says.

    Raises: SnapshotDamaged; OSError.
    """
    found: list[Part] = []
    text = b""
    for name, body in _members(path):
        if text:
            raise SnapshotDamaged(f"{name} stands behind the manifest")
        if name == MANIFEST:
            text = body
        else:
            found.append(Part(name, 0, len(body), sha256(body).hexdigest()))
    if not text:
        raise SnapshotDamaged("the file ends without a manifest: it was cut short, or is no snapshot")
    manifest = Manifest.parse(text)
    told = [replace(part, rows=0) for part in manifest.parts]
    if found != told:
        names = {part.name for part in set(found) ^ set(told)} or {"their order"}
        raise SnapshotDamaged(f"not as the manifest says: {', '.join(sorted(names)[:5])}")
    return manifest


def read_parts(path: Path, manifest: Manifest) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The parts of a file that was read once, checked row by row: (name, rows), extinctions first.

    Raises: SnapshotDamaged; OSError.
    """
    rules = _Rules(manifest)
    told = {part.name: part for part in manifest.parts}
    for name, body in _members(path):
        if name == MANIFEST:
            continue
        if name not in told or told[name].sha256 != sha256(body).hexdigest():
            raise SnapshotDamaged(f"{name} has changed while it was read")
        schema = record_schema() if name == EXTINCTIONS else entry_schema()
        rows = _rows(name, body, schema, wanted=told[name].rows)
        rules.check(name, rows)
        yield name, rows
    rules.end()


class _Rules:
    """What the rows of a snapshot keep to, over all its parts."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._last: tuple[bytes, bytes] | None = None
        self._counted = [0, 0, 0]

    def check(self, name: str, rows: pa.RecordBatch) -> None:
        self._check_csns(name, rows)
        if name == EXTINCTIONS:
            if self._last is not None:
                raise SnapshotDamaged("the extinctions stand behind entries")
            kinds = set(rows.column("kind").to_pylist())
            if kinds - {RecordKind.EXTINCTION.value} or rows.column("payload").null_count:
                raise SnapshotDamaged(f"{name}: a record that is no extinction")
            self._counted[2] += rows.num_rows
            return
        self._counted[0] += rows.num_rows
        for database, key, value, _, is_tombstone in zip(*map(pa.Array.to_pylist, rows), strict=True):
            if self._last is not None and (database, key) <= self._last:
                raise SnapshotDamaged(f"{name}: the keys do not ascend")
            if not database or len(database) > DATABASE_MAX_BYTES or not key or len(key) > KEY_MAX_BYTES:
                raise SnapshotDamaged(f"{name}: a database or key of a length that no replica keeps")
            if (value is None) != is_tombstone or len(value or b"") > VALUE_MAX_BYTES:
                raise SnapshotDamaged(f"{name}: a value that no replica keeps")
            self._last = (database, key)
            self._counted[1] += is_tombstone

    def _check_csns(self, name: str, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        try:
            for csn in set(rows.column("csn").to_pylist()):
                Csn(csn)
        except (TypeError, ValueError) as error:
            raise SnapshotDamaged(f"{name}: {error}") from error
        texts, rids = csn_column(rows.column("csn")), rids_of(rows.column("csn"))
        for rid in set(rids.tolist()):
            if str(self._manifest.ruv.get(rid, "")).encode() < max(texts[rids == rid].tolist()):
                raise SnapshotDamaged(f"{name}: a change of {rid} is above the RUV")

    def end(self) -> None:
        manifest = self._manifest
        if self._counted != [manifest.entries, manifest.tombstones, manifest.extinctions]:
            raise SnapshotDamaged("the manifest counts other rows than the files have")


class _Member(tarfile.TarInfo):
    """A plain file; headers that only lead to another one are refused before they are read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        most = MANIFEST_MAX_BYTES if found.name == MANIFEST else PART_MAX_BYTES
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not 0 <= found.size <= most:
            raise SnapshotDamaged(f"{found.name[:60]!r} is no file of a snapshot")
        return found


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with _opened(path) as file, tarfile.open(fileobj=file, mode="r|", tarinfo=_Member) as tar:
            for member in tar:
                held = tar.extractfile(member)
                body = b"" if held is None else held.read()
                if len(body) != member.size:
                    raise SnapshotDamaged(f"{member.name[:60]!r} was cut short")
                yield member.name, body
    except tarfile.TarError as error:
        raise SnapshotDamaged(f"the file is no snapshot, or was cut short: {error}") from error


def _opened(path: Path) -> BinaryIO:
    """A regular file: a pipe would let its reader wait for ever."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return file


def _rows(name: str, body: bytes, schema: pa.Schema, *, wanted: int) -> pa.RecordBatch:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(body))
        if file.metadata.num_rows != wanted:
            raise SnapshotDamaged(f"{name} has {file.metadata.num_rows} rows, not {wanted}")
        found, size = [], 0
        for batch in file.iter_batches(batch_size=_READ_ROWS):
            found.append(batch)
            size += batch.nbytes
            if size > ROWS_MAX_BYTES:
                raise SnapshotDamaged(f"{name} stands for more bytes than a part of a snapshot has")
        table = pa.Table.from_batches(found, file.schema_arrow).cast(schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SnapshotDamaged(f"{name} cannot be read: {error}") from error
    batches = table.combine_chunks().to_batches()
    rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
    if len(batches) > 1 or rows.num_rows != wanted:
        raise SnapshotDamaged(f"{name} has not the {wanted} rows that the manifest says")
    return rows


def _part(document: Any) -> Part:
    return Part(
        str(document["name"]), _whole(document["rows"]), _whole(document["bytes"]), str(document["sha256"])
    )


def _of_rid(text: str, rid: str) -> Csn:
    csn = Csn(text)
    if csn.rid != parse_rid(rid):
        raise ValueError(f"{csn} is a change of replica {csn.rid}, not of {rid}")
    return csn


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.60} is no count")
    return value
