"""A fault of a target loads no driver: with no file left to open, it would hide what was to be reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.style.source_files import ROOT

FAULTS = """
import errno, sys
from importlib.abc import MetaPathFinder

class NoFileLeft(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("psycopg", "pymysql"):
            raise OSError(errno.EMFILE, "Too many open files")

from spark.targets.connection import Target, connect
from spark.targets.errors import TargetError, classify

sys.meta_path.insert(0, NoFileLeft())
with connect(Target("sqlite:///" + sys.argv[1]), application_name="test") as conn:
    for act in (lambda: conn.execute("no statement"), lambda: list(conn.stream("select * from nowhere"))):
        try:
            act()
        except TargetError as error:
            print(error.code)
    try:
        with conn.transaction():
            conn.execute("create table t (id integer primary key)")
            raise KeyError("a bug")
    except KeyError:
        print(conn.execute("select count(*) from sqlite_master"))
print(classify(ValueError("of nobody")).code, sorted({"psycopg", "pymysql"} & set(sys.modules)))
"""


def test_faults_are_named_where_no_driver_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "target.db").touch()
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS, str(tmp_path / "target.db")], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == [
        "TARGET_ERROR",
        "TARGET_TABLES_MISSING",
        "[(0,)]",
        "TARGET_ERROR []",
    ], ran.stderr
