"""The drivers of PostgreSQL and MariaDB, loaded with the first name of theirs that is asked for.

Who has metadata and targets in SQLite alone never needs them. Modules that a start loads take them from here.
A fault loads none: where files or memory have run out it would hide what was to be reported.
"""

import sqlite3
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from spark.formats.arrow import Later

__all__ = ["driver_errors", "is_loaded", "psycopg", "pymysql"]

if TYPE_CHECKING:
    import psycopg
    import psycopg.conninfo
    import pymysql
else:
    psycopg, pymysql = Later("psycopg"), Later("pymysql")


def is_loaded(driver: ModuleType) -> bool:
    """Whether a driver is there; one that is not has raised nothing."""
    return driver.__name__ in sys.modules


def driver_errors() -> tuple[type[Exception], ...]:
    """What drivers that are there raise."""
    loaded: list[ModuleType] = [each for each in (psycopg, pymysql) if is_loaded(each)]
    return sqlite3.Error, *(each.Error for each in loaded)
