"""The page for systemd makes the metadata's database and its tables before the first start.

It named a PostgreSQL that no step had made: the first start ended with 78.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import postgresql_server
from tests.postgresql_server import PostgresqlServer, scratch_directory

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "how-to" / "run-with-systemd.md"
SETTINGS: Final = ROOT / "deploy" / "systemd" / "lethe.env"
HBA: Final = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
LETHE: Final = Path(sys.executable).parent / "lethe"


@pytest.fixture
def as_debian_has_it(
    postgresql_binaries: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresqlServer]:
    """A server whose administrator is `postgres`, and where everybody else shows a password."""
    monkeypatch.setattr(postgresql_server, "SUPERUSER", "postgres")
    monkeypatch.setattr(postgresql_server, "HBA", HBA)
    with scratch_directory() as directory:
        server = PostgresqlServer(postgresql_binaries, directory)
        server.start()
        yield server
        server.stop()


def test_lines_for_the_metadata_work_as_they_stand(
    as_debian_has_it: PostgresqlServer, postgresql_binaries: Path, tmp_path: Path
) -> None:
    found = re.search(r"```sh needs=root\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    lines = found.group(1)
    lines = lines[lines.index("password=") : lines.index("install -m 0644 deploy/systemd/*.service")]
    port = as_debian_has_it.port
    (tmp_path / "lethe.env").write_text(SETTINGS.read_text().replace("5432", str(port)))
    psql = f"{postgresql_binaries}/psql -h 127.0.0.1 -p {port} -U postgres"
    here = {
        "runuser -u postgres -- psql": f"{psql} postgres",
        "127.0.0.1:5432": f"127.0.0.1:{port}",
        "/opt/lethe/bin/lethe": str(LETHE),
        "/etc/lethe": str(tmp_path),
    }
    for said, meant in here.items():
        assert said in lines
        lines = lines.replace(said, meant)
    run = subprocess.run(["/bin/sh", "-ec", lines], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    query = "select tableowner from pg_tables where tablename = 'jobs'"
    owner = subprocess.run(
        [*psql.split(), "-At", "lethe", "-c", query], capture_output=True, text=True, check=True
    ).stdout
    assert owner == "lethe\n"
