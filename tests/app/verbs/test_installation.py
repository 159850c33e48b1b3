"""A version that is installed over a running process: no job of it begins with code of both."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.jobs.errors import JobWaiting
from app.jobs.plans.plans import JOB_PLAN
from app.kit.texts.distribution import DISTRIBUTION, installed_version
from app.verbs.installation import LOOK_AGAIN
from app.verbs.table import VERBS, task_kinds
from app.verbs.verb import Tools, Verb
from tests.app.fake_clock import FakeClock
from tests.app.replication.test_trim_tick import NOON

Installed = Callable[[str], None]
TOOLS = cast(Tools, SimpleNamespace(engines=None, workshop=None))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Puts another version before the one that is there, as an installer leaves it."""
    assert installed_version()

    def install(version: str) -> None:
        folder = tmp_path / f"{DISTRIBUTION.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return install


def job(verb: Verb) -> Any:
    """A job of a verb, as far as its beginning."""
    params = {"kind": min(verb.acts)} if verb.acts else {}
    return SimpleNamespace(job=SimpleNamespace(kind=verb.kind, params=params), clock=FakeClock(NOON))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: f"{verb.kind}-{min(verb.acts, default='')}")
def test_no_job_begins_with_another_version(verb: Verb, installed: Installed) -> None:
    installed("999.1")
    context = job(verb)
    with pytest.raises(JobWaiting) as waiting:
        task_kinds(TOOLS)[verb.kind].run(context)
    [shown] = waiting.value.waiting_on
    assert (shown.kind, shown.ref) == ("INSTALLATION_REPLACED", "999.1")
    assert waiting.value.not_before == NOON + LOOK_AGAIN
    assert "restart it" in str(waiting.value)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.plan], ids=lambda verb: verb.kind)
def test_no_plan_begins_either(verb: Verb, installed: Installed) -> None:
    installed("999.1")
    context = job(verb)
    params = context.job.params | {"plan": verb.kind}
    context.job = SimpleNamespace(kind=JOB_PLAN, params=params)
    with pytest.raises(JobWaiting, match=r"999\.1"):
        task_kinds(TOOLS)[JOB_PLAN].run(context)


def test_the_same_version_begins(installed: Installed) -> None:
    """It comes as far as its own task, which finds nothing that it needs."""
    installed(installed_version())
    with pytest.raises(AttributeError):
        task_kinds(TOOLS)[VERBS[0].kind].run(job(VERBS[0]))
