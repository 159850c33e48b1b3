"""Ten situations at three in the morning: `lethe explain` of the word on the screen says what to do."""

import sqlite3

import httpx
import psycopg
import pymysql
import pytest
from lethe_client import TransportFailed

from app.cli.main import main
from app.cli.shell.complaints import complaint
from spark.targets.errors import classify

NIGHT = [
    ("a job WAITING on TARGET_UNREACHABLE", "WAITING", ["lethe job show"]),
    (
        "a job WAITING on TARGET_UNREACHABLE",
        "TARGET_UNREACHABLE",
        ["lethe store check STORE", "lethe job retry JOB"],
    ),
    (
        "a session that says NEEDS_TOTAL",
        "NEEDS_TOTAL",
        ["lethe replication session start", "--total", "PURGED", "NO_RUV"],
    ),
    ("its cause", "PURGED", ["--total"]),
    ("its cause", "NO_RUV", ["--total"]),
    ("`lethe status` of it", "SESSION_NEEDS_TOTAL", ["--total"]),
    (
        "a backup that is INVALID",
        "INVALID",
        ["take another", "lethe backup list STORE", "lethe backup run --store STORE"],
    ),
    ("`lethe status` of it", "BACKUP_INVALID", ["take another"]),
    ("EPOCH_AHEAD", "EPOCH_AHEAD", ["lethe recover STORE", "lethe job retry JOB"]),
    ("a cycle INCOMPLETE", "INCOMPLETE", ["lethe erasure files", "lethe erasure start STORE --plan-id"]),
    ("a refused login", "401", ["lethe token create"]),
    ("a refused login", "TOKEN_UNKNOWN", ["lethe login", "admin.token", "lethe token create"]),
    ("a refused login", "TOKEN_EXPIRED", ["lethe token create"]),
    ("a refused login", "TOKEN_REVOKED", ["lethe token create"]),
    ("a refused login at a target", "TARGET_AUTH_FAILED", ["lethe secret update", "lethe store check"]),
    ("a full disk", "No space left on device", ["LETHE_DATA_DIR", "lethe job retry"]),
    ("a full disk", "DATA_DIRECTORY_FULL", ["df -h", "LETHE_DATA_DIR", "lethe job retry"]),
    ("a full disk of archives", "ARCHIVE_FULL", ["LETHE_ARCHIVE_ROOT", "lethe job retry"]),
    ("an ABORTING that does not end", "ABORTING", ["TARGET_SILENCE", "lethe job abandon"]),
    ("what it waits for", "TARGET_SILENCE", ["lethe store check", "lethe job abandon"]),
    ("a stale lock", "stale lock", ["cluster.lock.timeout.ms"]),
    ("a stale lock", "SYM_LOCK", ["cluster.lock.timeout.ms"]),
    ("a lock of JE's", "ENVIRONMENT_IN_USE", ["application"]),
    (
        "a certificate of an erasure",
        "CERTIFICATE_INVALID",
        ["lethe certificate get", "lethe certificate keys"],
    ),
    ("a peer's TLS certificate", "CERTIFICATE_VERIFY_FAILED", ["--ca-file", "TARGET_CERTIFICATE_INVALID"]),
    (
        "a peer's TLS certificate",
        "PEER_CERTIFICATE_INVALID",
        ["lethe replication agreement update STORE AGREEMENT --ca-file"],
    ),
    ("a target's TLS certificate", "TARGET_CERTIFICATE_INVALID", ["sslrootcert", "lethe store update"]),
    ("a full disk of the target", "TARGET_FULL", ["room", "lethe job retry"]),
    ("a lock that somebody stopped", "SYM_LOCK", ["STOPPED", "SymmetricDS's own", "lethe job abort"]),
    ("Spark does not start", "NO_JAVA", ["Java 17", "lethe spark-pool recycle"]),
    ("a webhook that was given up", "GIVEN_UP", ["lethe webhook replay"]),
    ("the audit was restored", "CHAIN_PUT_BACK", ["export"]),
    ("the service's TLS certificate", "SERVICE_UNREACHABLE", ["SSL_CERT_FILE"]),
]


@pytest.mark.parametrize(("situation", "word", "expected"), NIGHT, ids=lambda value: str(value)[:30])
def test_the_word_on_the_screen_leads_to_what_to_do(
    situation: str, word: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", word]) == 0, situation
    shown = capsys.readouterr().out
    for each in expected:
        assert each in shown, (situation, shown)


DRIVERS = [
    (psycopg.errors.DiskFull("could not extend file: No space left on device"), "TARGET_FULL", "make room"),
    (pymysql.OperationalError(1114, "The table 'sym_data' is full"), "TARGET_FULL", "make room"),
    (sqlite3.OperationalError("database or disk is full"), "TARGET_FULL", "make room"),
    (
        psycopg.OperationalError("connection failed: SSL error: certificate verify failed"),
        "TARGET_CERTIFICATE_INVALID",
        "sslrootcert",
    ),
    (
        psycopg.OperationalError('connection failed: root certificate file "/ca.pem" does not exist'),
        "TARGET_CERTIFICATE_INVALID",
        "sslrootcert",
    ),
    (
        pymysql.OperationalError(2003, "([SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed)"),
        "TARGET_CERTIFICATE_INVALID",
        "ssl_ca",
    ),
    (
        psycopg.OperationalError('FATAL:  password authentication failed for user "lethe"'),
        "TARGET_AUTH_FAILED",
        "lethe secret update",
    ),
]


@pytest.mark.parametrize(("error", "code", "expected"), DRIVERS, ids=lambda value: str(value)[:30])
def test_what_a_driver_says_leads_to_what_to_do(
    error: Exception, code: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
    found = classify(error)
    assert found.code == code
    assert main(["explain", found.code]) == 0
    assert expected in capsys.readouterr().out.lower()


def test_a_service_whose_certificate_does_not_verify_is_said_with_a_code_that_is_explained() -> None:
    cause = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    said = complaint(TransportFailed(f"https://lethe: {cause}", maybe_done=False, request_id="r"))
    assert (said.code, "CERTIFICATE_VERIFY_FAILED" in said.detail) == ("SERVICE_UNREACHABLE", True)
