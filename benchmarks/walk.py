"""Counts the files and functions of Lethe that one purge enters, from its POST to the fsynced archive.

A service runs with a profile function in all of its threads. Counted is what stands below the POST of the
purge, in the event loop and in the thread of its handler, and what stands below the run of its job, in the
thread of the job and in those of its units. Loops that look by themselves are not part of the walk.

    python -m benchmarks.walk [--checkout FOLDER] [--show]

`--checkout` walks through the code of another folder: `git archive COMMIT | tar -x -C FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from tests.http.service_process import environment
from tests.http.targets import CUTOFF, copy_reference
from tests.ports import free_port

HERE = Path(__file__).parents[1]
PATIENCE_S = 60.0
JOB_ROOTS = frozenset({"Runner._run", "InlineLease._run"})
HANDLERS = "AnyIO worker thread"
WALK_FILE = "LETHE_WALK_FILE"


class Walk:
    """The profile function of every thread, and what it has seen."""

    def __init__(self, root: Path) -> None:
        self._folders = tuple(f"{root}{os.sep}{name}{os.sep}" for name in ("app", "spark"))
        self._root = root
        self._here = threading.local()
        self._in_request = False
        self.seen: dict[str, set[tuple[str, str]]] = {"request": set(), "job": set()}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call; see sys.setprofile."""
        if event not in ("call", "return"):
            return
        code, step = frame.f_code, 1 if event == "call" else -1
        if code.co_qualname == "FastAPI.__call__" and _is_purge(frame.f_locals.get("scope")):
            self._here.request = getattr(self._here, "request", 0) + step
            self._in_request = True
        elif code.co_qualname in JOB_ROOTS:
            self._here.job = getattr(self._here, "job", 0) + step
        if event == "call" and code.co_filename.startswith(self._folders) and "<" not in code.co_name:
            self._note(os.path.relpath(code.co_filename, self._root), code.co_qualname)

    def _note(self, file: str, function: str) -> None:
        is_handler = self._in_request and threading.current_thread().name.startswith(HANDLERS)
        if getattr(self._here, "job", 0):
            self._in_request = False
            self.seen["job"].add((file, function))
        elif getattr(self._here, "request", 0) or is_handler:
            self.seen["request"].add((file, function))

    def write_for_ever(self, path: Path) -> None:
        """Tell what was seen so far, again and again: the service does not end by itself."""
        while True:
            time.sleep(0.2)
            draft = path.with_suffix(".draft")
            with suppress(RuntimeError):  # a set has grown meanwhile
                draft.write_text(json.dumps({part: sorted(seen) for part, seen in self.seen.items()}))
                draft.replace(path)


def _is_purge(scope: Any) -> bool:
    return bool(scope) and scope.get("method") == "POST" and str(scope.get("path", "")).endswith("/purges")


def serve(root: Path) -> None:
    """The service of a checkout, profiled."""
    from app.cli.main import main as command  # of whatever checkout stands first on the path

    walk = Walk(root)
    path = Path(os.environ[WALK_FILE])
    threading.Thread(target=walk.write_for_ever, args=(path,), daemon=True).start()
    threading.setprofile(walk)
    sys.setprofile(walk)
    command()


def measure(checkout: Path) -> dict[str, set[tuple[str, str]]]:
    """Part of the walk to its (file, function)."""
    with tempfile.TemporaryDirectory(prefix="lethe-walk-") as named:
        folder, port = Path(named), free_port()
        target, seen = copy_reference(folder / "shop.db"), folder / "seen.json"
        code = (
            f"import runpy, pathlib; runpy.run_path({__file__!r})['serve'](pathlib.Path({str(checkout)!r}))"
        )
        paths = os.pathsep.join(map(str, (checkout, checkout / "client", HERE)))
        settings = {"LETHE_SPARK__ENABLED": "false", WALK_FILE: str(seen), "PYTHONPATH": paths}
        arguments = ["serve", "--data-dir", str(folder / "data"), "--port", str(port)]
        with (folder / "log").open("ab") as log:
            service = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                env=environment({}) | settings,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        try:
            _purge(f"http://127.0.0.1:{port}", folder, target)
            time.sleep(1)
            found: dict[str, list[list[str]]] = json.loads(seen.read_text())
        finally:
            service.kill()
            service.wait()
    return {part: {(file, function) for file, function in each} for part, each in found.items()}


def _purge(base: str, folder: Path, target: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(f"{base}/readyz").status_code == 200:
                break
        assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
        time.sleep(0.1)
    token = (folder / "data" / "admin.token").read_text().strip()
    with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
        store = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{target}"}
        assert http.post("/v1/stores", json=store).status_code == 201
        body = {"kind": "OUTGOING", "cutoff": CUTOFF, "stranded": "SKIP", "archive": {"format": "PARQUET"}}
        answer = http.post("/v1/stores/shop/purges", json=body)
        assert answer.status_code == 202, answer.text
        while (job := http.get(f"/v1/jobs/{answer.json()['id']}").json())["state"] != "SUCCEEDED":
            assert job["state"] in ("QUEUED", "RUNNING"), job
            time.sleep(0.1)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkout", type=Path, default=HERE)
    parser.add_argument("--show", action="store_true", help="each file with its number of functions")
    asked = parser.parse_args()
    found = measure(asked.checkout.resolve())
    for part, each in [*found.items(), ("both", found["request"] | found["job"])]:
        files = Counter(file for file, _ in each)
        print(f"{part:<8}{len(files):5} files {len(each):5} functions")
        if asked.show and part != "both":
            print("".join(f"    {count:4} {file}\n" for file, count in sorted(files.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
