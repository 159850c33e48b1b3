"""The command blocks of README and docs, and how a page's are run: one after the other, as by its reader."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.http.service_process import LETHE, environment
from tests.pages.command import forged_command
from tests.ports import free_port

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "client" / "README.md", *(ROOT / "docs").rglob("*.md"))
)
FENCE: Final = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
RUN_MAX_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, and the words behind it (`skip=REASON`, `needs=PROGRAM`)."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    """All blocks of a page, in their order."""
    text = (ROOT / page).read_text()
    for found in FENCE.finditer(text):
        language, *words = found["info"].split() or [""]
        yield Block(page, text.count("\n", 0, found.start()) + 1, language, tuple(words), found["text"])


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a page: its exit code, all that it printed, and how long it took."""

    code: int
    output: str
    took_s: float


class Reader:
    """Somebody who follows a page, with folders and ports that are nobody else's.

    Args:
        folder: what the page calls /tmp.
        is_forged: whether commands are forks of the forge.
    """

    def __init__(self, folder: Path, *, is_forged: bool = True) -> None:
        self.folder = folder
        self.programs = [str(LETHE.parent)]
        if is_forged and os.environ.get("LETHE_TEST_FORGE") != "0":
            self.programs.insert(0, str(forged_command(folder / "programs")))
        self.port = free_port()
        self.places = {
            "8765": str(self.port),
            "8766": str(free_port()),
            "/tmp/": f"{folder}/",
            "/backup/": f"{folder}/backup/",
            "/var/lib/lethe": f"{folder}/lethe",
        }

    def script(self, text: str) -> str:
        """The text with the reader's own places."""
        for name, place in self.places.items():
            text = text.replace(name, place)
        return text

    def run(self, text: str, *, cwd: Path = ROOT, given: dict[str, str] | None = None) -> Ran:
        """Run commands as one script that ends at the first that fails; what it leaves running is ended."""
        began, log = time.monotonic(), self.folder / "page.log"
        env = environment({"LETHE_SPARK__ENABLED": "false"}) | {
            "PATH": os.pathsep.join([*self.programs, os.environ["PATH"]]),
            "HOME": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }
        env |= {name: self.script(value) for name, value in (given or {}).items()}
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["bash", "-eu", "-c", self.script(text)],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            code = process.wait(RUN_MAX_S)
        finally:
            # Services and receivers of the page: its own session, nobody else's.
            _end_group(process.pid)
        return Ran(code, log.read_text(errors="replace"), time.monotonic() - began)


def _end_group(group: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
