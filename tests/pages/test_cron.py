"""The lines for cron, as cron would run them: no environment but what the file itself sets."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "recipes.md"
JOB: Final = re.compile(r"^(?:\S+ ){5}\S+  (.+)$", re.MULTILINE)
SCRIPT: Final = """\
#!/bin/sh
echo "$0 $LETHE_TOKEN $LETHE_URL $*" >> {log}
[ "$(wc -l < {log})" -ge {runs} ] || exit {code}
"""


def _jobs() -> tuple[dict[str, str], list[str]]:
    """What the file sets, and its commands."""
    found = re.search(r"```text\n(PATH=.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    sets = re.findall(r"^([A-Z_]+)=(.*)$", found.group(1), re.MULTILINE)
    return dict(sets), JOB.findall(found.group(1))


def _run(command: str, programs: Path) -> subprocess.CompletedProcess[str]:
    sets, _ = _jobs()
    assert sets["PATH"].split(":")[0] == "/opt/lethe/bin", "where run-with-systemd.md puts it"
    path = sets["PATH"].replace("/opt/lethe/bin", str(programs))
    (programs / "token").write_text("the-token\n")
    there = re.sub(r"/etc/lethe/\w+\.token", str(programs / "token"), command)
    file_sets = [f"{name}={value}" for name, value in (sets | {"PATH": path}).items()]
    shell = ["/usr/bin/env", "-i", "PATH=/usr/bin:/bin", *file_sets, "/bin/sh", "-c", there]
    return subprocess.run(shell, capture_output=True, text=True, check=False)


def _program(folder: Path, name: str, *, code: int, runs: int) -> Path:
    log = folder / f"{name}.log"
    (folder / name).write_text(SCRIPT.format(log=log, code=code, runs=runs))
    (folder / name).chmod(0o755)
    return log


@pytest.mark.parametrize(("code", "ran"), [(0, 1), (75, 2), (1, 1)])
def test_a_backup_that_could_not_begin_is_tried_once_more_with_its_token(
    tmp_path: Path, code: int, ran: int
) -> None:
    log = _program(tmp_path, "orders-backup", code=code, runs=2)
    run = _run(_jobs()[1][0], tmp_path)
    assert (run.stderr, run.returncode) == ("", 0 if code != 1 else 1)
    lines = log.read_text().splitlines()
    assert len(lines) == ran
    assert all("the-token http://127.0.0.1:8765" in line for line in lines)


@pytest.mark.parametrize(("code", "ran"), [(0, False), (1, True)])
def test_somebody_hears_of_an_error_alone(tmp_path: Path, code: int, ran: bool) -> None:
    _program(tmp_path, "lethe", code=code, runs=2)
    said = _program(tmp_path, "logger", code=0, runs=1)
    assert _run(_jobs()[1][1], tmp_path).stderr == ""
    assert said.exists() is ran
