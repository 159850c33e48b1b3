"""What the start of a service costs: nothing that only some jobs need, and nothing twice."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style.source_files import ROOT


def test_service_starts_without_the_compiler_of_the_loops_and_without_pandas() -> None:
    code = "import app.server, sys; print(sorted({'numba', 'llvmlite', 'pandas'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


def test_what_a_command_loads_is_not_looked_at_by_the_collector_again() -> None:
    code = (
        "import gc; from app.cli.main import main; assert main(['serve', '--help']) == 0; "
        "import sys; print(gc.isenabled(), gc.get_freeze_count() > 100_000, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "True True\n"), ran.stdout


@pytest.mark.parametrize("package", ["sqlalchemy", "fastapi", "pyspark"])
def test_packages_lie_compiled_in_the_environment(package: str) -> None:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.cached is not None
    assert Path(found.cached).is_file(), "a machine that may write no byte code compiles with every start"
