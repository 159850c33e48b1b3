"""The wheel of the sources carries what they import of `spark`, and nothing of the service."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path, PurePosixPath

from lethe_spark.je_columns import COLUMNS
from lethe_spark.je_schema import ENTRIES

ROOT = Path(__file__).resolve().parents[3]
LOADED = """
import sys
import lethe_spark, lethe_spark.queries, lethe_spark.je_reading
for name in lethe_spark.__all__:
    getattr(lethe_spark, name)
print(*sorted(name for name in sys.modules if name.split(".")[0] in ("app", "spark")), sep="\\n")
"""


def _carried() -> list[PurePosixPath]:
    tree = ast.parse((ROOT / "client/sources/hatch_build.py").read_text())
    [values] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CARRIED"
    ]
    return [PurePosixPath(each) for each in ast.literal_eval(values)]


def test_everything_that_is_imported_is_carried() -> None:
    run = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    carried = _carried()
    loaded = run.stdout.split()
    assert "spark.erase.reading.files" in loaded
    for name in loaded:
        path = PurePosixPath(name.replace(".", "/"))
        file = path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")
        assert any(file.is_relative_to(each) for each in carried), f"{file} is not in the wheel"


def test_everything_that_is_carried_is_there() -> None:
    assert [str(each) for each in _carried() if not (ROOT / each).exists()] == []


def test_what_plans_a_frame_needs_no_compiler() -> None:
    program = (
        "import sys; from lethe_spark import JeSource\n"
        "source = JeSource({'path': '/je'}); source.schema(); source.reader(None)\n"
        "assert not {'numba', 'psycopg', 'lethe_client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_columns_of_a_plan_are_those_that_are_made() -> None:
    assert list(ENTRIES) == list(COLUMNS)
