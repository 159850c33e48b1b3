"""The first process and those that answer the API: who does not begin is replaced like who ends."""

import json
import subprocess
import sys
from pathlib import Path

from tests.style.source_files import ROOT

WAIT_S = 60.0
SERVICE = """
import os, sys, time
from pathlib import Path

from app.crew import keeper
from app.crew.messages import News
from app.crew.nursery import Nursery
from app.kit.shared_rates import SharedTable
from app.logs import configure_logging
from app.settings import Settings

born, how = Path(sys.argv[1]), sys.argv[2]
keeper.START_MAX_S = float(sys.argv[3])
if how == "waits":  # one try in vain may take longer than a turn of the loop may
    keeper.SILENT_MAX_S = 0.5

def life(orders, told, table, sockets):
    (born / str(os.getpid())).touch()
    if len(list(born.iterdir())) == 1 and how == "hangs":
        time.sleep(600)
    for _ in range(40 * (how == "waits")):
        os.write(told, News(silence_s=3.0, waits=True).line())
        time.sleep(0.1)
    os.write(told, News(silence_s=7.0).line())
    while os.read(orders, 1000):
        pass
    return 0

nursery = Nursery(life)
configure_logging()
crew = keeper.Crew(
    Settings(api_processes=1), nursery=nursery, instance_id="ins_1", sockets=[], table=SharedTable.create(),
    supplied=lambda store: None, rings=lambda: None, broken=lambda: os._exit(3),
)
crew.start()
until = time.monotonic() + float(sys.argv[4])
while crew.figures.silence_s() != 7.0 and time.monotonic() < until:
    time.sleep(0.05)
print("answers" if crew.figures.silence_s() == 7.0 else "silent", crew.figures.restarts, flush=True)
"""


def outcome(directory: Path, how: str, *, start_max_s: float, wait_s: float = WAIT_S) -> tuple[str, str]:
    """What a service says of its one API process, and its log."""
    arguments = [str(directory), how, str(start_max_s), str(wait_s)]
    command = [sys.executable, "-c", SERVICE, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * WAIT_S, check=True)
    *log, said = run.stdout.splitlines()
    return said, "\n".join((*log, run.stderr))


def test_process_that_hangs_before_it_answers_is_killed_and_replaced(tmp_path: Path) -> None:
    """It was never replaced: only who had said something could fall silent."""
    said, log = outcome(tmp_path, "hangs", start_max_s=0.5)
    assert said == "answers 1"
    [line] = [line for line in log.splitlines() if "an API process does not begin, and is killed" in line]
    assert "look whether the metadata answers" in line
    hung = json.loads(line)["pid"]
    assert (tmp_path / str(hung)).exists()
    assert not Path(f"/proc/{hung}").exists()


def test_process_that_says_that_it_waits_is_left_alone(tmp_path: Path) -> None:
    """For metadata that is away: whoever took its place would wait as well."""
    assert outcome(tmp_path, "waits", start_max_s=2.0)[0] == "answers 0"
