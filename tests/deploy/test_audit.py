"""`make audit`: what fails it, what does not, and that nothing counts as checked that was not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOUND: Final = {"id": "GHSA-1", "fix_versions": ["2.0"], "aliases": [], "description": "x"}
Audit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    """Runs setup/audit.py with a pip-audit, and an uv, that say what a test wants."""

    def run(dependencies: list[dict[str, Any]] | None, ignored: str = "") -> subprocess.CompletedProcess[str]:
        answer = "" if dependencies is None else json.dumps({"dependencies": dependencies, "fixes": []})
        (tmp_path / "pip-audit").write_text(
            f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\necho no route to host >&2\n"
        )
        (tmp_path / "uv").write_text("#!/bin/sh\nexit 0\n")
        for name in ("pip-audit", "uv"):
            (tmp_path / name).chmod(0o755)
        (tmp_path / "ignore.toml").write_text(ignored)
        command = [
            sys.executable,
            ROOT / "setup" / "audit.py",
            tmp_path,
            tmp_path / "uv",
            tmp_path / "ignore.toml",
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


def package(*vulnerabilities: dict[str, Any]) -> dict[str, Any]:
    return {"name": "mug", "version": "1.0", "vulns": list(vulnerabilities)}


def test_vulnerability_fails_it_and_is_named(audit: Audit) -> None:
    ran = audit([package(FOUND)])
    assert ran.returncode == 1
    assert "mug 1.0: GHSA-1, fixed in 2.0" in ran.stderr


def test_vulnerability_is_ignored_until_its_date_and_no_longer(audit: Audit) -> None:
    named = '[GHSA-1]\nuntil = {}\nreason = "never called"\n'
    ran = audit([package(FOUND)], named.format("2999-01-01"))
    assert (ran.returncode, "1 found, 1 of them ignored" in ran.stdout) == (0, True)
    ran = audit([package(FOUND)], named.format("2020-01-01"))
    assert ran.returncode == 1
    assert "look at it again" in ran.stderr


@pytest.mark.parametrize("answer", [None, [], [{"name": "mug", "skip_reason": "not found"}]])
def test_service_that_is_not_reached_is_said_and_is_no_failure(
    audit: Audit, answer: list[dict[str, Any]] | None
) -> None:
    ran = audit(answer)
    assert ran.returncode == 0
    assert "NOT CHECKED" in ran.stdout
    assert "packages checked" not in ran.stdout


def test_packages_that_the_service_does_not_know_are_not_counted_as_checked(audit: Audit) -> None:
    ran = audit([package(), {"name": "other", "skip_reason": "not found"}])
    assert ran.returncode == 0
    assert "1 packages checked, 1 not known there: NOT CHECKED" in ran.stdout


def test_ignored_ones_of_the_project_have_a_date_and_a_reason(audit: Audit) -> None:
    ran = audit([package()], (ROOT / "setup" / "audit-ignore.toml").read_text())
    assert ran.returncode == 0, ran.stderr
