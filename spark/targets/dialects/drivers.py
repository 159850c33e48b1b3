"""The drivers of PostgreSQL and MariaDB, loaded with the first name of theirs that is asked for.

Who has metadata and targets in SQLite alone never needs them. Modules that a start loads take them from here.
"""

from typing import TYPE_CHECKING

from spark.formats.arrow import Later

__all__ = ["psycopg", "pymysql"]

if TYPE_CHECKING:
    import psycopg
    import psycopg.conninfo
    import pymysql
else:
    psycopg, pymysql = Later("psycopg"), Later("pymysql")
