"""pt-archiver and the purge ROWS on the same table of MariaDB: the same rows gone, the same rows archived."""

from __future__ import annotations

import random
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from spark.rows.condition import Cutoff
from spark.rows.expression import parse
from spark.rows.family import Family, Selection
from spark.targets.archive.archive import read_rows
from spark.targets.connection import Connection, Target, connect
from spark.targets.fence import raise_fence
from spark.targets.ledger import archive_manifest, ensure_ledger
from tests.spark.rows.test_random_tables import RESOURCE, sweep

ROWS = 400
WHERES = ["status = 'done'", "not kept = 1 and amount between 2 and 7.5", "status is null or id in (3, 5, 8)"]


def _fill(conn: Connection, table: str, rng: random.Random) -> None:
    conn.execute(
        f"create table {table} (id int not null, part varchar(5) not null, at datetime, status varchar(9),"
        " kept tinyint, amount decimal(6,2), note text, primary key (part, id))"
    )
    for number in range(ROWS):
        bound = {
            "id": number,
            "part": rng.choice("abc"),
            "at": rng.choice([None, datetime(2024, 6, 1), datetime(2025, 1, 1), datetime(2026, 1, 1)]),
            "status": rng.choice([None, "done", "open"]),
            "kept": rng.choice([None, 0, 1]),
            "amount": rng.choice([None, 1, 2, 5.25, 7.5, 9]),
            "note": rng.choice([None, "", "a\tb", "line\nline", 'quote"', "back\\slash", "ü,;"]),
        }
        names = ", ".join(f":{name}" for name in bound)
        conn.execute(f"insert into {table} values ({names})", bound)


def _pt_archiver(program: str, url: str, where: str, file: Path) -> None:
    place = make_url(url)
    source = f"h={place.host},P={place.port or 3306},u={place.username},D={place.database},t=theirs"
    options = ["--limit", "50", "--commit-each", "--no-check-charset", "--no-version-check"]
    command = [program, "--source", source, "--where", where, "--file", str(file), *options]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("where", WHERES)
def test_both_remove_and_keep_the_same_rows(
    mariadb_url: str, pt_archiver: str, tmp_path: Path, where: str
) -> None:
    with closing(connect(Target(mariadb_url, table_prefix=""), application_name="both")) as conn:
        assert ensure_ledger(conn)
        for table in ("ours", "theirs"):
            _fill(conn, table, random.Random(1))
        raise_fence(conn, RESOURCE, token=1, owner="test")
        cutoff = Cutoff("at", datetime(2025, 1, 1, tzinfo=UTC))
        family = Family.read(conn, Selection("ours", cutoff, parse(where)), time_zone="UTC")
        sweep(conn, family, random.Random(2), job="job_1", archive=str(tmp_path / "ours"))
        _pt_archiver(pt_archiver, mariadb_url, f"at < '2025-01-01' and ({where})", tmp_path / "theirs.txt")
        left = "select part, id, at, status, kept, amount, note from {} order by part, id"
        assert conn.execute(left.format("ours")) == conn.execute(left.format("theirs"))
        ours = {int(row[0]) for entry in archive_manifest(conn, "job_1") for row in read_rows(entry.path)}
    gone = (tmp_path / "theirs.txt").read_text().replace("\\\n", " ").splitlines()
    assert ours == {int(line.split("\t")[0]) for line in gone}
    assert ours
