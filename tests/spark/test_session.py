"""The session itself: what travels to executors, what the configuration says, signals, a JVM that hangs."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import uuid
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.pool.cluster.packages import write_package
from spark.pool.options import SparkOptions, spark_conf
from spark.pool.pool import SparkPool
from spark.pool.scratch import SOCKETS_PATH_BYTES_MAX, make_scratch
from tests.spark.conftest import wait_until

ROOT = Path(__file__).parents[2]
SUMS = """
import sys
from pathlib import Path
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.session import discard, start_session
started = start_session(SparkOptions(cores=1, local_dir=Path(sys.argv[1]), cds_archive=default_cds_archive()))
conf = started.session.sparkContext.getConf()
print(conf.get("spark.python.unix.domain.socket.dir") == str(started.scratch.path))
print(started.session.sparkContext.parallelize([1, 2], 1).sum())
discard(started)
"""
"""A process has one session, and others of these tests have it here."""


def test_package_for_executors_is_the_same_each_time_and_is_imported_from_the_zip(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    package, again = write_package(tmp_path), write_package(tmp_path / "again")
    assert package.read_bytes() == again.read_bytes()
    names = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[0] for name in names} == {"spark"}
    assert "spark/purge/unit.py" in names
    program = "import spark, spark.purge.unit, spark.targets.ledger as l; print(spark.__file__, l.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(package)!r}); {program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [f"{package}/spark/__init__.py", f"{package}/spark/targets/ledger.py"]


def test_configuration_names_no_package_on_this_machine_and_ours_on_a_cluster(tmp_path: Path) -> None:
    package = tmp_path / "lethe_spark.zip"
    local = spark_conf(SparkOptions(cores=2), directory=tmp_path, packages=())
    remote = spark_conf(
        SparkOptions(master="spark://127.0.0.1:7077", driver_host="10.0.0.5", cores_max=4),
        directory=tmp_path,
        packages=(package,),
    )
    assert (local["spark.master"], local["spark.driver.host"]) == ("local[2,4]", "127.0.0.1")
    assert "spark.submit.pyFiles" not in local
    assert remote["spark.submit.pyFiles"] == str(package)
    assert remote["spark.driver.host"] == "10.0.0.5"
    assert remote["spark.cores.max"] == "4"
    assert local["spark.speculation"] == remote["spark.speculation"] == "false"


def test_missing_class_archive_is_left_out_of_the_start(tmp_path: Path) -> None:
    conf = spark_conf(SparkOptions(cds_archive=tmp_path / "none.jsa"), directory=tmp_path, packages=())
    assert "SharedArchiveFile" not in conf["spark.driver.extraJavaOptions"]


def test_folder_of_a_dead_process_is_removed_by_the_next_start_and_a_living_one_stays(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from spark.pool.scratch import make_scratch;"
        "print(make_scratch(Path(sys.argv[1])).path, flush=True); os._exit(9)"
    )
    dead = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    assert Path(dead).is_dir()
    first = make_scratch(tmp_path)
    assert not Path(dead).exists()
    second = make_scratch(tmp_path)
    assert first.path.is_dir()
    for scratch in (first, second):
        scratch.remove()
    assert list(tmp_path.iterdir()) == []


def _folder_of(path_bytes: int, letter: str, below: str) -> Path:
    """A folder whose JVM will have one of so many bytes."""
    room = path_bytes - len(below) - len("//jvm-01234567")
    return Path(below, letter * (room // len(letter.encode())) + "x" * (room % len(letter.encode())))


# Where the longest path is one of the JVM itself, below, only the long run starts another JVM with it.
@pytest.mark.parametrize(("too_long", "letter"), [pytest.param(0, "é", marks=pytest.mark.long), (1, "x")])
def test_sockets_of_a_folder_of_any_length_can_be_used(too_long: int, letter: str) -> None:
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as short:
        folder = _folder_of(SOCKETS_PATH_BYTES_MAX + too_long, letter, short)
        scratch = make_scratch(folder)
        assert len(os.fsencode(scratch.path)) == SOCKETS_PATH_BYTES_MAX + too_long
        assert (scratch.sockets == scratch.path) is (too_long == 0)
        scratch.remove()
        run = subprocess.run(
            [sys.executable, "-c", SUMS, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert (run.stdout.split(), run.returncode) == ([str(too_long == 0), "3"], 0), run.stderr


def test_a_jvm_listens_at_the_longest_path_and_python_connects(pool: SparkPool) -> None:
    """A name as Spark gives its sockets, in a folder that is just short enough; letters are of two bytes."""

    def listen(session: SparkSession) -> int:
        java = session.sparkContext._jvm.java  # type: ignore[union-attr]
        channel = java.nio.channels.ServerSocketChannel.open(java.net.StandardProtocolFamily.UNIX)
        channel.bind(java.net.UnixDomainSocketAddress.of(path))
        with socket.socket(socket.AF_UNIX) as connecting:
            connecting.connect(path)
            accepted = channel.accept()
            connecting.sendall(b"x")
            received = accepted.read(java.nio.ByteBuffer.allocate(8))
        accepted.close()
        channel.close()
        return int(received)

    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as short:
        scratch = make_scratch(_folder_of(SOCKETS_PATH_BYTES_MAX, "é", short))
        assert scratch.sockets == scratch.path
        assert len(os.fsencode(scratch.path)) == SOCKETS_PATH_BYTES_MAX
        path = f"{scratch.path}/.{uuid.uuid4()}.sock"
        with pool.lease(job_id="longest", job_class="INTERACTIVE") as lease:
            assert lease.run(listen) == 1
        scratch.remove()


@pytest.mark.parametrize("ending", ["remove", "killed"])
def test_sockets_below_the_temporary_folder_go_with_the_folder_of_their_jvm(
    tmp_path: Path, ending: str
) -> None:
    folder = tmp_path / ("long-" * 20)
    scratch = make_scratch(folder)
    assert scratch.sockets is not None
    assert stat.S_IMODE(scratch.sockets.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{scratch.sockets}/.{uuid.uuid4()}.sock")
    if ending == "remove":
        scratch.remove()
    else:
        os.close(scratch.lock)
        make_scratch(folder).remove()
    assert not scratch.sockets.exists()


@pytest.mark.parametrize("kind", ["absent", "long"])
def test_a_long_folder_where_no_short_one_can_be_made_has_no_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    temporary = Path("/absent") if kind == "absent" else tmp_path / ("temporary-" * 6)
    if kind == "long":
        temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    scratch = make_scratch(tmp_path / ("long-" * 20) / "spark")
    assert scratch.sockets is None
    assert "spark.python.unix.domain.socket.dir" not in spark_conf(
        SparkOptions(), directory=scratch.path, packages=(), sockets=scratch.sockets
    )
    scratch.remove()
    assert kind == "absent" or list(temporary.iterdir()) == []


def test_a_copy_of_the_folder_of_a_living_jvm_does_not_take_its_sockets_along(tmp_path: Path) -> None:
    """Somebody starts a service on a copy of the data directory, while the first one works."""
    living = make_scratch(tmp_path / ("long-" * 20))
    assert living.sockets is not None
    shutil.copytree(living.parent, tmp_path / ("copy-" * 20), symlinks=True)
    second = make_scratch(tmp_path / ("copy-" * 20))
    assert [path.name for path in second.parent.iterdir()] == [second.path.name]
    assert living.sockets.is_dir()
    for scratch in (second, living):
        scratch.remove()
        assert scratch.sockets is not None
        assert not scratch.sockets.exists()


def test_jvm_and_workers_speak_by_unix_sockets_in_a_folder_of_ours_alone(pool: SparkPool) -> None:
    with pool.lease(job_id="sockets", job_class="INTERACTIVE") as lease:
        assert lease.run(lambda session: session.sparkContext.parallelize([1, 2]).sum()) == 3
        conf = lease.run(lambda session: dict(session.sparkContext.getConf().getAll()))
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    folder = Path(conf["spark.python.unix.domain.socket.dir"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(stat.S_ISSOCK(path.stat().st_mode) for path in folder.iterdir())


def test_signals_for_the_service_do_not_reach_the_jvm(pool: SparkPool) -> None:
    pid = pool.snapshot().jvm_pid
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    with pool.lease(job_id="after", job_class="INTERACTIVE") as lease:
        assert lease.run(lambda session: session.range(6).count()) == 6
    assert pool.snapshot().jvm_pid == pid


def test_workers_have_the_interpreter_and_the_packages_of_the_service(pool: SparkPool) -> None:
    def look(_: int) -> tuple[str, str]:
        import sys

        import spark.purge.unit as unit

        return sys.executable, unit.__file__

    with pool.lease(job_id="look", job_class="INTERACTIVE") as lease:
        found = lease.run(lambda session: session.sparkContext.parallelize([0], 1).map(look).collect())
    assert found == [(sys.executable, str(ROOT / "spark/purge/unit.py"))]


@pytest.mark.long
def test_stopped_jvm_counts_as_hung_and_is_replaced(pool: SparkPool) -> None:
    pid = pool.snapshot().jvm_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: pool.snapshot().state == "REBUILDING", within_s=20, what="the hang is noticed")
    finally:
        if os.path.exists(f"/proc/{pid}"):
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: pool.snapshot().state == "READY", within_s=60, what="READY")
    assert pool.snapshot().jvm_pid != pid
    assert pool.snapshot().last_error == "the JVM has not answered for 10 s"
