"""The demo's second part: a JE environment erased in a throttled cycle, with a backup in the middle."""

import filecmp
import json
import re
import shutil
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lethe_client import CycleRequest, Job
from lethe_client.certificates import verify_certificate

from app.cli.erasure.commands import show_plan
from app.cli.shell.exits import ExitCode
from app.cli.shell.progress import display
from app.cli.shell.session import Session
from app.cli.shell.watching import follow, note_failure

STORE: Final = "orders-je"
# An environment of JE that is closed in order, and the numbers of the values in it that are current.
# lethe_samples/demo.py of the source writes it, and a test compares the two.
SAMPLE: Final = Path(__file__).with_name("je_sample.tar.xz")
LIVE: Final = "live.json"
CYCLE: Final = "PT20S"
BACKUP_AT_FRACTION: Final = 0.35
# Every value of the sample begins so, each with a number of its own.
MARKER: Final = re.compile(rb"v([0-9]{10})")


@dataclass(frozen=True, slots=True)
class Traces:
    """How many of the dead and of the live values can be found by reading the files as bytes."""

    dead: int
    live: int


def show_erasure(session: Session, folder: Path) -> tuple[int, dict[str, Any]]:
    """Write an environment, plan, erase, back up in the middle, prove, and verify the certificate."""
    client, out = session.client, session.out
    environment = folder / "orders"
    environment.mkdir()
    live = unpack(environment)
    size = sum(path.stat().st_size for path in environment.iterdir())
    out.note(f"\nA Berkeley DB JE environment of {size:,} bytes lies in {environment}.")
    client.stores.create(STORE, str(environment), kind="JE", labels={"site": "demo"})
    client.stores.check(STORE)
    before = _traces(environment, live)
    request = CycleRequest(min_file_age="PT0S", duration=CYCLE, reason="demo")
    out.say("\nThe plan of an erasure (nothing is written yet):")
    show_plan(session, client.erasure.plan(STORE, request))
    out.say(f"\nThe cycle, its work spread over {CYCLE}:")
    job, backup = _erase_with_a_backup(session, client.erasure.begin(STORE, request), folder)
    report: dict[str, Any] = {"job": job.raw, "backup": backup}
    if job.state != "SUCCEEDED":
        note_failure(session, job)
        return ExitCode.FAILED, report
    after = _traces(environment, live)
    rows = [["dead values", before.dead, after.dead], ["live values", before.live, after.live]]
    out.table(["found in the files' bytes", "before", "after"], rows, title="\nRead as bytes, file by file:")
    report |= {"traces": {"dead_before": before.dead, "dead_after": after.dead, "live": after.live}}
    certified = _certificate(session, folder)
    report["certificate"] = certified
    good = backup["valid"] and backup["same"] and after.live == before.live and certified["proved"]
    return ExitCode.OK if good else ExitCode.FAILED, report


def unpack(environment: Path) -> frozenset[int]:
    """Put the sample's files into an empty directory, and return the numbers of its current values."""
    with tarfile.open(SAMPLE, "r:xz") as archive:
        for member in archive:  # file by file: the Python of Debian 12 has no filters for extractall
            if (file := archive.extractfile(member)) is not None:
                (environment / Path(member.name).name).write_bytes(file.read())
    listed = environment / LIVE
    live = frozenset(json.loads(listed.read_bytes()))
    listed.unlink()
    return live


def _erase_with_a_backup(session: Session, started: Job, folder: Path) -> tuple[Job, dict[str, Any]]:
    """Follow to a third, take a backup while the cycle is at work, follow to the end."""
    client, job = session.client, started
    with display() as shown:
        for job in client.jobs.follow(started.id):
            shown.show(job)
            if (job.progress.fraction or 0.0) >= BACKUP_AT_FRACTION:
                break
    backup = _back_up(session, folder / "backup")
    return (job if job.ended else follow(session, job)), backup


def _back_up(session: Session, target: Path) -> dict[str, Any]:
    """What `lethe backup run` does around a tool: protect, copy, compare, end."""
    client, out = session.client, session.out
    begun = client.backups.begin(STORE, tool="demo", lease="PT5M")
    target.mkdir()
    for file in begun.files:
        shutil.copyfile(file.path, target / file.name)
    written = _erased_now(session)
    time.sleep(1.0)
    moved = _erased_now(session) - written
    same = all(filecmp.cmp(file.path, target / file.name, shallow=False) for file in begun.files)
    ended = client.backups.end(STORE, begun.id)
    out.note(
        f"A backup of {begun.file_count} files: the eraser stood still after {begun.abort_latency_ms} ms, "
        f"wrote {moved} bytes while it lasted, and the copy is {'valid' if ended.valid else 'INVALID'}."
    )
    return {"id": begun.id, "abort_latency_ms": begun.abort_latency_ms, "valid": ended.valid, "same": same}


def _erased_now(session: Session) -> int:
    stats: Mapping[str, Any] = session.client.erasure.get(STORE).stats
    return int(stats["eraserWriteBytes"])


def _traces(directory: Path, live: frozenset[int]) -> Traces:
    """Look for the values themselves, as somebody with the disk would."""
    found: set[int] = set()
    for path in sorted(directory.glob("*.jdb")):
        found.update(int(number) for number in MARKER.findall(path.read_bytes()))
    return Traces(dead=len(found - live), live=len(found & live))


def _certificate(session: Session, folder: Path) -> dict[str, Any]:
    """Fetch the certificate, and check its signature without the service."""
    client, out = session.client, session.out
    path = folder / "certificate.json"
    path.write_bytes(client.erasure.certificate(STORE))
    keys = frozenset(key.id for key in client.signing_keys.list())
    verified = verify_certificate(path.read_bytes(), trusted=keys)
    totals = verified.certificate["totals"]
    out.say("\nThe certificate, its signature checked without the service:")
    out.facts(
        {
            "file": path,
            "cycle": verified.certificate["cycle"]["state"],
            "files that remain": totals["files_remaining"],
            "signed with": verified.key_id,
            "files erased and proved": totals["files_erased_and_proved"],
            "entries erased and proved": totals["entries_erased_and_proved"],
            "what stays readable": ", ".join(each["code"] for each in verified.certificate["stays_readable"]),
        }
    )
    proved = all(each["proved"] for each in verified.certificate["files"] if each["state"] == "ERASED")
    return {"path": str(path), "key_id": verified.key_id, "proved": proved, "totals": dict(totals)}
