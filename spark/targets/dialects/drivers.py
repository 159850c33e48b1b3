"""The drivers of PostgreSQL and MariaDB, loaded with the first name of theirs that is asked for.

Who has metadata and targets in SQLite alone never needs them. Modules that a start loads take them from here.
A fault loads none: where files or memory have run out it would hide what was to be reported.
"""

import sqlite3
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from spark.formats.arrow import Later

__all__ = ["driver_errors", "is_raised_by", "psycopg", "pymysql"]

if TYPE_CHECKING:
    import psycopg
    import psycopg.conninfo
    import pymysql
else:
    psycopg, pymysql = Later("psycopg"), Later("pymysql")


def driver_errors() -> tuple[type[Exception], ...]:
    """What drivers raise: one that is not loaded has raised nothing."""
    loaded: list[ModuleType] = [each for each in (psycopg, pymysql) if each.__name__ in sys.modules]
    return sqlite3.Error, *(each.Error for each in loaded)


def is_raised_by(driver: ModuleType, exc: BaseException) -> bool:
    """Whether an exception is one of this driver's."""
    return driver.__name__ in sys.modules and isinstance(exc, driver.Error)
