"""Who may import whom, where import-linter has no contract for it: an allow-list of outside packages."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.style.source_files import ROOT, source_files

OF_THE_COMMAND = {"cli", "keeping", "kit", "runbook", "server", "settings"}
"""What the command may import of `app`: itself, the processes that it starts, what names no domain."""
STANDARD = sys.stdlib_module_names | {"__future__"}


def _imports_outside(folder: str, allowed: set[str]) -> list[str]:
    files = source_files(folder)
    assert files, f"no file below {folder}"
    return [
        f"{file.name}:{line} {name}"
        for file in files
        for line, name in file.imported
        if name.split(".")[0] not in STANDARD | allowed
    ]


def test_client_library_needs_only_httpx_and_a_check_of_signatures() -> None:
    assert _imports_outside("client/lethe_client", {"cryptography", "httpx", "lethe_client"}) == []


def test_sources_need_only_spark_arrow_the_client_and_the_lower_floor() -> None:
    allowed = {"lethe_client", "lethe_spark", "numpy", "pyarrow", "pyspark", "spark"}
    assert _imports_outside("client/sources/lethe_spark", allowed) == []


def test_lower_floor_needs_only_drivers_and_arrow() -> None:
    drivers = {"ldap3", "psycopg", "py4j", "pyarrow", "pymysql", "pyspark", "spark", "sqlalchemy"}
    compiling = {"numba", "numpy"}
    signing = {"cryptography"}  # a replica's own key, which lies with its data
    assert _imports_outside("spark", drivers | compiling | signing) == []


def test_the_contract_of_the_command_names_all_modules_of_the_service() -> None:
    """A module that it does not know would be free to be imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    forbidden = next(each for each in contracts if each["name"].startswith("cli: "))["forbidden_modules"]
    there = {f"app.{path.stem}" for path in (ROOT / "app").iterdir() if path.stem[0] not in "_."}
    assert there - set(forbidden) == {f"app.{name}" for name in OF_THE_COMMAND}


def test_layers_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([program, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
