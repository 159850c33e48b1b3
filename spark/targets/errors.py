"""What can go wrong at a target. Every module of `spark.targets` raises only these.

TargetError                     TARGET_ERROR             anything that has no name of its own
├── TargetUrlInvalid            TARGET_URL_INVALID
├── TargetPathRefused           PATH_NOT_ALLOWED         a file outside of the roots
├── TargetUnreachable           TARGET_UNREACHABLE       transient; also a connection lost in the middle
├── TargetHostNotAllowed        HOST_NOT_ALLOWED         by the address that it has now
├── TargetAuthFailed            TARGET_AUTH_FAILED
├── TargetCertificateInvalid    TARGET_CERTIFICATE_INVALID  TLS: who answers cannot be verified
├── TargetFull                  TARGET_FULL              transient: its disk or quota has no room left
├── TargetDatabaseMissing       TARGET_DATABASE_MISSING
├── TargetIsAnother             TARGET_IS_ANOTHER        not the database that the store is bound to
├── TargetTablesMissing         TARGET_TABLES_MISSING
│   └── TargetTablesElsewhere   TARGET_TABLES_ELSEWHERE  in another schema, or with another prefix
├── TargetReadOnly              TARGET_READ_ONLY         a right is missing
├── TargetSchemaUnsupported     TARGET_SCHEMA_UNSUPPORTED
│   └── MixedTimeTypes          MIXED_TIME_TYPES
├── TargetLockTimeout           TARGET_LOCK_TIMEOUT      transient; deadlocks and serialisation failures too
├── TargetStatementTimeout      TARGET_STATEMENT_TIMEOUT transient
├── TargetCancelled             TARGET_CANCELLED         our own cancel()
├── TargetRowConflict           TARGET_ROW_CONFLICT      a constraint refused a row
│   └── TargetParentMissing     TARGET_ROW_CONFLICT      a foreign key wants a row that is not there
├── FenceRaised                 FENCE_RAISED
├── ArchiveFailed               ARCHIVE_FAILED           the archive could not be made durable
│   └── ArchiveFull             ARCHIVE_FULL             its disk or quota has no room left
├── ArchiveCorrupt              ARCHIVE_CORRUPT
└── RestoreConflict             RESTORE_CONFLICT
"""

from __future__ import annotations

import errno
import re
import sqlite3
from typing import ClassVar, Final

from spark.targets.dialects.drivers import is_loaded, psycopg, pymysql


class TargetError(Exception):
    """A fact about a target, with a stable `code`; `transient` says that the same call may succeed later."""

    code: ClassVar[str] = "TARGET_ERROR"
    transient: ClassVar[bool] = False

    def __init__(self, detail: str, *, sqlstate: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.sqlstate = sqlstate


class TargetUrlInvalid(TargetError):
    code = "TARGET_URL_INVALID"


class TargetPathRefused(TargetError):
    code = "PATH_NOT_ALLOWED"


class TargetUnreachable(TargetError):
    code = "TARGET_UNREACHABLE"
    transient = True


class TargetHostNotAllowed(TargetError):
    code = "HOST_NOT_ALLOWED"


class TargetAuthFailed(TargetError):
    code = "TARGET_AUTH_FAILED"


class TargetCertificateInvalid(TargetError):
    code = "TARGET_CERTIFICATE_INVALID"


class TargetFull(TargetError):
    code = "TARGET_FULL"
    transient = True


class TargetDatabaseMissing(TargetError):
    code = "TARGET_DATABASE_MISSING"


class TargetIsAnother(TargetError):
    code = "TARGET_IS_ANOTHER"


class TargetTablesMissing(TargetError):
    code = "TARGET_TABLES_MISSING"


class TargetTablesElsewhere(TargetTablesMissing):
    code = "TARGET_TABLES_ELSEWHERE"


class TargetReadOnly(TargetError):
    code = "TARGET_READ_ONLY"


class TargetSchemaUnsupported(TargetError):
    code = "TARGET_SCHEMA_UNSUPPORTED"


class MixedTimeTypes(TargetSchemaUnsupported):
    code = "MIXED_TIME_TYPES"


class TargetLockTimeout(TargetError):
    code = "TARGET_LOCK_TIMEOUT"
    transient = True


class TargetStatementTimeout(TargetError):
    code = "TARGET_STATEMENT_TIMEOUT"
    transient = True


class TargetCancelled(TargetError):
    code = "TARGET_CANCELLED"


class TargetRowConflict(TargetError):
    code = "TARGET_ROW_CONFLICT"


class TargetParentMissing(TargetRowConflict):
    """Of an insert: it may succeed after that of another row."""


class ArchiveFailed(TargetError):
    code = "ARCHIVE_FAILED"


class ArchiveFull(ArchiveFailed):
    code = "ARCHIVE_FULL"


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def archive_failure(place: object, error: Exception) -> ArchiveFailed:
    """What an error of the disk means for an archive: no room passes, anything else does not."""
    said = getattr(error, "strerror", None) or str(error)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return ArchiveFull(f"{place}: {said}")
    return ArchiveFailed(f"{place}: {said}")


class ArchiveCorrupt(TargetError):
    code = "ARCHIVE_CORRUPT"


class RestoreConflict(TargetError):
    code = "RESTORE_CONFLICT"


class FenceRaised(TargetError):
    """Somebody else owns the resource: `token` is ours, `fence_token` the row's (None: there is no row)."""

    code = "FENCE_RAISED"

    def __init__(self, detail: str, *, token: int, fence_token: int | None) -> None:
        super().__init__(detail)
        self.token = token
        self.fence_token = fence_token

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; this one crosses processes with its keywords.
        return (_fence_raised, (self.detail, self.token, self.fence_token))


def _fence_raised(detail: str, token: int, fence_token: int | None) -> FenceRaised:
    return FenceRaised(detail, token=token, fence_token=fence_token)


UNREACHED: Final = frozenset(
    {TargetAuthFailed.code, TargetCertificateInvalid.code, TargetDatabaseMissing.code}
)
"""Codes of a target that was not reached as far as its tables, and does not come by waiting."""
_BY_SQLSTATE: dict[str, type[TargetError]] = {
    "23503": TargetParentMissing,  # of a delete too: a child is still there
    "25006": TargetReadOnly,
    "25P03": TargetUnreachable,  # the server closed us: idle in transaction for too long
    "25P04": TargetStatementTimeout,  # the role's transaction_timeout (17): as if the statement were too long
    "3D000": TargetDatabaseMissing,
    "3F000": TargetTablesMissing,
    "40001": TargetLockTimeout,
    "40P01": TargetLockTimeout,
    "42501": TargetReadOnly,
    "42703": TargetSchemaUnsupported,
    "42883": TargetSchemaUnsupported,
    "42P01": TargetTablesMissing,
    "53100": TargetFull,
    "53300": TargetUnreachable,
    "55P03": TargetLockTimeout,
    "57014": TargetStatementTimeout,
    "57P01": TargetUnreachable,
    "57P02": TargetUnreachable,
    "57P03": TargetUnreachable,
    "57P04": TargetDatabaseMissing,
    "57P05": TargetUnreachable,
}
_BY_SQLSTATE_CLASS: dict[str, type[TargetError]] = {
    "08": TargetUnreachable,
    "23": TargetRowConflict,
    "28": TargetAuthFailed,
}
# NOT NULL, CHECK and partitions, WITH CHECK OPTION.
_ROW_QUOTED = frozenset({"23502", "23514", "44000"})
_COPIED = re.compile(r"COPY [^\n]*?, \S+ \d+")
_BY_SQLITE_CODE: dict[int, type[TargetError]] = {
    sqlite3.SQLITE_BUSY: TargetLockTimeout,
    sqlite3.SQLITE_LOCKED: TargetLockTimeout,
    sqlite3.SQLITE_INTERRUPT: TargetStatementTimeout,
    sqlite3.SQLITE_READONLY: TargetReadOnly,
    sqlite3.SQLITE_PERM: TargetReadOnly,
    sqlite3.SQLITE_AUTH: TargetReadOnly,
    sqlite3.SQLITE_CANTOPEN: TargetUnreachable,
    sqlite3.SQLITE_IOERR: TargetUnreachable,
    sqlite3.SQLITE_FULL: TargetFull,
    sqlite3.SQLITE_NOTADB: TargetSchemaUnsupported,
    sqlite3.SQLITE_CONSTRAINT: TargetRowConflict,
}
_MYSQL_CODES: dict[type[TargetError], tuple[int, ...]] = {
    TargetAuthFailed: (1044, 1045, 1129, 1130, 1131, 1132, 1251, 1275, 1524, 1698, 1820, 1862, 2059),
    TargetCertificateInvalid: (2026,),
    # A disk, a quota, or the size that a table space may have.
    TargetFull: (1021, 1114),
    TargetDatabaseMissing: (1049,),
    TargetTablesMissing: (1051, 1146),
    TargetReadOnly: (1095, 1142, 1143, 1223, 1227, 1290, 1370, 1792, 1836, 3100, 4166),
    # Unknown columns, functions, collations; InnoDB under STATEMENT binary logs; Galera's refusals.
    TargetSchemaUnsupported: (1054, 1115, 1193, 1267, 1271, 1273, 1305, 1665, 1785),
    # Waits, deadlocks, rows that changed since a snapshot, NOWAIT.
    TargetLockTimeout: (1020, 1205, 1213, 1637, 3058, 3101, 3572),
    TargetStatementTimeout: (1317, 1969, 3024),
    TargetParentMissing: (1216, 1452),
    TargetRowConflict: (1022, 1048, 1062, 1169, 1217, 1451, 1557, 1586, 3819, 4025),
}
# The session is over, or there is none: restarts, kills, too many connections, the network.
LOST_MYSQL_CODES = frozenset(
    {
        0,
        1053,
        1077,
        1078,
        1079,
        1080,
        1152,
        1158,
        1159,
        1160,
        1161,
        1184,
        1927,
        2006,
        2013,
        2014,
        2027,
        2055,
        4031,
    }
)
_UNREACHABLE_MYSQL_CODES = LOST_MYSQL_CODES | {1040, 1042, 1043, 1203, 1226, 2002, 2003, 2005}
_BY_MYSQL_CODE: dict[int, type[TargetError]] = {
    code: found for found, codes in _MYSQL_CODES.items() for code in codes
} | dict.fromkeys(_UNREACHABLE_MYSQL_CODES, TargetUnreachable)
# A value that a column does not take; the driver hands no SQLSTATE on.
_MYSQL_DATA_CODES = frozenset(
    {1153, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1425, 1441, 1525, 1690, 3140, 3903}
)
MYSQL_DATA_STATE = "22000"
# Errors of writing tell by the number of the operating system why: `Error writing file (Errcode: 28 ...)`.
_MYSQL_NO_ROOM = tuple(f"rrcode: {number} " for number in (errno.ENOSPC, errno.EDQUOT))
# A refused connection carries no SQLSTATE in libpq; only its text tells what happened.
_BY_CONNECT_TEXT: tuple[tuple[str, type[TargetError]], ...] = (
    ("password authentication failed", TargetAuthFailed),
    ("no password supplied", TargetAuthFailed),
    ("no pg_hba.conf entry", TargetAuthFailed),
    ("authentication failed", TargetAuthFailed),
    ("permission denied for database", TargetAuthFailed),
    ("is not permitted to log in", TargetAuthFailed),
    # libpq's own words: verify-ca and verify-full, the authority's file, a name that the certificate lacks.
    ("certificate verify failed", TargetCertificateInvalid),
    ("root certificate file", TargetCertificateInvalid),
    ("does not match host name", TargetCertificateInvalid),
    ("server does not support SSL", TargetCertificateInvalid),
)


def classify(exc: BaseException, *, cancelled: bool = False, secret: str | None = None) -> TargetError:
    """Name what a driver raised.

    Args:
        exc: an exception of psycopg, PyMySQL or sqlite3; a TargetError is returned as it is.
        cancelled: our own `cancel()` was called; an interrupted statement or wait is then TargetCancelled.
        secret: a password that must not appear in the detail.
    """
    if isinstance(exc, TargetError):
        return exc
    detail = " ".join(_text_of(exc).split()) or type(exc).__name__
    if secret:
        detail = detail.replace(secret, "***")
    if isinstance(exc, sqlite3.Error):
        found = _sqlite_class(exc, detail)
    elif is_loaded(psycopg) and isinstance(exc, psycopg.Error):
        found = _postgresql_class(exc, detail)
    elif is_loaded(pymysql) and isinstance(exc, pymysql.Error):
        return _mysql_error(exc, cancelled=cancelled, secret=secret)
    else:
        found = TargetError
    if cancelled and found in (TargetStatementTimeout, TargetLockTimeout):
        found = TargetCancelled
    return found(detail, sqlstate=getattr(exc, "sqlstate", None))


def _text_of(exc: BaseException) -> str:
    """What a driver says, without the row that PostgreSQL quotes whole: others read our errors."""
    text = str(exc)
    if not (is_loaded(psycopg) and isinstance(exc, psycopg.Error)):
        return text
    told, place = exc.diag.message_detail, exc.diag.context
    if told and exc.sqlstate in _ROW_QUOTED:
        text = text.replace(told, "its row is not shown")
    if place and (copied := _COPIED.match(place)):
        text = text.replace(place, copied.group())
    return text


def _mysql_error(exc: pymysql.Error, *, cancelled: bool, secret: str | None) -> TargetError:
    """PyMySQL keeps code and text in `args`; both belong into the detail, the code alone decides."""
    code = exc.args[0] if exc.args and isinstance(exc.args[0], int) else None
    text = " ".join(str(exc.args[1] if len(exc.args) > 1 else exc).split())
    detail = f"{text or type(exc).__name__}{'' if not code else f' ({code})'}"
    if secret:
        detail = detail.replace(secret, "***")
    found = TargetUnreachable if isinstance(exc, pymysql.InterfaceError) else TargetError
    if code is not None:
        found = _BY_MYSQL_CODE.get(code, found)
    if found is TargetError and any(said in text for said in _MYSQL_NO_ROOM):
        found = TargetFull
    if "CERTIFICATE_VERIFY_FAILED" in text:  # the driver hands on what Python's own TLS says, as 2003
        found = TargetCertificateInvalid
    if cancelled and found in (TargetStatementTimeout, TargetLockTimeout):
        found = TargetCancelled
    return found(detail, sqlstate=MYSQL_DATA_STATE if code in _MYSQL_DATA_CODES else None)


def _postgresql_class(exc: psycopg.Error, detail: str) -> type[TargetError]:
    state = exc.sqlstate
    if state is not None:
        return _BY_SQLSTATE.get(state) or _BY_SQLSTATE_CLASS.get(state[:2], TargetError)
    if not isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        return TargetError
    if exc.pgconn is not None and exc.pgconn.needs_password:
        return TargetAuthFailed
    for text, found in _BY_CONNECT_TEXT:
        if text in detail:
            return found
    if "does not exist" in detail:
        return TargetAuthFailed if 'role "' in detail else TargetDatabaseMissing
    return TargetUnreachable


def _sqlite_class(exc: sqlite3.Error, detail: str) -> type[TargetError]:
    code: int | None = getattr(exc, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return TargetParentMissing
    if code is not None and code & 0xFF in _BY_SQLITE_CODE:
        return _BY_SQLITE_CODE[code & 0xFF]
    if "no such table" in detail:
        return TargetTablesMissing
    if "no such column" in detail or "has no column named" in detail:
        return TargetSchemaUnsupported
    if "closed database" in detail:
        return TargetUnreachable
    return TargetError
