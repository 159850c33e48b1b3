"""What the start of a service costs: nothing that only some jobs need, and nothing twice."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from app.db import Database
from migrations.upgrade import upgrade
from tests.style.source_files import ROOT

NOT_BEFORE_IT_IS_NEEDED = {
    "alembic",
    "jinja2",
    "joserfc",
    "llvmlite",
    "mako",
    "numba",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow",
    "pymysql",
    "pyspark",
}
"""What a service on SQLite has not loaded when it is ready; it may only grow."""
RUNNING = """
import os, signal, socket, sys, threading, time

def look(port):
    for _ in range(1_000):
        time.sleep(0.1)
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as asked:
                asked.sendall(b"GET /readyz HTTP/1.1\\r\\nHost: lethe\\r\\nConnection: close\\r\\n\\r\\n")
                if b" 200 " in asked.recv(100):
                    break
        except OSError:
            continue
    print(sorted(HEAVY & set(sys.modules)), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
threading.Thread(target=look, args=(port,), daemon=True).start()
from app.cli.main import main
sys.exit(main(["serve", "--data-dir", sys.argv[1], "--port", str(port)]))
"""


def test_running_service_has_imported_nothing_that_only_some_work_needs(tmp_path: Path) -> None:
    upgrade(Database(f"sqlite:///{tmp_path / 'lethe.db'}"))
    code = f"HEAVY = {NOT_BEFORE_IT_IS_NEEDED}\n{RUNNING}"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


def test_operations_are_not_analysed_before_they_are_asked_for() -> None:
    code = (
        "from app.main import create_app; from app.routers import ROUTERS; from app.db import Database; "
        "from app.settings import Settings; "
        "create_app(Settings(), Database('sqlite://')); "
        "print(sum('dependant' in vars(route) for router in ROUTERS for route in router.routes))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr


def test_what_a_command_loads_is_not_looked_at_by_the_collector_again() -> None:
    code = (
        "import gc; from app.cli.main import main; assert main(['serve', '--help']) == 0; "
        "import sys; print(gc.isenabled(), gc.get_freeze_count() > 100_000, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "True True\n"), ran.stdout


@pytest.mark.parametrize("package", ["sqlalchemy", "fastapi", "pyspark"])
def test_packages_lie_compiled_in_the_environment(package: str) -> None:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.cached is not None
    assert Path(found.cached).is_file(), "a machine that may write no byte code compiles with every start"
