"""Which protected sets a cycle has met: whoever reads a certificate sees what was kept, and for whom."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlmodel import Session, col, select

from app.erase.rows import REMAINING, ErasureFile
from app.kit.instants import instant_text
from app.protection.files import covers, name_of
from app.protection.rows import Protection
from spark.formats.je.log import file_name

PROTECTIONS_MAX: Final = 500


def protections_met(
    db: Session, store_id: str, files: Sequence[ErasureFile], *, began: datetime, ended: datetime
) -> dict[str, Any]:
    """Show the protections that held a file of the cycle while it ran, the oldest first."""
    rows = db.exec(
        select(Protection)
        .where(Protection.store == store_id, Protection.created_at <= ended)
        .where(col(Protection.ended_at).is_(None) | (col(Protection.ended_at) >= began))
        .order_by(col(Protection.id))
    ).all()
    met, held = [], set()
    for row in rows:
        covered = [file for file in files if covers(row.file_ranges, file.number)]
        if not covered:
            continue
        met.append(_shown(row, len(covered)))
        if row.ended_at is None or row.ended_at >= ended:
            held |= {file.number for file in covered if file.state in REMAINING}
    return {
        "count": len(met),
        "met": met[:PROTECTIONS_MAX],
        "files_held_at_the_end": [file_name(number) for number in sorted(held)],
    }


def _shown(row: Protection, file_count: int) -> dict[str, Any]:
    """Its ranges are what is left of them: a set may only shrink."""
    return {
        "id": row.id,
        "kind": str(row.kind),
        "name": row.name,
        "state": str(row.state),
        "from": instant_text(row.created_at),
        "until": None if row.ended_at is None else instant_text(row.ended_at),
        "files_of_this_cycle": file_count,
        "ranges": [
            [name_of(first), None if last is None else name_of(last)] for first, last in row.file_ranges
        ],
    }
