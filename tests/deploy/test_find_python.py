"""Which Python set-up takes: named, from PATH, or the system's where that is a quarter faster."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "setup" / "find-python.sh"
SYSTEM = Path("/usr/bin/python3")
SLOW_US, FAST_US = 60_000_000, 1
"""Of Pythons that are slower, and faster, than any real one."""


def _python(path: Path, us: int | None) -> Path:
    """What answers as a Python of this speed; None: one that cannot run Lethe, as an old one or a shim."""
    says = "exit 1" if us is None else f'echo {us} "{path}"'
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def _find(first_on_path: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    system = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    environment = system | {"PATH": f"{first_on_path}:/usr/bin:/bin"} | settings
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False)


def _runs_lethe() -> bool:
    asks = "import sys, ensurepip, venv; assert sys.version_info >= (3, 11)"
    return SYSTEM.exists() and subprocess.run([SYSTEM, "-c", asks], capture_output=True).returncode == 0


needs_system = pytest.mark.skipif(not _runs_lethe(), reason="/usr/bin/python3 is none that Lethe runs on")


def test_the_named_one_is_taken_whatever_its_speed(tmp_path: Path) -> None:
    named = _python(tmp_path / "mine", SLOW_US)
    _python(tmp_path / "python3.11", FAST_US)
    assert _find(tmp_path, PYTHON=str(named)).stdout == f"{named}\n"


@pytest.mark.parametrize("named", ["old", "not-there"])
def test_a_named_one_that_cannot_run_lethe_is_passed_over(tmp_path: Path, named: str) -> None:
    _python(tmp_path / "old", None)
    taken = _python(tmp_path / "python3.11", FAST_US)
    assert _find(tmp_path, PYTHON=str(tmp_path / named)).stdout == f"{taken}\n"


def test_the_faster_of_path_stays(tmp_path: Path) -> None:
    first = _python(tmp_path / "python3.11", FAST_US)
    _python(tmp_path / "python3", FAST_US)
    assert _find(tmp_path).stdout == f"{first}\n"


def test_a_shim_without_a_python_behind_it_is_passed_over(tmp_path: Path) -> None:
    _python(tmp_path / "python3.11", None)
    second = _python(tmp_path / "python3", FAST_US)
    assert _find(tmp_path).stdout == f"{second}\n"


@needs_system
def test_the_systems_is_taken_where_that_of_path_is_slow(tmp_path: Path) -> None:
    _python(tmp_path / "python3.11", SLOW_US)
    asked = subprocess.run(
        [SYSTEM, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True
    )
    assert _find(tmp_path).stdout == asked.stdout


def test_none_at_all_says_what_to_install(tmp_path: Path) -> None:
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    script = tmp_path / "setup" / SCRIPT.name
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text().replace(str(SYSTEM), "/not-there/python3"))
    (script.parent / "python_speed.py").symlink_to(SCRIPT.parent / "python_speed.py")
    ran = subprocess.run(
        ["/bin/bash", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (69, "")
    assert "apt-get install python3 python3-venv" in ran.stderr
