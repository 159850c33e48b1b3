"""compose.yaml without Docker: its commands run here, its mounts and its Prometheus are looked at."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.http.service_process import LETHE, START_MAX_S, USUAL, environment
from tests.ports import free_port

ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: Final[dict[str, Any]] = COMPOSE["services"]
OURS: Final = ("migrate", "service", "worker")
PASSWORD: Final = "of the metadata's file"


def command_of(name: str, folder: Path) -> list[str]:
    """Entrypoint and command of a service, with the secret's file and the program where they lie here."""
    words = [word.replace("$$", "$") for word in [*SERVICES[name]["entrypoint"], *SERVICES[name]["command"]]]
    assert "/run/secrets/metadata_password" in words[2]
    assert "exec lethe" in words[2], "SIGTERM must reach the process itself"
    words[2] = words[2].replace("/run/secrets", str(folder)).replace("exec lethe", f"exec {LETHE}")
    return words


def environment_of(name: str, folder: Path, metadata_url: str) -> dict[str, str]:
    """Its environment, with the folders and the server that are here."""
    given: Mapping[str, str] = SERVICES[name]["environment"]
    assert given["LETHE_METADATA_URL"] == "postgresql+psycopg://lethe@metadata:5432/lethe"
    here = {"LETHE_METADATA_URL": metadata_url, "LETHE_ARCHIVE_ROOT": str(folder / "archive")}
    here |= {"LETHE_SECRETS_DIR": str(folder), "LETHE_DATA_DIR": str(folder / name)}
    return environment(USUAL | dict(given) | here)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compose")
    (made / "metadata_password").write_text(PASSWORD)
    (made / "archive").mkdir()
    return made


@pytest.fixture
def running(folder: Path, postgresql_url: str) -> Iterator[tuple[int, dict[str, subprocess.Popen[bytes]]]]:
    """The service and a worker, after the migration that both wait for; and the port."""
    migrated = subprocess.run(
        command_of("migrate", folder), env=environment_of("migrate", folder, postgresql_url), timeout=120
    )
    assert migrated.returncode == 0
    port = free_port()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with (folder / "log").open("wb") as log:
        for name in ("service", "worker"):
            env = environment_of(name, folder, postgresql_url) | {"LETHE_PORT": str(port)}
            processes[name] = subprocess.Popen(command_of(name, folder), env=env, stdout=log, stderr=log)
    try:
        yield port, processes
    finally:
        for process in processes.values():
            process.terminate()
        assert {name: process.wait(30) for name, process in processes.items()} == {"service": 0, "worker": 0}


def test_commands_serve_and_work_with_the_password_of_the_file(
    folder: Path, running: tuple[int, dict[str, subprocess.Popen[bytes]]]
) -> None:
    port, processes = running
    health = SERVICES["service"]["healthcheck"]["test"]
    assert health[2] == "/opt/lethe/share/lethe/health.py"
    probe = [str(LETHE.with_name("python")), str(ROOT / "setup" / "health.py")]
    environ = {"LETHE_HOST": SERVICES["service"]["environment"]["LETHE_HOST"], "LETHE_PORT": str(port)}
    deadline = time.monotonic() + START_MAX_S
    while subprocess.run(probe, env=environ, capture_output=True).returncode != 0:
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.5)
    headers = {"Authorization": f"Bearer {(folder / 'service' / 'admin.token').read_text().strip()}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers) as http:
        while len(http.get("/v1/instances").json()["items"]) < 2:
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        assert "lethe_instances_alive 2.0" in http.get("/metrics").text
    for process in processes.values():
        assert f"PGPASSWORD={PASSWORD}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(
            b"\0"
        )
        assert b"lethe" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "exec: no shell in between"


def test_files_that_are_mounted_are_of_the_repository() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    files = [name for name in mounted if name.startswith("./") and not name.startswith("./secrets/")]
    assert len(files) == 5
    assert [name for name in files if not (ROOT / name).is_file()] == []
    named = {name for name in mounted if not name.startswith("./")}
    assert named == set(COMPOSE["volumes"])
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())


def test_nothing_is_published_beyond_this_machine_and_all_that_lasts_has_a_health_check() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    unwatched = {name for name, service in SERVICES.items() if service["healthcheck"].get("disable") is True}
    assert unwatched == {"migrate", "worker"}


def test_dashboard_is_provisioned_where_grafana_looks() -> None:
    folder = ROOT / "deploy" / "compose" / "grafana"
    provider = yaml.safe_load((folder / "dashboards.yml").read_text())["providers"][0]
    assert any(
        volume.split(":")[1].startswith(provider["options"]["path"] + "/")
        for volume in SERVICES["grafana"]["volumes"]
        if volume.startswith("./docs/")
    )
    source = yaml.safe_load((folder / "datasources.yml").read_text())["datasources"][0]
    host = re.fullmatch(r"http://(\w+):9090", source["url"])
    assert host is not None
    assert host[1] in SERVICES


@pytest.mark.promtool
def test_prometheus_reads_its_configuration_and_the_rules(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    configuration = (ROOT / "deploy" / "compose" / "prometheus.yml").read_text()
    (tmp_path / "token").touch()
    rules = next(each for each in SERVICES["prometheus"]["volumes"] if "rules" in each).split(":")[0]
    shutil.copy(ROOT / rules, tmp_path / "lethe.rules.yml")
    file = tmp_path / "prometheus.yml"
    file.write_text(configuration.replace("/run/secrets/metrics_token", str(tmp_path / "token")))
    checked = subprocess.run([promtool, "check", "config", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "rules found" in checked.stdout
