"""The tasks of an export and of an import.

Rules:
- an export is one read transaction into a new file; whoever dies in it begins anew;
- an import is one transaction under the fence, with its row in the ledger: repeated it changes nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from app.errors import ServiceError
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import claim, controlled, prove_silence, signal_of
from app.jobs.running.suspension import awake_store
from app.replication.agreements.sessions.service import target_of_store
from app.replication.peer.answers import shown_ruv
from app.replication.peer.clock import ahead_max_s_of
from app.replication.replica.replicas import (
    note_own_max,
    remember_incarnation,
    replica_limits,
    writer_turn,
)
from app.replication.snapshots.files import clear, drafted, flush, is_placed, measure, place
from app.replication.snapshots.models import (
    ReplicaExportParams,
    ReplicaExportResult,
    ReplicaImportParams,
    ReplicaImportResult,
)
from app.replication.snapshots.submitting import check_place, import_resource
from app.replication.supplier.signals import supplying_replica
from app.stores.rows import Store
from app.stores.targets import target_of
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import ReplicationRefused
from spark.replication.records import Snapshot
from spark.replication.snapshots.form import Manifest, SnapshotDamaged, read_manifest
from spark.replication.snapshots.place import place_snapshot
from spark.replication.snapshots.take import take_snapshot
from spark.targets.advisory import hold
from spark.targets.connection import Connection, connect
from spark.targets.errors import TargetError
from spark.targets.silence import application_name
from spark.targets.transaction import Done, run_in_transaction

UNIT_NAME: Final = "export"
INCARNATION: Final = "inc_{job_id}"
FILE_REFUSED: Final = "SNAPSHOT_FILE_REFUSED"
FILE_EXISTS: Final = "SNAPSHOT_FILE_EXISTS"


@dataclass(frozen=True, slots=True)
class ImportUnit:
    """The one transaction of an import."""

    job_id: str
    token: int
    resource: str
    has_ledger: bool
    unit_id: str = "import"
    step: str = "IMPORT"
    archive_dir: str | None = None


def run_export(context: JobContext) -> Mapping[str, Any]:
    """Write the file, and return the result that clients see.

    Raises: JobSignal.
    """
    store = awake_store(context)
    params = ReplicaExportParams.model_validate(context.job.params)
    job_id = context.job.id
    with _refusals(context, store, params.target):
        path = check_place(params.path, context.settings, context.database)
        if not is_placed(path, job_id):
            if path.exists():
                raise FileExistsError(str(path))
            _write(context, store, path)
            place(path, job_id)
        manifest = read_manifest(path)
        size, digest = measure(path)
        clear(path, job_id)
    shown = _shown(manifest, path)
    return ReplicaExportResult(**shown, bytes=size, sha256=digest).model_dump(mode="json")


def run_import(context: JobContext) -> Mapping[str, Any]:
    """Fill the replica, and return the result that clients see.

    Raises: JobSignal.
    """
    store = awake_store(context)
    params = ReplicaImportParams.model_validate(context.job.params)
    with _refusals(context, store, params.target):
        path = check_place(params.path, context.settings, context.database)
        manifest = read_manifest(path)
        key = manifest.history.key.hex()
        if params.signed_by not in (None, key):
            raise SnapshotDamaged(f"the file is signed by {key}, not by {params.signed_by}")
        with supplying_replica(context, store):  # its tables are there from here on
            context.check()
        with controlled(context, store) as conn:
            _place(context, store, conn, path, manifest)
    return ReplicaImportResult(**_shown(manifest, path)).model_dump(mode="json")


def prove_export_silent(context: JobContext) -> None:
    """Remove what the export had begun.

    Raises: JobWaiting.
    """
    prove_silence(context)
    path = Path(ReplicaExportParams.model_validate(context.job.params).path)
    if is_placed(path, context.job.id):
        path.unlink(missing_ok=True)  # nobody was told of it
    clear(path, context.job.id)


def _write(context: JobContext, store: Store, path: Path) -> None:
    with supplying_replica(context, store):
        context.check()

    def told(rows: int, _size: int) -> None:
        context.check()
        context.progress(unit="rows", done=rows, total=None)

    def shown(seen: Snapshot) -> None:
        own_max, now = seen.vectors.ruv.get(seen.replica.rid), context.clock.now()
        context.write(lambda db: note_own_max(db, store.id, own_max, now=now))

    name = application_name(context.job.id, UNIT_NAME, context.job.token)
    target = target_of(store, context.settings, context.database)
    with (
        drafted(path, context.job.id) as out,
        connect(
            target, application_name=name, limits=replica_limits(context.settings), read_only=True
        ) as conn,
    ):
        forget = context.on_cancel(lambda: conn.cancel())
        try:
            take_snapshot(conn, out, now_s=int(context.clock.now().timestamp()), shown=shown, told=told)
            flush(out)
            context.check()  # here: whoever is stopped leaves no draft
        finally:
            forget()


def _place(context: JobContext, store: Store, conn: Connection, path: Path, manifest: Manifest) -> None:
    job = context.job
    resource = import_resource(store)
    claimed = claim(context, conn, resource=resource, queue=False)
    if not claimed.has_ledger:
        hold(conn, resource)
    ahead_max_s = context.read(lambda db: ahead_max_s_of(db, store))

    def told(rows: int) -> None:
        context.check()
        context.progress(unit="rows", done=rows, total=manifest.entries)

    def work() -> Done:
        placed = place_snapshot(
            conn,
            path,
            manifest,
            incarnation=INCARNATION.format(job_id=job.id),
            adopt=partial(_adopt, context, store.id),
            now_s=int(context.clock.now().timestamp()),
            ahead_max_s=ahead_max_s,
            told=told,
        )
        return Done(placed.entries)

    unit = ImportUnit(job.id, job.token, resource, claimed.has_ledger)
    with writer_turn(conn):
        run_in_transaction(conn, unit, work)


def _adopt(context: JobContext, store_id: str, incarnation: str, own_max: str | None) -> None:
    remember_incarnation(context.database, store_id, incarnation=incarnation, own_max=own_max)


@contextmanager
def _refusals(context: JobContext, store: Store, target: Mapping[str, Any]) -> Iterator[None]:
    """What goes wrong with the file or the replica leaves as a signal to the runner.

    Raises: JobSignal.
    """
    if dict(target) != target_of_store(store):
        raise JobFailed("STORE_CHANGED", "the store names another target than when this was submitted")
    try:
        yield
    except TargetError as error:
        raise signal_of(context, error) from error
    except (ReplicationRefused, ServiceError) as error:
        raise JobFailed(error.code, error.detail) from error
    except (ClockSkewExceeded, TimestampOutOfRange) as error:
        raise JobFailed("CLOCK_SKEW", str(error)) from error
    except FileExistsError as error:
        raise JobFailed(FILE_EXISTS, f"{error}: a file of this name is there; name another one") from error
    except OSError as error:
        raise JobFailed(FILE_REFUSED, f"the file cannot be used: {error}") from error


def _shown(manifest: Manifest, path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "rid": manifest.rid,
        "generation": manifest.generation,
        "ruv": shown_ruv(manifest.ruv),
        "taken_at": datetime.fromtimestamp(manifest.taken_at_s, UTC),
        "entries": manifest.entries,
        "tombstones": manifest.tombstones,
        "extinctions": manifest.extinctions,
        "signed_by": manifest.history.key.hex(),
    }
