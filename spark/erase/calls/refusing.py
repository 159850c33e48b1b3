"""A call that is not done, or not to its end: the refusal on its way out.

Refused     carries a `calls.Refusal`; `unit.do` makes an answer of it
"""

import errno
import os
from typing import Self

from spark.erase.calls.calls import Refusal, RefusalCode


class Refused(Exception):
    """The call ends here."""

    def __init__(
        self,
        code: RefusalCode,
        detail: str,
        *,
        ref: str = "",
        file: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.refusal = Refusal(code, detail, ref, file, offset)

    @classmethod
    def of_disk(cls, error: OSError, doing: str, *, file: str, offset: int | None = None) -> Self:
        """Say that the medium, or the file system, failed."""
        detail = f"{doing}: {cls.reason(error)}"
        return cls(RefusalCode.DISK_ERROR, detail, ref=cls.errno_name(error), file=file, offset=offset)

    @classmethod
    def of_name(cls, error: OSError, doing: str, *, file: str) -> Self:
        """Say why a name could not be opened, looked at, or changed."""
        codes = {
            errno.ENOENT: RefusalCode.ALREADY_DELETED,
            errno.ELOOP: RefusalCode.FILE_REPLACED,
            errno.EACCES: RefusalCode.PERMISSION,
            errno.EPERM: RefusalCode.PERMISSION,
        }
        code = codes.get(error.errno or 0, RefusalCode.DISK_ERROR)
        return cls(code, f"{doing}: {cls.reason(error)}", ref=cls.errno_name(error), file=file)

    @staticmethod
    def reason(error: OSError) -> str:
        """Say what the operating system said."""
        return os.strerror(error.errno) if error.errno else str(error)

    @staticmethod
    def errno_name(error: OSError) -> str:
        """Name the errno: `EIO`."""
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
