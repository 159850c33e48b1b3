"""A restore that is killed at a line of its program, in a process of its own (tests/app/forged.py).

It tells `ended` and how many steps there were. A step is a line of app/keeping that is about to run.
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


def run(data_dir: str, metadata_url: str, backup: str, step: str) -> None:
    """Restore, and be killed before the step."""
    steps, last = 0, int(step)

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            steps += 1
            if steps == last:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    settings = Settings(data_dir=Path(data_dir), metadata_url=metadata_url or None)
    sys.settrace(trace)
    restoring.restore(settings, Path(backup), lambda _text: None)
    sys.settrace(None)
    print(json.dumps(["ended", steps]), flush=True)
