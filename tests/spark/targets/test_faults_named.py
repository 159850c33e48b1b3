"""What a full target and a certificate that does not verify are called, from the drivers' own errors.

The story: a full target was TARGET_ERROR, which fails the job at once, though it passes when there is room. A
certificate that does not verify was TARGET_UNREACHABLE, which was tried again, and the missing file of an
authority was TARGET_DATABASE_MISSING.
"""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetCertificateInvalid, TargetError, TargetFull, classify
from tests.certificates import make_certificate
from tests.fake_databases import PG_CLEAR, asking_mysql, asking_postgresql
from tests.postgresql_server import PostgresqlServer, scratch_directory
from tests.spark.targets.conftest import Connect

QUICK = SessionLimits(connect_timeout_s=2)
PASSWORD = "hunter2"
ROWS = 2_000
Server = tuple[Path, ssl.SSLContext]


def fill(conn: Connection, insert: str) -> TargetError:
    """What the target says when it is full."""
    try:
        with conn.transaction():
            for _ in range(ROWS):
                conn.execute(insert)
    except TargetError as error:
        return error
    raise AssertionError("it took all")


def refused(url: str) -> TargetError:
    with pytest.raises(TargetError) as caught:
        connect(Target(url, password=PASSWORD), application_name="test", limits=QUICK).close()
    return caught.value


def check_full(error: TargetError) -> None:
    assert (type(error), error.code, error.transient) == (TargetFull, "TARGET_FULL", True), error.detail


def test_sqlite_without_a_page_left_is_full(sqlite: Target, opened: Connect) -> None:
    conn = opened(sqlite)
    conn.execute("create table words (word blob)")
    conn.execute("pragma max_page_count = 20")
    check_full(fill(conn, "insert into words values (zeroblob(2000))"))


def test_mariadb_whose_table_may_not_grow_is_full(mysql: Target, opened: Connect) -> None:
    conn = opened(mysql)
    conn.execute("set session max_heap_table_size = 16384")
    conn.execute("create table words (word char(200)) engine=memory")
    check_full(fill(conn, "insert into words values (repeat('x', 200))"))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1021, "Disk full (/tmp/#sql); waiting for someone to free some space... (errno: 28)"),
        (1026, "Error writing file '/var/lib/mysql/x' (Errcode: 28 \"No space left on device\")"),
        (3, "Error writing file '/tmp/MLfd=31' (Errcode: 122 \"Disk quota exceeded\")"),
    ],
)
def test_what_mariadb_says_of_a_full_disk(code: int, text: str) -> None:
    check_full(classify(pymysql.OperationalError(code, text)))


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 1 MB that the server's account may write to."""
    with scratch_directory("lethe-small-") as where:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(where)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("it takes the right to mount a file system")
        try:
            yield where
        finally:
            subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_postgresql_whose_disk_is_full(own_postgresql: PostgresqlServer, small_disk: Path) -> None:
    with psycopg.connect(own_postgresql.conninfo(), autocommit=True) as admin:
        (small_disk / "space").mkdir()
        owner = Path(f"/proc/{own_postgresql.postmaster_pid}").stat()
        os.chown(small_disk / "space", owner.st_uid, owner.st_gid)
        admin.execute(f"create tablespace small location '{small_disk}/space'")
        admin.execute("create table words (word text) tablespace small")
        with connect(Target(own_postgresql.url()), application_name="test", limits=QUICK) as conn:
            check_full(fill(conn, "insert into words select repeat('x', 1000) from generate_series(1, 50)"))
        admin.execute("drop table words")
        admin.execute("drop tablespace small")


@pytest.fixture
def server(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """The certificate of 127.0.0.1, signed by itself, and TLS with it."""
    (tmp_path / "server").mkdir()
    certificate, key = make_certificate(tmp_path / "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """The certificate of an authority that has signed nothing here."""
    return make_certificate(tmp_path)[0]


def check_unverified(error: TargetError, said: str) -> None:
    assert (type(error), error.transient) == (TargetCertificateInvalid, False), error
    assert said in error.detail


def postgresql_answers(tls: ssl.SSLContext, options: str, host: str = "127.0.0.1") -> TargetError:
    """What libpq says of a server that has TLS (the wheel's server is built without)."""
    with asking_postgresql(PG_CLEAR, tls=tls) as heard:
        return refused(f"postgresql+psycopg://eve@{host}:{heard.port}/shop?{options}")


def test_postgresql_whose_certificate_does_not_verify(server: Server, stranger: Path) -> None:
    certificate, tls = server
    for options, host, said in (
        (f"sslmode=verify-full&sslrootcert={stranger}", "127.0.0.1", "certificate verify failed"),
        ("sslmode=verify-full", "127.0.0.1", "certificate verify failed"),
        ("sslmode=verify-full&sslrootcert=/nonexistent/ca.pem", "127.0.0.1", "/nonexistent/ca.pem"),
        (f"sslmode=verify-full&sslrootcert={certificate}", "localhost", "does not match host name"),
    ):
        check_unverified(postgresql_answers(tls, options, host), said)


def test_postgresql_without_tls_where_it_is_asked_for(postgresql_url: str) -> None:
    check_unverified(refused(f"{postgresql_url}?sslmode=require"), "does not support SSL")


def test_database_and_role_that_are_missing_keep_their_names(postgresql_url: str) -> None:
    assert refused(f"{postgresql_url}_of_nobody").code == "TARGET_DATABASE_MISSING"
    nobody = make_url(postgresql_url).set(username="no_such_role")
    assert refused(nobody.render_as_string()).code == "TARGET_AUTH_FAILED"


@pytest.mark.parametrize("is_missing", [False, True])
def test_mysql_whose_certificate_does_not_verify(server: Server, stranger: Path, is_missing: bool) -> None:
    authority = "/nonexistent/ca.pem" if is_missing else stranger
    with asking_mysql(b"caching_sha2_password", tls=server[1]) as heard:
        error = refused(f"mysql+pymysql://eve@127.0.0.1:{heard.port}/shop?ssl_ca={authority}")
    check_unverified(error, "TLS files" if is_missing else "CERTIFICATE_VERIFY_FAILED")


def test_mysql_without_tls_where_it_is_asked_for() -> None:
    with asking_mysql(b"caching_sha2_password") as heard:
        error = refused(f"mysql+pymysql://eve@127.0.0.1:{heard.port}/shop?ssl_mode=REQUIRED")
    check_unverified(error, "SSL is required")
