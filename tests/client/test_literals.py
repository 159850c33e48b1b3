"""States and kinds as types are those of the OpenAPI document; the version is that of the project file."""

import json
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from lethe_client import Job, __version__, literals
from lethe_client.decoding import decode
from lethe_client.transport import USER_AGENT

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "PoolState": "SparkPoolRead/properties/state",
    "SlotState": "SparkSlot/properties/state",
    "JobKind": "JobRead/discriminator/mapping",
}
"""Where an alias has another name than its schema."""
ALIASES = sorted(name for name, value in vars(literals).items() if get_args(value) and name[0].isupper())


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    return dict(found["components"]["schemas"])


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_has_the_values_of_its_schema(name: str, schemas: dict[str, Any]) -> None:
    node: Any = schemas
    for part in ELSEWHERE.get(name, name).split("/"):
        node = node[part]
    values = node.get("enum") or node.get("x-extensible-enum") or node
    assert sorted(get_args(getattr(literals, name))) == sorted(values)


def test_there_are_aliases_for_what_jobs_and_stores_are() -> None:
    assert {"JobState", "JobKind", "StoreKind", "CycleState", "BackupState", "SessionState"} <= set(ALIASES)


def test_a_state_that_only_a_newer_service_knows_is_handed_on() -> None:
    job = decode(Job, {"id": "job_1", "kind": "FUTURE", "state": "RESTING"})
    assert (job.kind, job.state) == ("FUTURE", "RESTING")


def test_the_version_is_the_one_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert USER_AGENT.endswith(f"/{__version__}")
