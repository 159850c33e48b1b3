"""Story: each killed service left a folder /tmp/lethe-spark-* that no later start ever removed."""

from pathlib import Path

from app.clock import SystemClock
from app.jobs.engines.spark_service import SparkService
from app.settings import Settings
from spark.pool.scratch import make_scratch


def test_spark_lives_in_the_data_directory_and_a_start_removes_the_folder_of_a_dead_one(
    tmp_path: Path,
) -> None:
    service = SparkService(Settings(data_dir=tmp_path / "data"), SystemClock(), instance_id="ins_x")
    folder = service.pool._options.local_dir
    assert folder == tmp_path / "data" / "spark"
    dead = folder / "jvm-dead"
    dead.mkdir(parents=True)
    (dead / "lock").touch()
    scratch = make_scratch(folder)
    assert [path.name for path in folder.iterdir()] == [scratch.path.name]
    scratch.remove()
    assert list(folder.iterdir()) == []
