"""Servers that ask for the password itself: whoever can make Lethe connect must not learn it by that."""

import ssl
from pathlib import Path

import pytest

from spark.targets.connection import SessionLimits, Target, connect
from spark.targets.errors import TargetAuthFailed, TargetError, TargetHostNotAllowed
from tests.certificates import make_certificate
from tests.fake_databases import PG_CLEAR, PG_MD5, Heard, asking_mysql, asking_postgresql

PASSWORD = "hunter2-of-the-admin"
QUICK = SessionLimits(connect_timeout_s=2)


def refused(target: Target) -> TargetError:
    with pytest.raises(TargetError) as caught:
        connect(target, application_name="test", limits=QUICK).close()
    assert PASSWORD not in caught.value.detail
    return caught.value


def postgresql(heard: Heard, options: str = "", **fields: object) -> Target:
    url = f"postgresql+psycopg://eve@127.0.0.1:{heard.port}/shop{options}"
    return Target(url, password=PASSWORD, **fields)  # type: ignore[arg-type]


def mysql(heard: Heard, options: str = "", **fields: object) -> Target:
    url = f"mysql+pymysql://eve@127.0.0.1:{heard.port}/shop{options}"
    return Target(url, password=PASSWORD, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("request_", [PG_CLEAR, PG_MD5], ids=["clear", "md5"])
@pytest.mark.parametrize("options", ["", "?sslmode=disable", "?sslmode=prefer"])
def test_postgresql_that_asks_for_the_password_is_not_told(request_: bytes, options: str) -> None:
    with asking_postgresql(request_) as heard:
        error = refused(postgresql(heard, options))
    assert isinstance(error, TargetAuthFailed)
    assert "clear_text_on_loopback" in error.detail
    assert heard.connections >= 1
    assert PASSWORD.encode() not in heard.bytes
    assert b"md5" not in heard.bytes


def test_postgresql_on_loopback_is_told_by_an_admins_word_alone() -> None:
    with asking_postgresql(PG_CLEAR) as heard:
        refused(postgresql(heard, tells_loopback=True))
    assert PASSWORD.encode() in heard.bytes


@pytest.mark.parametrize(
    ("plugin", "switch"),
    [
        (b"mysql_native_password", b"mysql_clear_password"),
        (b"mysql_native_password", b"dialog"),
        (b"mysql_native_password", b"mysql_old_password"),
        (b"mysql_native_password", b"sha256_password"),
        (b"mysql_native_password", b"caching_sha2_password"),
        (b"mysql_clear_password", None),
        (b"sha256_password", None),
        (b"caching_sha2_password", None),
    ],
)
@pytest.mark.parametrize("is_tls", [False, True])
def test_mysql_that_asks_for_the_password_is_not_told(
    tmp_path: Path, plugin: bytes, switch: bytes | None, is_tls: bool
) -> None:
    # TLS with a certificate that nobody has verified is TLS with whoever answers.
    context = None
    if is_tls:
        certificate, key = make_certificate(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    with asking_mysql(plugin, switch=switch, tls=context) as heard:
        error = refused(mysql(heard, "?ssl_mode=REQUIRED" if is_tls else ""))
    assert isinstance(error, TargetAuthFailed), error
    assert heard.connections >= 1
    assert heard.bytes or plugin == b"sha256_password", "it came as far as the login"
    assert PASSWORD.encode() not in heard.bytes


def test_mysql_asks_for_no_key_that_it_could_have_made_itself() -> None:
    with asking_mysql(b"caching_sha2_password") as heard:
        refused(mysql(heard))
    # The login alone: a packet of one byte would be the wish for a public key.
    assert heard.bytes.count(b"caching_sha2_password") == 1
    assert not heard.bytes.endswith(b"\x01\x00\x00\x03\x02")


def test_mysql_whose_certificate_is_verified_is_told(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with asking_mysql(b"caching_sha2_password", tls=context) as heard:
        refused(mysql(heard, f"?ssl_ca={certificate}"))
    assert PASSWORD.encode() in heard.bytes


def test_host_that_is_not_allowed_is_never_connected_to() -> None:
    with asking_postgresql(PG_CLEAR) as heard:
        for target in (
            postgresql(heard, hosts=(("db.example:5432",),)),
            mysql(heard, hosts=(("10.0.0.0/8",),)),
        ):
            assert isinstance(refused(target), TargetHostNotAllowed)
    assert heard.connections == 0


def test_nothing_of_the_environment_or_the_home_directory_reaches_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    services = tmp_path / "services"
    services.write_text(
        "[other]\nhost=192.0.2.1\nport=1\nuser=root\npassword=of-another\nrequire_auth=password\n"
    )
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:*:of-another\n")
    passwords.chmod(0o600)
    said = {
        "PGSERVICE": "other",
        "PGSERVICEFILE": str(services),
        "PGPASSFILE": str(passwords),
        "PGPASSWORD": "of-another",
        "PGHOSTADDR": "192.0.2.1",
        "PGUSER": "root",
        "PGOPTIONS": "-c search_path=other",
        "PGREQUIREAUTH": "password",
        "PGSSLMODE": "require",
        "PGSSLKEY": "/etc/lethe/other.key",
        "PGSSLCERT": "/etc/lethe/other.pem",
        "PGTARGETSESSIONATTRS": "read-write",
        "HOME": str(tmp_path),
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with asking_postgresql(PG_CLEAR) as heard:
        target = Target(f"postgresql+psycopg://eve@127.0.0.1:{heard.port}/shop", tells_loopback=True)
        refused(target)
    assert heard.connections >= 1, "it went to the URL's host"
    assert b"eve" in heard.bytes
    for other in (b"of-another", b"root", b"search_path"):
        assert other not in heard.bytes
