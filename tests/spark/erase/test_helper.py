"""The Java helper: how it refuses, what JE did with it to a recorded environment, and the plan after it.

`indexed` was written and truncated by JE 25.3 (tests/data/PROVENANCE.md). Where LETHE_TEST_JE_JARS names the
jars of a JE, the helper runs here too and must come to the same.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.request import PlanRequest
from spark.erase.helper.helper import NAME, Act, command, source
from spark.erase.plan.plan import Plan, plan_erasure
from spark.erase.reading.properties import vlsns_left
from spark.erase.reading.replicated import has_vlsns
from spark.erase.reasons import Cause
from tests.spark.erase.conftest import Sample
from tests.spark.erase.hands_at_work import claim, erase
from tests.spark.erase.live_environments import CREATED_MS, write_environment

JARS = os.environ.get("LETHE_TEST_JE_JARS", "")


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the helper, compiled once."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed (Debian: openjdk-17-jdk-headless)")
    folder = tmp_path_factory.mktemp("helper")
    (folder / NAME).write_text(source())
    subprocess.run(["javac", "-Xlint:all,-serial", "-Werror", "-d", folder, folder / NAME], check=True)

    def run(*arguments: object, jars: str = "") -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(folder), jars]))
        words = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "LetheJe", *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("a", "erase"),
        ("a", "--keep"),
        *(
            pytest.param(words, marks=pytest.mark.long)
            for words in (("a", "show", "b"), ("a", "--keep", "0"), ("a", "-x"))
        ),
    ],
)
def test_wrong_words_end_with_64(
    helper: Callable[..., subprocess.CompletedProcess[str]], words: tuple[str, ...]
) -> None:
    found = helper(*words)
    assert (found.returncode, found.stdout) == (64, "")
    assert "usage: java -cp JARS LetheJe.java ENVIRONMENT" in found.stderr


def test_class_path_without_je_is_named(
    helper: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    write_environment(tmp_path).close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = helper(tmp_path)
    assert found.returncode == 78
    assert "no Berkeley DB JE on the class path" in found.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def kept_by_index(plan: Plan) -> int:
    return sum(file.kept[Cause.VLSN_INDEX].entries for file in plan.files if Cause.VLSN_INDEX in file.kept)


def test_what_JE_truncated_is_what_the_plan_had_named(samples: dict[str, Sample]) -> None:
    known = samples["indexed"].expected
    before = plan_erasure(samples["indexed"].path / "before", PlanRequest())
    after = plan_erasure(samples["indexed"].path, PlanRequest())
    assert before.vlsn_index is not None
    assert after.vlsn_index is not None
    assert sum(file.erase.num_rows for file in before.files) == 0
    truncation = known["truncated"]
    assert after.vlsn_index.range is not None
    assert after.vlsn_index.range.first == truncation["vlsn"] + 1
    assert after.vlsn_index.first_file == truncation["file"] + 1
    free = [file for file in after.files if file.columns.number <= truncation["file"]]
    assert all(file.erase.num_rows > 100 for file in free)
    assert sum(file.erase.num_rows for file in after.files) == known["verified_erased"]
    assert kept_by_index(after) > 0, "what lies in the index stays"


def test_environment_is_erased_after_the_truncation(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("indexed")
    claim(directory)
    erase(directory)
    again = plan_erasure(directory, PlanRequest())
    assert sum(file.erase.num_rows for file in again.files) == 0
    assert (again.vetoed, again.erased_reached) == ((), ())


@pytest.mark.parametrize(("left", "file"), [(None, 0), ("1000", 0), ("1", 1), ("10050", 0), ("10051", None)])
def test_properties_say_how_many_vlsns_must_stay(
    samples: dict[str, Sample], tmp_path: Path, left: str | None, file: int | None
) -> None:
    """Its index ends with VLSN 18258, and file 0 with 8207: 10,050 VLSNs may stay, and no more."""
    directory = tmp_path / "je"
    shutil.copytree(samples["replicated"].path, directory)
    if left is not None:
        (directory / "je.properties").write_text(f"je.rep.minVLSNIndexSize = {left}\n")
    index = plan_erasure(directory, PlanRequest()).vlsn_index
    assert index is not None
    assert index.left_min == int(left or "1000")
    assert index.truncation is not None
    assert index.truncation.possible == (file is not None)
    assert index.truncation.file == (file or 0)


@pytest.mark.parametrize("named", ["many", "-1", "2147483648", "9" * 5_000, "\u0663", ""])
def test_number_that_JE_would_refuse_is_not_taken(tmp_path: Path, named: str) -> None:
    (tmp_path / "je.properties").write_text(f"je.rep.minVLSNIndexSize={named}\n", encoding="utf-8")
    assert vlsns_left(tmp_path) == 1_000


def test_replicated_environments_are_told_from_others(samples: dict[str, Sample], tmp_path: Path) -> None:
    assert {name for name in samples if has_vlsns(samples[name].path)} == {"replicated", "indexed"}
    environment = Environment(tmp_path, file_bytes_max=3_000, created_ms=CREATED_MS)
    environment.crash(torn=b"\x01" * 20)
    assert not has_vlsns(tmp_path)


def test_command_is_safe_for_a_shell() -> None:
    text = command("/srv/my logs/$(x)", Act.TRUNCATE)
    assert text.endswith("""java -cp "$JE_JARS" LetheJe.java '/srv/my logs/$(x)' truncate""")


@pytest.mark.skipif(not JARS, reason="LETHE_TEST_JE_JARS names no jar of Berkeley DB JE")
def test_helper_truncates_as_recorded(
    helper: Callable[..., subprocess.CompletedProcess[str]], samples: dict[str, Sample], tmp_path: Path
) -> None:
    directory = tmp_path / "je"
    shutil.copytree(samples["indexed"].path / "before", directory)
    shown = helper(directory, "show", jars=JARS)
    assert shown.returncode == 0, shown.stderr
    done = helper(directory, jars=JARS)
    assert done.returncode == 0, done.stderr
    assert "Truncated." in done.stdout
    index = plan_erasure(directory, PlanRequest()).vlsn_index
    assert index is not None
    assert index.range is not None
    assert index.range.first == samples["indexed"].expected["truncated"]["vlsn"] + 1
    assert helper(directory, jars=JARS).returncode == 3
    claim(directory)
    erase(directory)
    verified = helper(directory, "verify", jars=JARS)
    assert verified.returncode == 0, verified.stdout
