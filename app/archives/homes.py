"""Archives whose data directory, or root, has moved: their rows follow them.

A row names the folder that was the archive's when its job began. After a move, or a restore of the metadata
into another data directory, archives lie below the root of now: they would not be found, would never end, and
a job that goes on would write beside them.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import ColumnElement, and_, or_, update
from sqlmodel import Session, col, select

from app.archives.rows import Archive
from app.db import Database
from app.jobs.rows import Job
from app.settings import Settings
from spark.targets.archive.file import is_safe_name, job_directory

PIECE: Final = 1_000
logger = structlog.get_logger("lethe.archives")


@dataclass(frozen=True, slots=True)
class _Place:
    job_id: str
    store: str
    directory: Path
    goes_on: bool
    """Its job has not ended."""


def bring_home(database: Database, settings: Settings, *, instance_id: str, is_start: bool) -> int:
    """Let rows name the folder below the root where their archives lie now; returns how many were others.

    Args:
        is_start: nothing runs here yet: archives of jobs that have not ended follow too.
    """
    root, after, moved, strays = settings.effective_archive_root, "", 0, _Strays(settings)
    while True:
        with database.reading() as db:
            rows = _elsewhere(db, settings, instance_id, after=after, is_start=is_start)
        found = {row.job_id: home for row in rows if (home := _home(root, row)) is not None}
        if found:
            with database.transaction(is_news=False) as db:
                for job_id, home in found.items():
                    place = col(Archive.job_id) == job_id
                    db.execute(update(Archive).where(place).values(directory=str(home)))
            moved += len(found)
        strays.meet(row.directory for row in rows if row.job_id not in found)
        if len(rows) < PIECE:
            break
        after = rows[-1].job_id
    if moved:
        logger.info("archives lie below another root than before", archives=moved, root=str(root))
    if is_start:
        strays.tell()
    return moved


class _Strays:
    """Archives that are read where they lie, and that no retention removes."""

    def __init__(self, settings: Settings) -> None:
        self._root, self._own = settings.effective_archive_root, settings.own_archives
        self._number, self._first = 0, ""

    def meet(self, directories: Iterable[Path]) -> None:
        """Count those that lie here."""
        for directory in directories:
            if self._own not in directory.parents and directory.is_dir():
                self._number += 1
                self._first = self._first or str(directory)

    def tell(self) -> None:
        """Say what only the operator can mend."""
        if self._number:
            logger.warning(
                "archives lie below no root of now: they are read there, and none is removed when its time"
                " is over. Copy them below the root, with the folders of their stores",
                archives=self._number,
                first=self._first,
                root=str(self._root),
            )


def _elsewhere(
    db: Session, settings: Settings, instance_id: str, *, after: str, is_start: bool
) -> list[_Place]:
    """A piece of the archives that their rows look for outside of the root."""
    root = f"{settings.effective_archive_root}/"
    held: ColumnElement[bool] = col(Job.finished_at).is_(None)
    if is_start:
        held &= col(Job.lease_instance).is_not(None) & (col(Job.lease_instance) != instance_id)
    conditions: list[ColumnElement[bool]] = [
        col(Archive.job_id) > after,
        ~col(Archive.directory).startswith(root, autoescape=True),
        or_(col(Job.id).is_(None), ~held),
    ]
    if settings.archive_root is None:  # else all share it
        conditions.append(col(Archive.instance) == instance_id)
    goes_on = and_(col(Job.id).is_not(None), col(Job.finished_at).is_(None))
    query = select(Archive.job_id, Archive.store, Archive.directory, goes_on)
    query = query.join(Job, col(Job.id) == col(Archive.job_id), isouter=True).where(*conditions)
    found = db.exec(query.order_by(col(Archive.job_id)).limit(PIECE)).all()
    return [
        _Place(job_id, store, Path(directory), bool(is_open)) for job_id, store, directory, is_open in found
    ]


def _home(root: Path, place: _Place) -> Path | None:
    """Where an archive lies now, or would be made; None: it is not there, nor to be.

    What is still where it was, is followed once all of it is here too, and nobody adds to it: a data
    directory may have been copied while the service that it is of works on.
    """
    if not (is_safe_name(place.store) and is_safe_name(place.job_id)):
        return None
    home = job_directory(root, place.store, place.job_id)
    if not place.directory.is_dir():
        return home if place.goes_on or home.is_dir() else None
    if place.goes_on or not home.is_dir():
        return None
    try:
        return home if _sizes(place.directory).items() <= _sizes(home).items() else None
    except OSError:  # another look is made later
        return None


def _sizes(directory: Path) -> dict[str, int]:
    """Bytes of each file of an archive: a copy that was cut short has all names, too."""
    with os.scandir(directory) as found:
        return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in found}
