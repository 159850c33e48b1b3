"""The system calls that the control file and its creation are made of: here tests end a process."""

import os
from pathlib import Path

from spark.targets.files import ofd_lock
from spark.targets.files.beneath import open_beneath
from spark.targets.files.log_place import medium_of_log
from spark.targets.files.medium import Medium
from spark.targets.files.mode_bits import refuse, wanted_by


class SystemCalls:
    """Each method is one system call (`medium_of` a question), with the meaning of its namesake."""

    def open(self, name: str, flags: int, *, mode: int, dir_fd: int | None) -> int:
        if dir_fd is None:
            return open_beneath(name, flags, mode)
        if flags & os.O_CREAT:
            refuse(os.fstat(dir_fd), os.W_OK | os.X_OK, name)
        fd = os.open(name, flags, mode, dir_fd=dir_fd)
        try:
            refuse(os.fstat(fd), wanted_by(flags), name)
        except OSError:
            os.close(fd)
            raise
        return fd

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return os.pread(fd, count, offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        os.fchown(fd, uid, gid)

    def fchmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def link(self, source: str, target: str, *, dir_fd: int) -> None:
        os.link(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    def unlink(self, name: str, *, dir_fd: int) -> None:
        os.unlink(name, dir_fd=dir_fd)

    def medium_of(self, directory: Path) -> Medium:
        return medium_of_log(directory)

    def try_exclusive(self, fd: int, byte: int) -> bool:
        return ofd_lock.try_exclusive(fd, byte)

    def try_shared(self, fd: int, byte: int) -> bool:
        return ofd_lock.try_shared(fd, byte)

    def release(self, fd: int, byte: int) -> None:
        ofd_lock.release(fd, byte)

    def release_all(self, fd: int) -> None:
        ofd_lock.release_all(fd)

    def close(self, fd: int) -> None:
        os.close(fd)


SYSTEM = SystemCalls()
