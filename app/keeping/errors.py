"""Why metadata was not kept, brought back or checked: a code, one sentence, what to do, the exit code."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from app.starting import EXIT_BUSY, EXIT_CONFIGURATION, CannotStart
from spark.targets.errors import classify

EXIT_FAILED = 1
ROOM_ADVICE = "Make room there, remove what this command has left, and run it again."


class NotKept(Exception):
    """It was not done, and nothing that counts was left behind."""

    def __init__(self, code: str, detail: str, advice: str = "", *, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.advice = advice
        self.exit_code = exit_code


def misconfigured(code: str, detail: str, advice: str = "") -> NotKept:
    """Not as it was told to: somebody has to change something."""
    return NotKept(code, detail, advice, exit_code=EXIT_CONFIGURATION)


def not_now(code: str, detail: str, advice: str = "") -> NotKept:
    """Something is taken or away: trying again may help."""
    return NotKept(code, detail, advice, exit_code=EXIT_BUSY)


@contextmanager
def translated(password: str | None = None) -> Iterator[None]:
    """Say what files and databases refuse; the password of the metadata stays out of it.

    Raises: NotKept.
    """
    try:
        yield
    except CannotStart as error:
        raise NotKept("CANNOT_START", str(error), exit_code=error.exit_code) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise NotKept("FILE_REFUSED", f"{where}{error.strerror}", ROOM_ADVICE) from error
    except sqlite3.Error as error:
        raise NotKept("SQLITE_REFUSED", f"SQLite: {error}", ROOM_ADVICE) from error
    except sa.exc.DBAPIError as error:
        fault = classify(error.orig or error, secret=password)
        detail = f"the metadata database cannot be used: {fault.detail}"
        if fault.transient:
            raise not_now("METADATA_AWAY", detail, "Try again when it answers.") from error
        raise NotKept("METADATA_REFUSED", detail) from error
