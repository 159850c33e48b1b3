"""The certificate of a cycle: what was erased and proved, what was not, and what stays readable elsewhere.

Rules:
- it is made of rows that do not change any more: the cycle and its job have ended;
- it is signed once, and the same bytes are handed out for ever;
- what only the environment tells (its medium, other files in it) is taken when it is issued, and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from lethe_client.certificates import FORMAT
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app.db import Database
from app.erase.certificates.environment import look_at_environment
from app.erase.certificates.protections import protections_met
from app.erase.certificates.residue import residue
from app.erase.certificates.rows import ErasureCertificate
from app.erase.certificates.signing import register, signer_of
from app.erase.errors import CycleNotEnded
from app.erase.left_over import why_left_over
from app.erase.queries import instant_of_ms, state_now
from app.erase.rows import REMAINING, CycleState, ErasureCycle, ErasureFile, FileState
from app.extinction.status import shown_in_certificate
from app.jobs.rows import Job
from app.jobs.states import TERMINAL
from app.kit.durations import format_duration
from app.kit.instants import instant_text
from app.kit.texts.distribution import installed_version
from app.outbox.facts import Fact
from app.outbox.writing import tell
from app.settings import Settings
from app.stores.rows import Store
from spark.formats.arrow import pa
from spark.formats.je.log import file_name, show_lsn

CODEC = "zstd"
VETOED_MAX = 1_000
OFFSET_BYTES = 4
ISSUED_PER_PASS = 20
LOOKED_AT_PER_PASS = 500
LEFT_TO_OTHERS = timedelta(days=1)


def issue_certificate(
    database: Database, settings: Settings, cycle_id: str, *, instance_id: str, now: datetime
) -> ErasureCertificate:
    """The certificate of a cycle, made if there is none yet.

    Raises: CycleNotEnded, SigningKeyUnusable.
    """
    with database.reading() as db:
        known = db.get(ErasureCertificate, cycle_id)
        if known is not None:
            return known
        content, path = _content(db, cycle_id, now=now)
        store = db.get(Store, content["store"])
    seen = look_at_environment(store, path, content["files"], settings, now=now)
    content["environment"] = dict(seen.shown)
    content["stays_readable"] = residue(content, seen.other_files, seen.replaced)
    signer = signer_of(settings.data_dir)
    document = json.dumps(signer.envelope(content), sort_keys=True, ensure_ascii=False).encode()
    row = {
        "cycle_id": cycle_id,
        "store": content["store"],
        "issued_at": now,
        "key_id": signer.key_id,
        "sha256": hashlib.sha256(document).hexdigest(),
        "document": _packed(document),
    }
    with database.transaction() as db:
        register(db, signer, instance_id=instance_id, now=now)
        if _insert_first(db, row):
            _tell_issued(db, row)
        db.expire_all()
        return db.get_one(ErasureCertificate, cycle_id)


def issue_missing(database: Database, settings: Settings, *, instance_id: str, now: datetime) -> int:
    """Issue what is due, a bounded number at a time: rows of a cycle are not kept for ever.

    A cycle that only other runners could work at is left to them for a while: they see its directory.
    """
    certified = select(ErasureCertificate.cycle_id)
    with database.reading() as db:
        found = db.exec(
            select(ErasureCycle.id, Job)
            .join(Job, col(Job.id) == col(ErasureCycle.job_id))
            .where(col(Job.state).in_(sorted(TERMINAL)), col(ErasureCycle.id).not_in(certified))
            .order_by(col(ErasureCycle.id))
            .limit(LOOKED_AT_PER_PASS)
        ).all()
    labels = {*settings.labels, f"instance/{instance_id}"}
    due = [
        cycle_id
        for cycle_id, job in found
        if set(job.runs_on) <= labels or job.finished_at is None or job.finished_at < now - LEFT_TO_OTHERS
    ][:ISSUED_PER_PASS]
    for cycle_id in due:
        issue_certificate(database, settings, cycle_id, instance_id=instance_id, now=now)
    return len(due)


def document_of(row: ErasureCertificate) -> bytes:
    """The document as it was signed."""
    length = int.from_bytes(row.document[:8], "little")
    data: bytes = pa.decompress(row.document[8:], decompressed_size=length, codec=CODEC, asbytes=True)
    return data


def _packed(document: bytes) -> bytes:
    packed: bytes = pa.compress(document, codec=CODEC, asbytes=True)
    return len(document).to_bytes(8, "little") + packed


def _insert_first(db: Session, row: dict[str, Any]) -> bool:
    """Whether this is the first: of two that issue at once that one counts."""
    insert = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    written = insert(ErasureCertificate).values(**row).on_conflict_do_nothing(index_elements=["cycle_id"])
    return db.execute(written.returning(col(ErasureCertificate.cycle_id))).first() is not None


def _tell_issued(db: Session, row: dict[str, Any]) -> None:
    store, cycle_id = row["store"], row["cycle_id"]
    data = {"store": store, "cycle_id": cycle_id, "key_id": row["key_id"], "sha256": row["sha256"]}
    subject = f"stores/{store}/erasure-cycles/{cycle_id}/certificate"
    tell(db, Fact.CERTIFICATE_ISSUED, store=store, subject=subject, data=data, now=row["issued_at"])


def _content(db: Session, cycle_id: str, *, now: datetime) -> tuple[dict[str, Any], str | None]:
    """What the rows say, and the path of the directory that the cycle was begun for."""
    cycle = db.get_one(ErasureCycle, cycle_id)
    job = db.get_one(Job, cycle.job_id)
    state = state_now(cycle, job, None, now=now)
    if job.state not in TERMINAL:
        raise CycleNotEnded(f"{cycle_id} is {state}; its certificate is made when it has ended")
    query = select(ErasureFile).where(ErasureFile.cycle_id == cycle_id).order_by(col(ErasureFile.number))
    files = db.exec(query).all()
    ended = cycle.ended_at or job.finished_at or now
    content = {
        "format": FORMAT,
        "issued_at": instant_text(now),
        "issued_by": f"Lethe {installed_version()}",
        "store": cycle.store,
        "cycle": _cycle(cycle, job, state, ended=ended),
        "plan": _plan(cycle),
        "totals": _totals(files),
        "protections": protections_met(db, cycle.store, files, began=cycle.created_at, ended=ended),
        "extinctions": _extinctions(db, cycle.store, files),
        "files": [_file(row, state) for row in files],
    }
    return content, job.params.get("target", {}).get("path")


def _extinctions(db: Session, store_id: str, files: Sequence[ErasureFile]) -> list[dict[str, Any]]:
    """The extinctions by which entries went, with those that were erased and proved."""
    sums: dict[str, list[int]] = {}
    for row in files:
        if row.state == FileState.ERASED and row.is_proved:
            for name, (entries, item_bytes) in (row.extinct or {}).items():
                before = sums.get(name, [0, 0])
                sums[name] = [before[0] + entries, before[1] + item_bytes]
    shown = []
    for each in shown_in_certificate(db, store_id, sums):
        entries, item_bytes = sums[each["id"]]
        shown.append(each | {"entries_erased_and_proved": entries, "bytes": item_bytes})
    return shown


def _cycle(cycle: ErasureCycle, job: Job, state: CycleState, *, ended: datetime) -> dict[str, Any]:
    shown = {
        "id": cycle.id,
        "job_id": cycle.job_id,
        "state": state.value,
        "requested_by": job.requested_by,
        "reason": job.reason,
        "mode": cycle.mode,
        "kinds": list(cycle.kinds),
        "min_file_age": _duration(cycle.min_file_age_s),
        "duration": _duration(cycle.duration_s),
        "incomplete": cycle.incomplete or {},
        "ended_at": instant_text(ended),
    }
    for name in ("created_at", "started_at", "cutoff_at", "ends_at"):
        at: datetime | None = getattr(cycle, name)
        shown[name] = None if at is None else instant_text(at)
    return shown


def _plan(cycle: ErasureCycle) -> dict[str, Any] | None:
    plan = cycle.plan
    if plan is None:
        return None
    vetoed = [{"lsn": show_lsn(lsn), "reason": reason} for lsn, reason in plan["vetoed"][:VETOED_MAX]]
    return {
        "first_active": show_lsn(plan["first_active"]),
        "checkpoint": show_lsn(plan["checkpoint_lsn"]),
        "vetoed_count": plan["vetoed_count"],
        "vetoed": vetoed,
        "missing_count": plan["missing_count"],
        "vlsn": plan["vlsn"],
        "torn_at": plan["torn_at"],
        "nodes_wait": bool(plan["nodes_wait"]),
    }


def _totals(files: Sequence[ErasureFile]) -> dict[str, Any]:
    proved = [row for row in files if row.state == FileState.ERASED and row.is_proved]
    return {
        "files": len(files),
        "files_erased_and_proved": len(proved),
        "entries_erased_and_proved": sum(row.entries_erased or 0 for row in proved),
        "erased_and_proved_by_reason": _by_reason(proved),
        "files_remaining": sum(row.state in REMAINING for row in files),
        "bytes_written": sum(row.write_bytes for row in files),
        "fsyncs": sum(row.fsyncs for row in files),
    }


def _identity(row: ErasureFile) -> dict[str, Any] | None:
    """What does not fit into 53 bits is text: many programs read a JSON number as a double."""
    if row.identity is None:
        return None
    return row.identity | {name: str(row.identity[name]) for name in ("inode", "mtime_ns")}


def _by_reason(files: Sequence[ErasureFile]) -> dict[str, list[int]]:
    """Reason to entries and bytes of their items."""
    sums: dict[str, list[int]] = {}
    for row in files:
        for reason, (entries, item_bytes) in row.planned.items():
            before = sums.get(reason, [0, 0])
            sums[reason] = [before[0] + entries, before[1] + item_bytes]
    return dict(sorted(sums.items()))


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))


def _file(row: ErasureFile, ended: CycleState) -> dict[str, Any]:
    state, created = FileState(row.state), instant_of_ms(row.created_ms)
    # Rows of cycles that ended before they said it themselves: who held what by then is not told any more.
    causes = why_left_over(row, ended, {})
    return {
        "name": file_name(row.number),
        "state": state.value,
        "bytes": row.size_bytes,
        "created_at": None if created is None else instant_text(created),
        "identity": _identity(row),
        "not_erased_because": [{"cause": cause, "detail": detail} for cause, detail in causes],
        "planned": {code: list(pair) for code, pair in row.planned.items()},
        "kept": {code: list(pair) for code, pair in row.kept.items()},
        "extinctions": {name: list(pair) for name, pair in (row.extinct or {}).items()},
        "extinct_and_still_named_by_slots": len(row.in_use or b"") // OFFSET_BYTES,
        "reserved": row.is_reserved,
        "entries_planned": row.entry_count,
        "entries_overwritten": row.rows_done,
        "entries_proved_erased": row.entries_erased,
        "rounds": row.rounds,
        "fsyncs": row.fsyncs,
        "fsync_times": [_duration(seconds) for seconds in row.fsync_s],
        "sha256_before": row.sha256_before,
        "sha256_expected": row.sha256_expected,
        "sha256_after": row.sha256_after,
        "proved": row.is_proved,
        "read_for_the_proof_by": row.proved_by,
        "first_write_at": None if row.first_write_at is None else instant_text(row.first_write_at),
        "finished_at": None if row.finished_at is None else instant_text(row.finished_at),
        "refusal": row.refusal,
    }
