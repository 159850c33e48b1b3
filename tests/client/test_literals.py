"""States and kinds as types are those of the OpenAPI document; the version is that of the project file."""

import importlib.util
import tomllib
from pathlib import Path
from typing import get_args

from lethe_client import Job, __version__, literals
from lethe_client.decoding import decode
from lethe_client.transport import USER_AGENT

ROOT = Path(__file__).parents[2]
ALIASES = sorted(name for name, value in vars(literals).items() if get_args(value) and name[0].isupper())


def test_the_committed_file_has_the_values_of_the_openapi_document() -> None:
    spec = importlib.util.spec_from_file_location("client_literals", ROOT / "setup" / "client_literals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert Path(literals.__file__).read_text() == module.text(), "stale: make client"
    assert sorted(module.ALIASES) == ALIASES


def test_there_are_aliases_for_what_jobs_and_stores_are() -> None:
    assert {"JobState", "JobKind", "StoreKind", "CycleState", "BackupState", "SessionState"} <= set(ALIASES)


def test_a_state_that_only_a_newer_service_knows_is_handed_on() -> None:
    job = decode(Job, {"id": "job_1", "kind": "FUTURE", "state": "RESTING"})
    assert (job.kind, job.state) == ("FUTURE", "RESTING")


def test_the_version_is_the_one_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert USER_AGENT.endswith(f"/{__version__}")
