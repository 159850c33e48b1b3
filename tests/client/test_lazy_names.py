"""Names of the client that are loaded when they are asked for: each is there at the first time."""

import subprocess
import sys
from pathlib import Path

import lethe_client
import pytest

CLIENT = Path(lethe_client.__file__).parent

MODULES = sorted(
    str(path.relative_to(CLIENT.parent).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for path in CLIENT.rglob("*.py")
)
FIRST = (
    "errors",
    "transport",
    "results",
    "slony",
    "asynchronous",
    "public",
    "Lethe",
    "AsyncLethe",
    "NotFound",
)


def first_of_all(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that has loaded nothing of the client."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("name", FIRST)
def test_a_module_or_a_name_is_there_when_it_is_asked_for_first(name: str) -> None:
    found = first_of_all(f"import lethe_client; print(lethe_client.{name}.__name__)")
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip().rpartition(".")[2] == name


@pytest.mark.parametrize("name", ["nothing_of_it", "errors_", "__wrapped__"])
def test_what_it_has_not_is_missing(name: str) -> None:
    found = first_of_all(f"import lethe_client; lethe_client.{name}")
    assert f"AttributeError: module 'lethe_client' has no attribute '{name}'" in found.stderr


def test_each_module_can_be_the_first_that_is_loaded() -> None:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    for each in [each for each in sys.modules if each.startswith('lethe_client')]:\n"
        "        del sys.modules[each]\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *MODULES], capture_output=True, text=True, check=False, timeout=60
    )
    assert len(MODULES) > 40
    assert found.returncode == 0, found.stderr
