"""What a cycle says of its files: by its rows, or by its certificate when these are gone."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sqlmodel import Session, col, select

from app.erase.certificates.certificate import document_of
from app.erase.certificates.rows import ErasureCertificate
from app.erase.errors import CycleNotFound
from app.erase.queries import get_cycle
from app.erase.rows import ErasureCycle, ErasureEntries, ErasureFile, FileState
from app.jobs.rows import Job
from spark.formats.je.log import file_number

LATER_CERTIFICATES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """One file of a cycle.

    Attributes:
        sha256: of the whole file, as it was proved; None where nothing was.
        entries: what was to be erased, where that is still kept.
        in_use: offsets of extinct entries that slots may lead to although they are erased, of all cycles.
    """

    number: int
    state: FileState
    size: int
    sha256: str | None
    entries: bytes = b""
    in_use: bytes = b""


@dataclass(frozen=True, slots=True)
class Claims:
    """All files of a cycle, and the directory that they were in."""

    cycle_id: str
    path: str | None
    files: Mapping[int, Claim]


def claims_of(db: Session, store_id: str, cycle_id: str) -> Claims:
    """What is known of a cycle.

    Raises: CycleNotFound.
    """
    cycle = db.get(ErasureCycle, cycle_id)
    if cycle is not None and cycle.store == store_id:
        return _by_rows(db, cycle)
    certificate = db.get(ErasureCertificate, cycle_id)
    if certificate is not None and certificate.store == store_id:
        claims, in_use = _by_certificate(certificate), _in_use(db, store_id)
        files = {
            each.number: replace(each, in_use=in_use.get(each.number, b"")) for each in claims.files.values()
        }
        return replace(claims, files=files)
    raise CycleNotFound("there is no such cycle of this store")


def _by_rows(db: Session, cycle: ErasureCycle) -> Claims:
    rows = db.exec(select(ErasureFile).where(ErasureFile.cycle_id == cycle.id)).all()
    kept = db.exec(select(ErasureEntries).where(ErasureEntries.cycle_id == cycle.id)).all()
    entries = {each.number: each.entries for each in kept}
    in_use = _in_use(db, cycle.store)
    files = {}
    for row in rows:
        is_proved = row.state == FileState.ERASED and bool(row.is_proved)
        files[row.number] = Claim(
            number=row.number,
            state=FileState(row.state),
            size=row.size_bytes,
            sha256=row.sha256_after if is_proved else None,
            entries=entries.get(row.number, b"") if is_proved else b"",
            in_use=in_use.get(row.number, b""),
        )
    job = db.get_one(Job, cycle.job_id)
    return Claims(cycle.id, job.params.get("target", {}).get("path"), files)


def _in_use(db: Session, store_id: str) -> dict[int, bytes]:
    """What all cycles of a store have erased although slots led there, by file."""
    rows = db.exec(
        select(ErasureFile.number, ErasureFile.in_use)
        .join(ErasureCycle, col(ErasureCycle.id) == col(ErasureFile.cycle_id))
        .where(ErasureCycle.store == store_id, col(ErasureFile.in_use).is_not(None))
    ).all()
    found: dict[int, bytes] = {}
    for number, offsets in rows:
        found[number] = found.get(number, b"") + (offsets or b"")
    return found


def _by_certificate(row: ErasureCertificate) -> Claims:
    certificate = json.loads(document_of(row))["certificate"]
    files = {}
    for each in certificate["files"]:
        number = file_number(each["name"])
        sha256 = each["sha256_after"] if each["state"] == FileState.ERASED and each["proved"] else None
        files[number] = Claim(number, FileState(each["state"]), each["bytes"], sha256)
    return Claims(row.cycle_id, certificate["environment"]["path"], files)


@dataclass(frozen=True, slots=True)
class LaterPass:
    """What a later cycle made of a file; `sha256` is None where it has not proved it."""

    cycle_id: str
    sha256: str | None


def later_passes(
    db: Session, store_id: str, cycle_id: str, numbers: Iterable[int]
) -> Mapping[int, list[LaterPass]]:
    """Which later cycles of a store have written to some files: by rows, and by certificates."""
    wanted = set(numbers)
    found: dict[int, list[LaterPass]] = {number: [] for number in wanted}
    rows = db.exec(
        select(ErasureFile)
        .join(ErasureCycle, col(ErasureCycle.id) == col(ErasureFile.cycle_id))
        .where(ErasureCycle.store == store_id, col(ErasureFile.cycle_id) > cycle_id)
        .where(col(ErasureFile.was_written).is_(True))
        .order_by(col(ErasureFile.cycle_id), col(ErasureFile.number))
    ).all()
    for row in rows:
        if row.number in wanted:
            found[row.number].append(LaterPass(row.cycle_id, row.sha256_after if row.is_proved else None))
    known = {row.cycle_id for row in rows}
    for certificate in _later_certificates(db, store_id, cycle_id):
        if certificate.cycle_id in known:
            continue
        for number, claim in _by_certificate(certificate).files.items():
            if number in wanted and claim.sha256 is not None:
                found[number].append(LaterPass(certificate.cycle_id, claim.sha256))
    return found


def _later_certificates(db: Session, store_id: str, cycle_id: str) -> Iterable[ErasureCertificate]:
    query = select(ErasureCertificate).where(
        ErasureCertificate.store == store_id, col(ErasureCertificate.cycle_id) > cycle_id
    )
    return db.exec(query.order_by(col(ErasureCertificate.cycle_id).desc()).limit(LATER_CERTIFICATES_MAX))


def resolve(db: Session, store_id: str, cycle_id: str) -> str:
    """The id of a cycle; `current` is the newest one. One that only its certificate knows is one, too.

    Raises: CycleNotFound.
    """
    certificate = db.get(ErasureCertificate, cycle_id)
    if certificate is None:
        return get_cycle(db, store_id, cycle_id).id
    if certificate.store != store_id:
        raise CycleNotFound("there is no such cycle of this store")
    return certificate.cycle_id
