"""Names of the client that are loaded when they are asked for: each is there at the first time."""

import json
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


NOTHING_OF_IT = ("nothing_of_it", "errors_", "__wrapped__")
AFRESH = (
    "import importlib, json, sys\n"
    "found = {}\n"
    "for name in sys.argv[1:]:\n"
    "    client = importlib.import_module('lethe_client')\n"
    "    try:\n"
    "        found[name] = getattr(client, name).__name__\n"
    "    except AttributeError as missing:\n"
    "        found[name] = f'AttributeError: {missing}'\n"
    "    for each in [each for each in sys.modules if each.startswith('lethe_client')]:\n"
    "        del sys.modules[each]\n"
    "print(json.dumps(found))\n"
)


def run(code: str, *arguments: str) -> str:
    """Run code in an interpreter of its own; what it has written."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def asked_first() -> dict[str, str]:
    """What each name is, or its error, where nothing of the client has been loaded before."""
    found: dict[str, str] = json.loads(run(AFRESH, *FIRST, *NOTHING_OF_IT))
    return found


@pytest.mark.parametrize("name", FIRST)
def test_a_module_or_a_name_is_there_when_it_is_asked_for_first(
    name: str, asked_first: dict[str, str]
) -> None:
    assert asked_first[name].rpartition(".")[2] == name


@pytest.mark.parametrize("name", NOTHING_OF_IT)
def test_what_it_has_not_is_missing(name: str, asked_first: dict[str, str]) -> None:
    assert asked_first[name] == f"AttributeError: module 'lethe_client' has no attribute '{name}'"


def test_each_module_can_be_the_first_that_is_loaded() -> None:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    for each in [each for each in sys.modules if each.startswith('lethe_client')]:\n"
        "        del sys.modules[each]\n"
    )
    assert len(MODULES) > 40
    run(code, *MODULES)
