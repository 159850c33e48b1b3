"""Restores that are killed at a line of theirs: a program that forks one for each line of its input.

A line is JSON: `data_dir`, `metadata_url`, `backup`, `step`. The answer is `killed`, or `ended` and how many
steps there were. A step is a line of app/keeping that is about to run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from app.keeping import restore as restoring
from app.settings import Settings

FOLDER = str(Path(restoring.__file__).parent)


def run(order: dict[str, Any]) -> None:
    """Restore, and be killed before the step; the steps that there were go to stdout."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            steps += 1
            if steps == order["step"]:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    settings = Settings(data_dir=Path(order["data_dir"]), metadata_url=order["metadata_url"])
    sys.settrace(trace)
    restoring.restore(settings, Path(order["backup"]), lambda _text: None)
    sys.settrace(None)
    print(json.dumps(["ended", steps]), flush=True)


def main() -> None:
    """One restore for each line."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(json.dumps(["killed", os.WTERMSIG(status)]), flush=True)
        elif os.WEXITSTATUS(status):
            print(json.dumps(["failed", os.WEXITSTATUS(status)]), flush=True)


if __name__ == "__main__":
    main()
