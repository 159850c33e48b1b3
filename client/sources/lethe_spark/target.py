"""A database that is only read: where it is, and who may ask it."""

from pathlib import Path
from typing import Final

from lethe_spark.options import Options
from spark.targets.connection import Connection, connect
from spark.targets.target import SessionLimits, Target

TARGET_OPTIONS: Final = ("url", "password_file", "schema", "statement_timeout_s")
PASSWORD_BYTES_MAX: Final = 4096
# A whole table may be read in one statement.
STATEMENT_S_DEFAULT: Final = 3600
STATEMENT_S_MAX: Final = 7 * 86_400


class ReadTarget:
    """A database as options name it; picklable, and without its password, which each worker reads.

    Args:
        schema: of PostgreSQL; None: what the URL's user finds.
    """

    def __init__(self, options: Options, *, schema: str | None = None) -> None:
        self._url = options.required("url", "such as postgresql+psycopg://user@host:5432/database")
        found = options.text("password_file")
        self._password_file = None if found is None else options.path("password_file", "")
        self._schema = schema or options.text("schema")
        self._timeout_ms = 1000 * options.number(
            "statement_timeout_s", default=STATEMENT_S_DEFAULT, least=1, most=STATEMENT_S_MAX
        )
        Target(self._url, schema=self._schema)  # says what is wrong with it before anything is asked

    def connect(self) -> Connection:
        """A connection that can only read; close it.

        Raises: OptionInvalid: the password's file cannot be read. TargetError.
        """
        target = Target(self._url, password=self._password(), schema=self._schema)
        limits = SessionLimits(
            statement_timeout_ms=self._timeout_ms, idle_in_transaction_timeout_ms=self._timeout_ms
        )
        return connect(target, application_name="lethe_spark", limits=limits, read_only=True)

    def _password(self) -> str | None:
        if self._password_file is None:
            return None
        return first_line(self._password_file, what="password")


def first_line(path: Path, *, what: str) -> str:
    """The secret that a file holds. Raises: OptionInvalid."""
    try:
        with path.open("rb") as file:
            text = file.read(PASSWORD_BYTES_MAX).decode("utf-8").strip("\r\n")
    except OSError as error:
        raise Options("lethe_spark", {}).refuse(
            f"the {what} file {path} cannot be read here ({error.strerror}); each worker must see it"
        ) from error
    except UnicodeDecodeError:
        raise Options("lethe_spark", {}).refuse(f"the file {path} holds no {what}") from None
    return text
