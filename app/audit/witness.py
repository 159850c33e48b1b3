"""What this instance has last seen of the chain, kept outside of the metadata.

Whoever can write the metadata can write the whole chain anew, or put an older copy back: nothing in it could
tell. Each instance keeps the newest link in its data directory, and compares.

Rules:
- the file goes on only where the chain still holds what it names: what was put back or rewritten stays told;
- a start notes in the chain itself that it was put back, and what was seen before; then it goes by what is;
- what `lethe metadata restore` has brought back is noted by the next start (NOTE);
- a start that notes either lets the numbers of the feed leap, for its readers have seen more of them, and
  makes safe what the older copy says (app.audit.past), unless another process has done so since.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import structlog
from lethe_client.audit_chain import Fault, Link, instant_text
from sqlmodel import Session, col, select

from app.audit.past import IsAhead, find_unsure, go_on_from
from app.audit.reading import hash_at
from app.auth.actions import Action
from app.auth.chain import adopt, anchor, service_row
from app.auth.rows import AuditEvent
from app.db import Database
from app.feed.numbering import leap
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name

FILE: Final = "audit.head"
NOTE: Final = "metadata.restored"
BYTES_MAX: Final = 4_096
ADOPTED_PER_PASS: Final = 500
CODE: Final = "CHAIN_PUT_BACK"
logger = structlog.get_logger("lethe.audit")


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest link that an instance has seen, and when."""

    link: Link
    at: datetime


def seen_by(data_dir: Path) -> Seen | None:
    """What the file of an instance says; None: there is none, or it cannot be read."""
    try:
        with (data_dir / FILE).open("rb") as file:
            found = json.loads(file.read(BYTES_MAX))
        return Seen(Link(int(found["seq"]), str(found["hash"])), datetime.fromisoformat(found["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def fault_of(db: Session, seen: Seen, *, now: datetime) -> Fault | None:
    """Whether the chain lacks what an instance has seen of it."""
    begin, head = anchor(db)
    link = seen.link
    if link.seq <= 0 or hash_at(db, link.seq) == link.hash or link == begin:
        return None
    if link.seq < begin.seq and seen.at < now - as_timedelta(
        effective_by_name(db, "lethe.retention.audit", {}).value
    ):
        return None
    what = "ends before it" if head.seq < link.seq else "holds another row there, or none"
    seen_at = instant_text(seen.at)
    return Fault(CODE, link.seq, f"this instance saw row {link.seq} at {seen_at}, and the chain {what}")


def _is_made_safe(db: Session, seen: Seen) -> bool:
    """Whether the start of another process has noted the older copy since: jobs go on by its leave."""
    noted = col(AuditEvent.action).in_([Action.AUDIT_PUT_BACK, Action.METADATA_RESTORE])
    return db.exec(select(AuditEvent.id).where(noted, AuditEvent.at > seen.at)).first() is not None


class Witness:
    """Looks at the chain for one instance.

    Args:
        is_ahead: whether the target of a store has seen a greater epoch than this metadata.
    """

    def __init__(self, database: Database, data_dir: Path, is_ahead: IsAhead = lambda _store: False) -> None:
        self._database = database
        self._data_dir = data_dir
        self._is_ahead = is_ahead
        self._told: Link | None = None

    def begin(self) -> None:
        """At a start: take in what a former version has written, and note what was put back."""
        while self._adopted():
            pass
        self._note_restore()
        seen = seen_by(self._data_dir)
        with self._database.reading() as db:
            fault = None if seen is None else fault_of(db, seen, now=self._database.now(db))
        if seen is not None and fault is not None:
            logger.error("the audit chain was restored to an earlier state or rewritten", detail=fault.detail)
            self._note_put_back(seen)
        self._write()

    def look(self) -> None:
        """Now and then: go on to the present head, unless the chain lacks what was seen."""
        seen = seen_by(self._data_dir)
        with self._database.reading() as db:
            fault = None if seen is None else fault_of(db, seen, now=self._database.now(db))
        if fault is None:
            self._write()
        elif seen is not None and self._told != seen.link:
            self._told = seen.link
            logger.error(
                "the audit chain was restored to an earlier state or rewritten: run `lethe audit verify`",
                detail=fault.detail,
            )

    def _adopted(self) -> int:
        with self._database.transaction(is_news=False) as db:
            rows = adopt(db, now=self._database.now(db), rows_max=ADOPTED_PER_PASS)
        if rows:
            logger.warning("audit rows without a place in the chain were taken in", rows=rows)
        return rows

    def _note_put_back(self, seen: Seen) -> None:
        unsure = find_unsure(self._database, self._is_ahead)
        with self._database.transaction() as db:
            now = self._database.now(db)
            _, head = anchor(db)
            detail = {
                "seen": {"seq": seen.link.seq, "hash": seen.link.hash, "at": instant_text(seen.at)},
                "found": {"seq": head.seq, "hash": head.hash},
            }
            if not _is_made_safe(db, seen):
                detail |= go_on_from(db, unsure, now=now)
            db.add(service_row(Action.AUDIT_PUT_BACK, now=now, detail=detail))
            leap(db, now=now)

    def _note_restore(self) -> None:
        note = self._data_dir / NOTE
        try:
            detail: dict[str, Any] = json.loads(note.read_bytes()[:BYTES_MAX])
        except OSError:  # there is none, as a rule
            return
        except ValueError:
            detail = {"id": "unknown"}
        unsure = find_unsure(self._database, self._is_ahead)
        with self._database.transaction() as db:
            query = select(AuditEvent.id).where(
                AuditEvent.action == Action.METADATA_RESTORE, AuditEvent.subject_id == str(detail.get("id"))
            )
            if db.exec(query).first() is None:  # else a start was killed after it had said so
                now = self._database.now(db)
                detail |= go_on_from(db, unsure, now=now)
                row = service_row(Action.METADATA_RESTORE, now=now, detail=detail)
                row.subject_type, row.subject_id = "metadata", str(detail.get("id"))
                db.add(row)
                leap(db, now=row.at)
        with suppress(OSError):  # then the next start finds that it was said
            note.unlink()

    def _write(self) -> None:
        try:
            self._keep()
        except OSError as error:  # without room there, say: the next look tries again
            logger.warning("the head of the audit chain cannot be kept", error=error.strerror)

    def _keep(self) -> None:
        with self._database.reading() as db:
            now = self._database.now(db)
            _, head = anchor(db)
        new = self._data_dir / f"{FILE}.new"
        said = {"seq": head.seq, "hash": head.hash, "at": instant_text(now)}
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(said, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._data_dir / FILE)
