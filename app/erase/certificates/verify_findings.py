"""What a verification has found: faults, and differences that have an explanation. All are counted, some
are listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.erase.certificates.verify_claims import Claim, Claims, LaterPass
from app.erase.rows import FileState
from spark.erase.calls.calls import Refusal, VerifyAnswer
from spark.erase.verified import VerifiedFile
from spark.formats.je.log import file_name, lsn_file, lsn_offset, show_lsn

FAULTS_SHOWN_MAX: Final = 500
EXPLAINED_SHOWN_MAX: Final = 1_000
GONE: Final = frozenset({FileState.DELETED, FileState.ALREADY_DELETED})


@dataclass(slots=True)
class Findings:
    """What differs."""

    faults: list[dict[str, Any]] = field(default_factory=list)
    fault_count: int = 0
    explained: list[dict[str, Any]] = field(default_factory=list)
    explained_count: int = 0
    as_proved: int = 0

    def fault(self, code: str, file: str | None, offset: int | None, detail: str, *, count: int = 1) -> None:
        """Note something that must not be."""
        self.fault_count += count
        if len(self.faults) < FAULTS_SHOWN_MAX:
            self.faults.append({"code": code, "file": file, "offset": offset, "detail": detail})

    def explain(self, code: str, file: str, detail: str) -> None:
        """Note something that differs, and rightly."""
        self.explained_count += 1
        if len(self.explained) < EXPLAINED_SHOWN_MAX:
            self.explained.append({"code": code, "file": file, "detail": detail})


def differing(answer: VerifyAnswer, claims: Claims) -> list[int]:
    """The files whose bytes are not what was proved."""
    asked = ((each, claims.files.get(each.number)) for each in answer.files)
    return [each.number for each, claim in asked if claim and claim.sha256 and each.sha256 != claim.sha256]


def compare(answer: VerifyAnswer, claims: Claims, later: Mapping[int, Sequence[LaterPass]]) -> Findings:
    """Compare what was read with what the cycle says."""
    found = Findings()
    _places(
        found,
        "ERASED_ENTRY_IN_USE",
        answer.reached,
        answer.reached_count,
        "a live slot, or the end of the log, leads to this entry, and it is erased",
    )
    _places(
        found, "NOT_ERASED", answer.unerased, answer.unerased_count, "it was planned and proved as erased"
    )
    there = {each.number: each for each in answer.files}
    for each in answer.files:
        if each.extinct_in_use:
            detail = f"slots lead to {each.extinct_in_use} erased entries of extinct records, as was planned"
            found.explain("EXTINCT_IN_USE", file_name(each.number), detail)
    for number, count in sorted(answer.missing_in.items()):
        _missing(found, number, count, claims.files.get(number))
    for number, claim in sorted(claims.files.items()):
        file = there.get(number)
        if file is None:
            _gone(found, claim)
        elif claim.sha256 is not None:
            _bytes(found, claim, file, later.get(number, ()))
    return found


def refused(refusal: Refusal) -> Findings:
    """A log that cannot be read as one is a fault of its own."""
    found = Findings()
    found.fault(refusal.ref or refusal.code.value, refusal.file, refusal.offset, refusal.detail)
    return found


def _places(found: Findings, code: str, lsns: Sequence[int], count: int, detail: str) -> None:
    for lsn in lsns:
        found.fault(code, file_name(lsn_file(lsn)), lsn_offset(lsn), detail)
    found.fault_count += count - len(lsns)


def _missing(found: Findings, number: int, count: int, claim: Claim | None) -> None:
    """Slots may name what is not there: JE leaves them their expired records when it cleans a file. Nothing
    may name what was in a file that we have deleted.
    """
    name = file_name(number)
    if claim is not None and claim.state is FileState.DELETED:
        detail = f"slots name {count} entries of it, and the cycle has deleted it"
        found.fault("ERASED_ENTRY_IN_USE", name, None, detail, count=count)
    else:
        detail = f"slots name {count} entries of it: records that expired before JE cleaned it, or are lost"
        found.explain("RECORDS_MISSING", name, detail)


def _gone(found: Findings, claim: Claim) -> None:
    by_whom = "deleted in the cycle" if claim.state in GONE else "deleted since, as JE's cleaner does"
    found.explain("GONE", file_name(claim.number), by_whom)


def _bytes(found: Findings, claim: Claim, file: VerifiedFile, later: Sequence[LaterPass]) -> None:
    name = file_name(claim.number)
    if file.sha256 == claim.sha256:
        found.as_proved += 1
        if file.size > claim.size:
            found.explain(
                "GROWN", name, f"{claim.size} bytes became {file.size}; the first ones are as proved"
            )
        return
    if later and any(each.sha256 in (None, file.sha256) for each in later):
        cycles = ", ".join(dict.fromkeys(each.cycle_id for each in later))
        found.explain("ERASED_AGAIN", name, f"by {cycles}")
        return
    detail = f"SHA-256 {file.sha256}, not {claim.sha256} as was proved"
    if file.size != claim.size:
        detail += f"; {file.size} bytes, not {claim.size}"
    found.fault("BYTES_DIFFER", name, None, detail)


def result_of_verification(answer: VerifyAnswer, claims: Claims, found: Findings) -> dict[str, Any]:
    """The result of the job."""
    return {
        "erasure_cycle_id": claims.cycle_id,
        "verified": found.fault_count == 0,
        "faults_count": found.fault_count,
        "faults": found.faults,
        "explained_count": found.explained_count,
        "explained": found.explained,
        "files_read": len(answer.files),
        "files_as_proved": found.as_proved,
        "erased_entries": sum(each.erased_count for each in answer.files),
        "erased_bytes": sum(each.erased_bytes for each in answer.files),
        "missing_count": answer.missing_count,
        "checkpoint": show_lsn(answer.checkpoint_lsn),
        "first_active": show_lsn(answer.first_active),
        "was_written_meanwhile": answer.moved,
    }
