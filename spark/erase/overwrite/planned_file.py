"""A file that a plan names, opened again: it must still be that file."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from os import stat_result
from pathlib import Path

from spark.erase.calls.calls import RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.overwrite.file_layer import FileLayer, OpenFile, Tally
from spark.erase.reading.directory import Identity
from spark.targets.files.log_place import log_path


@contextmanager
def opened_file(layer: FileLayer, tally: Tally, path: Path, flags: int) -> Iterator[OpenFile]:
    """Open a file or a directory.

    Raises: Refused: ALREADY_DELETED, FILE_REPLACED (a symbolic link), PERMISSION, DISK_ERROR.
    """
    try:
        descriptor = layer.open(path, flags)
    except OSError as error:
        raise Refused.of_name(error, "open", file=path.name) from error
    file = OpenFile(layer, tally, descriptor, path.name)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def opened_as_planned(
    layer: FileLayer,
    tally: Tally,
    directory: Path,
    number: int,
    *,
    identity: Identity,
    flags: int,
    with_links: bool = True,
    with_mtime: bool,
) -> Iterator[OpenFile]:
    """Open a log file, and see that it, and what its name leads to, is what was planned.

    Args:
        with_links: also compare how many names it has.
        with_mtime: nothing of ours was written since the plan, so nobody's may have been.
    Raises: Refused: see `opened_file`; FILE_RESIZED, HARD_LINKED, FILE_TOUCHED.
    """
    path = log_path(directory, number)
    compare = partial(
        check_identity, planned=identity, name=path.name, with_links=with_links, with_mtime=with_mtime
    )
    with opened_file(layer, tally, path, flags) as file:
        compare(file.status())
        try:
            named = layer.stat(path)
        except OSError as error:
            raise Refused.of_name(error, "stat", file=file.name) from error
        compare(named)
        yield file


def check_identity(
    found: stat_result, planned: Identity, *, name: str, with_links: bool = True, with_mtime: bool
) -> None:
    """Compare a file's status with the plan.

    Raises: Refused.
    """
    if not stat.S_ISREG(found.st_mode):
        raise Refused(RefusalCode.FILE_REPLACED, "it is no regular file", file=name)
    if (found.st_dev, found.st_ino) != (planned.device, planned.inode):
        detail = f"inode {planned.inode} of device {planned.device} became {found.st_ino} of {found.st_dev}"
        raise Refused(RefusalCode.FILE_REPLACED, detail, file=name)
    if found.st_nlink == 0:
        raise Refused(RefusalCode.ALREADY_DELETED, "it has no name any more", file=name)
    if with_links and (found.st_nlink > 1 or found.st_nlink != planned.links):
        detail = f"{found.st_nlink} names share its bytes"
        raise Refused(RefusalCode.HARD_LINKED, detail, file=name)
    if found.st_size != planned.size:
        detail = f"{planned.size} bytes became {found.st_size}"
        raise Refused(RefusalCode.FILE_RESIZED, detail, file=name)
    if with_mtime and found.st_mtime_ns != planned.mtime_ns:
        detail = f"written at {found.st_mtime_ns} ns, after the plan saw {planned.mtime_ns} ns"
        raise Refused(RefusalCode.FILE_TOUCHED, detail, file=name)
