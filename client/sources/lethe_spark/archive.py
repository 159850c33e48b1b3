"""`lethe_archive`: the rows that purges removed and kept.

Only files that a manifest names are read, and only where bytes, SHA-256 and the number of rows are those of
the manifest: a file that is not so makes the query fail. `view=files` says of each file what
`lethe archive verify` says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lethe_spark.archive_files import PART_BYTES, named_files
from lethe_spark.archive_values import ROWS, column_batches, json_batches, table_schema
from lethe_spark.options import Options
from lethe_spark.parts import in_parts
from spark.targets.archive.archive import verify_file
from spark.targets.manifest import ManifestEntry
from spark.worker import keep_modules

VIEWS: Final = ("rows", "files")
OPTIONS: Final = ("path", "view", "table", "jobs")
FILES: Final = pa.schema(
    [
        ("job_id", pa.string()),
        ("unit_id", pa.string()),
        ("table_name", pa.string()),
        ("token", pa.int64()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("state", pa.string()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class _Asked:
    path: Path
    view: str
    table: str | None
    jobs: tuple[str, ...] | None

    def entries(self) -> list[ManifestEntry]:
        """The files to read. Raises: ArchiveCorrupt."""
        return [
            entry
            for entry in named_files(self.path)
            if (self.table is None or entry.table_name == self.table)
            and (self.jobs is None or entry.job_id in self.jobs)
        ]


def _asked(given: Mapping[str, str]) -> _Asked:
    options = Options("lethe_archive", given)
    options.only(OPTIONS)
    path = options.path("path", "the folder of an archive, or one above several")
    if not path.is_dir():
        raise options.refuse(f"there is no folder {path}; give one that this machine and all workers see")
    view = options.choice("view", VIEWS, default="rows")
    return _Asked(path, view, options.text("table"), options.jobs())


class ArchiveSource(DataSource):
    """`lethe_archive`: a row for each row that was kept, or with `view=files` for each file.

    Options: `path`; `view`: rows (default) or files; `table`: only this table, and in its own columns;
    `jobs`: only these, between commas.
    """

    @classmethod
    def name(cls) -> str:
        return "lethe_archive"

    def schema(self) -> StructType:
        asked = _asked(self.options)
        if asked.view == "files":
            return from_arrow_schema(FILES)
        if asked.table is None:
            return from_arrow_schema(ROWS)
        entries = asked.entries()
        if not entries:
            known = sorted({entry.table_name for entry in named_files(asked.path)})
            raise Options("lethe_archive", {}).refuse(
                f"no file of the table {asked.table!r}; there is {', '.join(known) or 'none at all'}"
            )
        return table_schema(entries)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ArchiveReader(_asked(self.options), schema)


@dataclass(frozen=True)
class FilesPart(InputPartition):
    """Some files of the manifests."""

    entries: tuple[ManifestEntry, ...]


class ArchiveReader(DataSourceReader):
    """Reads and verifies the files of a partition."""

    def __init__(self, asked: _Asked, schema: StructType) -> None:
        self._asked = asked
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Files that lie together. Raises: ArchiveCorrupt."""
        parts = in_parts(self._asked.entries(), lambda entry: entry.bytes, bytes_most=PART_BYTES)
        return [FilesPart(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of some files. Raises: ArchiveCorrupt: the name of the first that is not as it was."""
        if not isinstance(partition, FilesPart):  # a frame without partitions gets one of Spark's own
            return
        keep_modules()
        for entry in partition.entries:
            if self._asked.view == "files":
                yield _checked(entry)
            elif self._asked.table is None:
                yield from json_batches(entry)
            else:
                yield from column_batches(entry, self._schema)


def _checked(entry: ManifestEntry) -> Any:
    check = verify_file(entry)
    values: tuple[Any, ...] = (
        entry.job_id,
        entry.unit_id,
        entry.table_name,
        entry.token,
        entry.path,
        entry.rows,
        entry.bytes,
        entry.sha256,
        check.state,
        check.detail,
    )
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, FILES, strict=True)], schema=FILES
    )
