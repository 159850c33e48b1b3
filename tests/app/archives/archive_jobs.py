"""Archives whose files were damaged since they were written, and jobs that read them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.archives.rows import Archive
from app.archives.task import run_verify
from app.clock import SystemClock
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import InlineEngine
from app.jobs.engines.spark_engine import PoolView, SparkEngine
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from spark.exchange.dispatch import Exchange
from spark.targets.archive.file import AttemptWriter, job_directory
from spark.targets.manifest import ManifestEntry, write_manifest_json
from tests.app.jobs.workbench import Workbench

ARCHIVED = "job_00000000000000000000000001"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
DAMAGES = ("missing", "flipped", "truncated", "rows", "link", "no parquet")


def written(folder: Path, files: int) -> list[ManifestEntry]:
    """So many whole files, as a purge writes them."""
    entries = []
    for number in range(files):
        with AttemptWriter(folder, unit_id=f"data-{number}", token=1, schema=SCHEMA) as writer:
            rows = [{"id": row, "text": f"{number}/{row}"} for row in range(20 + number)]
            writer.write(pa.Table.from_pylist(rows, SCHEMA))
            done = writer.finish()
        entries.append(
            ManifestEntry(
                ARCHIVED, f"data-{number}", "t", 1, str(done.path), done.rows, done.bytes, done.sha256
            )
        )
    return entries


def damaged(entry: ManifestEntry, how: str) -> ManifestEntry:
    """Damage the file of an entry; the entry as the manifest has it."""
    path = Path(entry.path)
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "flipped":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif how == "truncated":
        path.write_bytes(content[:-1])
    elif how == "rows":
        return replace(entry, rows=entry.rows + 1)
    elif how == "link":
        path.rename(path.with_suffix(".elsewhere"))
        path.symlink_to(path.with_suffix(".elsewhere"))
    else:
        path.write_bytes(bytes(len(content)))
    return entry


def archive_of(root: Path, *, files: int, damages: Sequence[str] = ()) -> list[ManifestEntry]:
    """An archive below a root; its later files are damaged, one in each way."""
    folder = job_directory(root, "shop", ARCHIVED)
    entries = written(folder, files)
    for place, how in enumerate(damages, start=files - len(damages)):
        entries[place] = damaged(entries[place], how)
    write_manifest_json(folder, entries)
    return entries


def engines_on(pool: PoolView, exchange: Exchange, **fields: Any) -> Engines:
    """Threads, and the tasks of an exchange."""
    clock = SystemClock()
    return Engines(InlineEngine(clock), SparkEngine(pool, exchange, clock, queue_max=4), **fields)


@dataclass(frozen=True)
class Said:
    """How a verification ended."""

    code: str | None
    detail: str
    result: Mapping[str, Any] | None


@dataclass
class ArchiveJobs:
    """Verifications of one archive."""

    bench: Workbench
    directory: Path

    @classmethod
    def of(cls, bench: Workbench, entries: Sequence[ManifestEntry]) -> ArchiveJobs:
        """Note the archive as a sweep does that has ended."""
        directory = Path(entries[0].path).parent
        with bench.database.transaction() as db:
            db.add(
                Archive(
                    job_id=ARCHIVED,
                    store="shop",
                    directory=str(directory),
                    instance="ins_a",
                    resource="sym.purge",
                    created_at=NOW,
                    files=len(entries),
                    expires_at=NOW,
                )
            )
        return cls(bench, directory)

    def context(self, engine: str | None) -> JobContext:
        """A verification that has just been claimed."""
        chosen = {} if engine is None else {"engine": engine}
        self.bench.submit("ARCHIVE_VERIFY", params={"archive": ARCHIVED} | chosen)
        return self.bench.context()

    def run(self, context: JobContext, engines: Engines) -> Said:
        """Run it to its end."""
        try:
            return Said(None, "", run_verify(context, engines=engines))
        except JobFailed as failed:
            return Said(failed.code, failed.detail, failed.result)

    def shown(self, context: JobContext) -> list[dict[str, Any]]:
        """The progress that clients saw."""
        events = self.bench.events(context.job.id)
        return [event.data for event in events if event.type == "progress"]

    def chosen(self, context: JobContext) -> dict[str, Any]:
        """What the event says of the engine."""
        [event] = [event for event in self.bench.events(context.job.id) if event.type == "engine"]
        return dict(event.data)
