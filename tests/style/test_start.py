"""What a service loads when it starts: nothing that only some jobs need."""

import subprocess
import sys

from tests.style.source_files import ROOT


def test_service_starts_without_the_compiler_of_the_loops() -> None:
    code = "import app.server, sys; print(sorted({'numba', 'llvmlite'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr
