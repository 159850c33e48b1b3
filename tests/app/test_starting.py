"""Every way in which a process cannot start is one sentence and an exit code, without a password in it."""

import errno
import json
import os
import socket
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from app.settings import Settings, variables_like_settings
from app.starting import (
    Misconfigured,
    NotNow,
    bind,
    bring_to_head,
    check_settings,
    open_metadata,
    tell_unknown_settings,
    using,
)

SECRET = "not-to-be-printed"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"lease_ttl_s": 60.0}, "LETHE_LEASE_SELF_STOP_S"),
        ({"lease_renew_interval_s": 60.0}, "LETHE_LEASE_RENEW_INTERVAL_S"),
        ({"host": "0.0.0.0"}, "--behind-proxy"),
        ({"tls_cert": "/nowhere/cert.pem"}, "belong together"),
        ({"tls_cert": "/nowhere/cert.pem", "tls_key": "/nowhere/key.pem"}, "cannot be read"),
        ({"tls_cert": __file__, "tls_key": __file__}, "no certificate with its key"),
    ],
)
def test_contradicting_setting_is_named(setting, said) -> None:
    with pytest.raises(Misconfigured, match=said):
        check_settings(Settings(**setting))


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("LETHE_LEASE_TTL", "LETHE_LEASE_TTL_S"),
        ("LETHE_ALLOWED_ROOT", "LETHE_ALLOWED_ROOTS"),
        ("LETHE_ZZZZZZZZ", None),
    ],
)
def test_a_variable_that_is_no_setting_is_named_with_what_is_meant(variable, nearest, monkeypatch) -> None:
    for name in variables_like_settings():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable.lower(), "1")  # as pydantic reads them: capitals or not
    monkeypatch.setenv("LETHE_DATA_DIR", "/nowhere")
    with capture_logs() as log:
        tell_unknown_settings(variables_like_settings())
    [warning] = log
    assert warning["log_level"] == "warning"
    assert (warning["variable"], warning["nearest"]) == (variable, nearest)


def test_variables_of_settings_of_others_and_of_a_cluster_are_passed_over() -> None:
    settings = [f"LETHE_{name.upper()}" for name in Settings.model_fields]
    others = ["LETHE_URL", "LETHE_TOKEN", "LETHE_SECRET_SHOP", "LETHE_SPARK__CONF__SPARK.UI.PORT"]
    services = [
        *("LETHE_SERVICE_HOST", "LETHE_SERVICE_PORT", "LETHE_SERVICE_PORT_HTTP", "LETHE_API_SERVICE_HOST"),
        *("LETHE_PORT_8765_TCP", "LETHE_PORT_8765_TCP_ADDR", "LETHE_API_PORT", "LETHE_API_PORT_80_TCP_PROTO"),
    ]
    with capture_logs() as log:
        tell_unknown_settings([*settings, *others, *services])
    assert log == []


@pytest.mark.parametrize("sub_path", ["file", "file/below"])
def test_data_directory_that_is_none_is_named(tmp_path, sub_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match=str(tmp_path / sub_path)), using(tmp_path / sub_path):
        raise AssertionError("it was used")


@pytest.mark.parametrize(
    ("fault", "has_advice"), [(errno.EACCES, True), (errno.EROFS, True), (errno.ENOSPC, False)]
)
def test_data_directory_that_may_not_be_used_says_what_to_do(tmp_path, fault, has_advice) -> None:
    """It named the directory and the fault alone."""
    with pytest.raises(Misconfigured, match=str(tmp_path)) as refused, using(tmp_path):
        raise OSError(fault, os.strerror(fault))
    assert ("or choose another --data-dir" in str(refused.value)) is has_advice


@pytest.mark.parametrize(
    "url",
    [
        f"garbage:{SECRET}",
        f"mysql://root:{SECRET}@127.0.0.1/x",
        f"postgresql://root:{SECRET}@127.0.0.1/x",
        f"postgresql+psycopg://lethe:half@{SECRET}@127.0.0.1/x",
        f"postgresql+psycopg://lethe:half@{SECRET}:more@127.0.0.1/x",
        f"postgresql+psycopg://lethe:{SECRET}@127.0.0.1:port/x",
    ],
)
def test_metadata_url_of_no_use_is_refused_without_being_repeated(url) -> None:
    with pytest.raises(Misconfigured, match="LETHE_METADATA_URL") as refused:
        open_metadata(Settings(metadata_url=url))
    assert SECRET not in str(refused.value)


def test_metadata_that_is_away_is_not_now_and_its_password_not_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql+psycopg://lethe:{SECRET}@127.0.0.1:{port}/lethe"
    with pytest.raises(NotNow, match=r"127\.0\.0\.1") as refused:
        bring_to_head(open_metadata(Settings(metadata_url=url)), may_migrate=False)
    assert SECRET not in str(refused.value)


def test_file_that_is_no_database_is_left_alone(tmp_path) -> None:
    (tmp_path / "lethe.db").write_bytes(b"something else" * 100)
    database = open_metadata(Settings(data_dir=tmp_path))
    with pytest.raises(Misconfigured, match="file is not a database"):
        bring_to_head(database, may_migrate=True)
    database.close()
    assert (tmp_path / "lethe.db").read_bytes() == b"something else" * 100


def test_port_that_is_taken_is_not_now() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NotNow, match=f"127.0.0.1, port {port}"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "name.invalid"])
def test_address_of_another_machine_is_misconfigured(host) -> None:
    with pytest.raises(Misconfigured, match=host):
        bind(host, 0)


def test_bound_address_takes_connections_at_once() -> None:
    [listener] = bind("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname(), timeout=5) as visitor:
        listener.settimeout(5)
        met, address = listener.accept()
        with met:
            assert address == visitor.getsockname()


def test_lines_of_other_libraries_are_json_too() -> None:
    """A message with a quote in it broke the line: it was formatted by repr, not as JSON."""
    program = (
        "import logging; from app.logs import configure_logging; configure_logging()\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.getLogger('other').exception('%s is so', chr(39))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    line = json.loads(done.stderr)
    assert (line["event"], line["level"], line["logger"]) == ("' is so", "error", "other")
    assert "ZeroDivisionError" in line["exception"]
