"""A file of a log was lost, by a restore that had left it out. The plan said TREE_BROKEN and named an offset
in a file that was not there; JE's own gaps, which its cleaner leaves, were right beside it. And a log whose
files lie in data001/ was no environment at all.
"""

from pathlib import Path

import pytest

from lethe_samples.je_writer.cleaning import clean_file
from spark.erase.calls.calls import LiveTerms, PlanAnswer, PlanCall
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogInDataDirectories
from spark.erase.reading.directory import file_names
from spark.erase.unit import do
from tests.spark.erase.live_environments import NO_GRACE, begin, write_environment, write_versions

BOTH = pytest.mark.parametrize("terms", [None, NO_GRACE])


def planned(directory: Path, terms: LiveTerms | None) -> PlanAnswer:
    answer = do(PlanCall(str(directory), PlanRequest(), terms))
    assert isinstance(answer, PlanAnswer)
    return answer


def live_in_every_file(directory: Path) -> None:
    """Nodes of a tree that is not written whole any more lie in many files."""
    environment = begin(directory)
    write_versions(environment, range(400))
    environment.checkpoint()
    for key in range(0, 60, 3):
        write_versions(environment, range(key, key + 1))
    environment.checkpoint()
    environment.close()


@BOTH
def test_file_that_the_tree_needs_is_called_missing_by_its_name(
    tmp_path: Path, terms: LiveTerms | None
) -> None:
    live_in_every_file(tmp_path)
    assert planned(tmp_path, terms).refusal is None
    missing = 0
    for path in sorted(tmp_path.glob("*.jdb"))[:-1]:
        data = path.read_bytes()
        path.unlink()
        refusal = planned(tmp_path, terms).refusal
        if refusal is not None:
            assert (refusal.ref, refusal.file) == ("LOG_FILE_MISSING", path.name)
            assert "it is not there" in refusal.detail
            missing += 1
        path.write_bytes(data)
    assert missing > 0


def test_file_that_a_recovery_would_read_is_called_missing(tmp_path: Path) -> None:
    environment = write_environment(tmp_path)
    txn = environment.begin()
    environment.put(txn, "records", b"open", b"value %030d" % 1)
    write_versions(environment, range(200))
    environment.checkpoint()
    write_versions(environment, range(200))
    environment.crash()
    paths = sorted(tmp_path.glob("*.jdb"))
    paths[-2].unlink()
    refusal = planned(tmp_path, None).refusal
    assert refusal is not None
    assert (refusal.ref, refusal.file) == ("LOG_FILE_MISSING", paths[-2].name)


@BOTH
def test_gaps_that_the_cleaner_leaves_are_no_missing_files(tmp_path: Path, terms: LiveTerms | None) -> None:
    environment = write_environment(tmp_path, checkpoints=6)
    for number in (2, 0, 4):
        assert clean_file(environment, number)
    environment.close()
    answer = planned(tmp_path, terms)
    assert answer.refusal is None
    assert {2, 0, 4}.isdisjoint(each.number for each in answer.files)


@BOTH
def test_log_in_data_directories_is_told_as_such(tmp_path: Path, terms: LiveTerms | None) -> None:
    write_environment(tmp_path).close()
    (tmp_path / "data002").mkdir()
    assert planned(tmp_path, terms).refusal is None, "an empty directory of that name is nobody's log"
    sorted(tmp_path.glob("*.jdb"))[1].rename(tmp_path / "data002" / "00000001.jdb")
    refusal = planned(tmp_path, terms).refusal
    assert refusal is not None
    assert (refusal.ref, refusal.file) == ("LOG_IN_DATA_DIRECTORIES", "data002")
    assert "nDataDirectories" in refusal.detail
    for path in tmp_path.glob("*.jdb"):
        path.unlink()
    with pytest.raises(LogInDataDirectories):
        file_names(tmp_path)
