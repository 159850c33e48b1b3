"""The whole of it: the demo with a real service, a real database and a real archive."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest


@pytest.mark.journey
def test_demo_purges_what_it_says_and_its_archive_verifies(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", "demo", "--rows", "20000", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path), "LETHE_PORT": "not used by the demo"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    removed = report["job"]["result"]["removed"]
    for table, before in report["before"].items():
        assert before - report["after"][table] == removed[table.removeprefix("sym_")] > 0
    assert report["job"]["result"]["archive"]["rows"] == sum(removed.values())
    assert report["verification"]["state"] == "SUCCEEDED"
    assert report["job"]["result"]["stranded"]["marked"] > 0
    assert "0 went in the last 1 s." in done.stderr
    assert Path(report["folder"]).parent == tmp_path
    with closing(sqlite3.connect(report["database"])) as db:
        stuck = "select count(*) from sym_outgoing_batch where node_id = 'store-03' and status <> 'OK'"
        assert db.execute(stuck).fetchone()[0] > 0
