"""The check of an archive file where a worker runs, which may be another machine.

Rules:
- a machine that does not find the folder of a file says so, and nothing of the file, which is not MISSING;
- what a worker finds names its machine: whoever sees the file otherwise can tell which one to look at.
"""

import socket
from dataclasses import dataclass
from pathlib import Path

from spark.targets.archive.archive import FileCheck, verify_file
from spark.targets.manifest import ManifestEntry
from spark.targets.work import FileWork, require_folder


@dataclass(frozen=True, slots=True)
class Reading:
    """What one machine found of a file."""

    check: FileCheck
    machine: str


def read_at_worker(entry: ManifestEntry) -> Reading:
    """Check one file, as `verify_file` does.

    Raises: ArchiveFailed: its folder is not there.
    """
    require_folder(str(Path(entry.path).parent))
    return Reading(verify_file(entry), socket.gethostname())


def reading_work(directory: str) -> FileWork[ManifestEntry, Reading]:
    """The work of reading an archive's files.

    Args:
        directory: of the archive; all jobs that read there are counted together.
    """
    return FileWork(read_at_worker, place=f"archive {directory}")
