"""A restore into a file whose runner died after the file had its name, and before the job had its end, took
its own file for a stranger's: the next attempt ended FAILED with RESTORE_CONFLICT.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.archives import task
from app.archives.task import run_restore
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from spark.targets.archive import restore
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges


class Died(BaseException):
    """The runner is gone: nothing of it tidies up behind this that a kill would have left."""


@pytest.fixture
def archived(purges: Purges, tmp_path: Path) -> str:
    place = purges.fill(Place(f"sqlite:///{tmp_path}/shop.db"), rows=60)
    purges.store(place)
    job_id = purges.submit(cutoff=OLD_CUTOFF, archive={"format": "PARQUET"})
    assert purges.run(job_id).state == "SUCCEEDED"
    return job_id


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "out" / "restored.db"


def _submit(purges: Purges, archive: str, file: Path) -> str:
    into = {"file": str(file), "schema": None, "live": False}
    return purges.bench.submit("ARCHIVE_RESTORE", params={"archive": archive, "into": into})


def _attempt(purges: Purges, job_id: str) -> JobContext:
    context = purges.attempt()
    assert context.job.id == job_id
    return context


def _again(purges: Purges, job_id: str) -> Job:
    purges.bench.lapse(job_id)
    return purges.run(job_id)


def _rows(file: Path) -> dict[str, int]:
    raw = sqlite3.connect(file)
    try:
        names = [name for (name,) in raw.execute("select name from sqlite_master where type = 'table'")]
        return {name: raw.execute(f"select count(*) from {name}").fetchone()[0] for name in names}
    finally:
        raw.close()


def test_a_runner_that_died_behind_its_file_is_followed_by_one_that_finds_it(
    purges: Purges, archived: str, file: Path
) -> None:
    job_id = _submit(purges, archived, file)
    result = dict(run_restore(_attempt(purges, job_id)))  # its end is never written
    before = (file.stat().st_ino, _rows(file))
    job = _again(purges, job_id)
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result == result
    assert result["rows"] == sum(before[1].values()) > 0
    assert (file.stat().st_ino, _rows(file)) == before


@pytest.mark.parametrize("step", ["create_draft", "mark_of", "publish"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_the_next_attempt_makes_one_whole_file(
    purges: Purges, archived: str, file: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    job_id = _submit(purges, archived, file)
    with monkeypatch.context() as patch:
        patch.setattr(restore, "remove_draft", lambda _draft: None)  # killed, it does not come to this
        patch.setattr(restore, step, _dying(getattr(restore, step), when))
        with pytest.raises(Died):
            run_restore(_attempt(purges, job_id))
    job = _again(purges, job_id)
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    assert job.result["rows"] == sum(_rows(file).values()) > 0
    assert os.listdir(file.parent) == [file.name]


def _dying(call: Callable[..., Any], when: str) -> Callable[..., Any]:
    def die(*args: Any) -> None:
        if when == "after":
            call(*args)
        raise Died

    return die


def test_a_runner_that_slept_before_its_file_had_a_name_does_not_give_it_one_later(
    purges: Purges, archived: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = _submit(purges, archived, file)
    publish = restore.publish
    ended: list[Job] = []

    def sleeping(draft: Path, path: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(restore, "publish", publish)
            ended.append(_again(purges, job_id))
        path.unlink()  # the operator took it away
        publish(draft, path)

    monkeypatch.setattr(restore, "publish", sleeping)
    with pytest.raises(Exception, match="No such file"):
        run_restore(_attempt(purges, job_id))
    assert [job.state for job in ended] == ["SUCCEEDED"]
    assert os.listdir(file.parent) == []


def test_a_file_that_somebody_put_there_meanwhile_is_not_taken_for_its_own(
    purges: Purges, archived: str, file: Path
) -> None:
    job_id = _submit(purges, archived, file)
    run_restore(_attempt(purges, job_id))
    file.rename(file.with_name("taken.db"))
    file.write_text("precious")
    job = _again(purges, job_id)
    assert job.error is not None
    assert job.error["code"] == "RESTORE_CONFLICT"
    assert file.read_text() == "precious"


def test_a_file_that_was_written_to_meanwhile_is_not_taken_for_what_was_restored(
    purges: Purges, archived: str, file: Path
) -> None:
    job_id = _submit(purges, archived, file)
    run_restore(_attempt(purges, job_id))
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("create table mine (id integer)")
    raw.close()
    job = _again(purges, job_id)
    assert job.error is not None
    assert job.error["code"] == "RESTORE_CONFLICT"


def test_what_was_noted_is_read_again_after_a_kill(purges: Purges, archived: str, file: Path) -> None:
    job_id = _submit(purges, archived, file)
    context = _attempt(purges, job_id)
    run_restore(context)
    noted = context.checkpoint(task.CHECKPOINT_FILE)
    assert noted is not None
    assert noted["mark"]["inode"] == file.stat().st_ino
