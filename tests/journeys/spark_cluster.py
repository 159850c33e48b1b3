"""A standalone Spark cluster on loopback, from the wheel of pyspark alone: master, workers, executors.

Its machines have Python and the third-party packages, and not Lethe: the interpreter that `bare_python` makes
sees what is installed beside it but not the checkout, whatever the environment here says.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from spark.pool.jvm import spark_home
from spark.pool.options import default_cds_archive
from tests.journeys.service import Service, _die_with_the_test, until
from tests.journeys.spark_processes import DAEMON, children_of, command_of, descendants_of, ended
from tests.ports import free_port

CHECKOUT = Path(__file__).parents[2]
START_TIMEOUT_S = 90.0
EXECUTOR = "CoarseGrainedExecutorBackend"
REGISTERED = "Registering worker"
MASTER_AT = re.compile(r"Starting Spark master at spark://127\.0\.0\.1:(\d+)")
QUICK_JAVA = f"-XX:TieredStopAtLevel=1 -XX:SharedArchiveFile={default_cds_archive()}"
"""Half of the compiler, and the classes of an archive; one that is missing or stale does no harm."""
# Daemons of a test: small, and up soon.
DAEMONS = {
    "SPARK_DAEMON_MEMORY": "192m",
    "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} -XX:+UseSerialGC",
}


def bare_python(directory: Path) -> Path:
    """An interpreter with every package but ours: a path that a .pth file names brings no other .pth."""
    venv.create(directory, symlinks=True, with_pip=False)
    python = directory / "bin" / "python"
    packages = sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)})
    (Path(packages) / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    probe = "import importlib.util as u, pyarrow, psycopg; print(u.find_spec('spark'), u.find_spec('app'))"
    found = subprocess.run(
        [python, "-c", probe], cwd=directory, env=_environment(), capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["None", "None"], found.stdout
    return python


def _environment() -> dict[str, str]:
    """Ours without a way to the checkout, and without any setting of Lethe."""
    hidden = ("LETHE_", "PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


@dataclass
class Cluster:
    """Master and workers; what a test kills it starts again.

    Attributes:
        directory: work folders and logs.
        secret: that master, workers and drivers have in common; None: they ask for none.
    """

    directory: Path
    port: int
    master: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] | None = None
    secret: str | None = None

    @property
    def url(self) -> str:
        """What LETHE_SPARK__MASTER is set to."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def master_log(self) -> Path:
        return self.directory / "master.log"

    def registrations(self) -> int:
        """Workers that have registered, since the first master."""
        return self.master_log.read_text(errors="replace").count(REGISTERED)

    def start_master(self) -> None:
        """Start the master without waiting."""
        arguments = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        self.master = self._spawn("org.apache.spark.deploy.master.Master", arguments, self.master_log)

    def start_worker(self) -> None:
        """Start one more worker without waiting."""
        assert self.workers is not None
        number = len(self.workers)
        folder = self.directory / f"worker-{number}"
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        arguments += ["--work-dir", str(folder), self.url]
        log = self.directory / f"worker-{number}.log"
        self.workers.append(self._spawn("org.apache.spark.deploy.worker.Worker", arguments, log))

    def start(self, *, workers: int = 2) -> None:
        """Start everything and wait until every worker has registered."""
        self.workers = []
        self.start_master()
        # Where somebody has taken its port meanwhile, Spark takes the next one.
        self.port = until(self._port_of_master, timeout_s=START_TIMEOUT_S, pause_s=0.1)
        for _ in range(workers):
            self.start_worker()
        self.await_registrations(workers)

    def _port_of_master(self) -> int | None:
        found = MASTER_AT.findall(self.master_log.read_text(errors="replace"))
        return int(found[-1]) if found else None

    def have_workers(self, count: int) -> None:
        """Start workers until so many are there."""
        while sum(worker.poll() is None for worker in self.workers or []) < count:
            registered = self.registrations()
            self.start_worker()
            self.await_registrations(registered + 1)

    def await_registrations(self, count: int) -> None:
        """Wait until so many workers have registered, since the first master."""
        until(lambda: self.registrations() >= count, timeout_s=START_TIMEOUT_S, pause_s=0.1)

    def _spawn(self, program: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        local = self.directory / "local"
        local.mkdir(exist_ok=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                [spark_home() / "bin" / "spark-class", program, *self._properties(), *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **_environment(),
                    **DAEMONS,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(local),
                },
                start_new_session=True,
                preexec_fn=_die_with_the_test,
            )

    def _properties(self) -> list[str]:
        """The configuration of a daemon, in a file: no command line shows the secret."""
        if self.secret is None:
            return []
        file = self.directory / "daemon.properties"
        lines = ["spark.authenticate true", f"spark.authenticate.secret {self.secret}"]
        file.write_text("\n".join([*lines, "spark.network.crypto.enabled true", ""]))
        return ["--properties-file", str(file)]

    def processes_with(self, service: Service) -> list[int]:
        """Those of a service and of the workers, and all below them."""
        roots = [service.pid, *(worker.pid for worker in self.workers or [])]
        return [pid for root in roots for pid in [root, *descendants_of(root)]]

    def executors(self) -> list[int]:
        """The executors of all workers."""
        found: list[int] = []
        for worker in self.workers or []:
            found += [pid for pid in children_of(worker.pid) if EXECUTOR in command_of(pid)]
        return found

    def python_workers(self) -> list[int]:
        """The Python workers below the executors, without the daemons that make them."""
        return [worker for daemon in self.python_daemons() for worker in children_of(daemon)]

    def python_daemons(self) -> list[int]:
        """What makes the Python workers, and ends them with the executor."""
        found: list[int] = []
        for executor in self.executors():
            found += [pid for pid in children_of(executor) if DAEMON in command_of(pid)]
        return found

    def kill_executor(self, rng: Random) -> bool:
        """kill -9 of one executor; False: there is none."""
        return _kill_one(self.executors(), rng)

    def kill_python_worker(self, rng: Random) -> bool:
        """kill -9 of one Python worker; False: there is none."""
        return _kill_one(self.python_workers(), rng)

    def kill_worker(self, rng: Random) -> None:
        """kill -9 of a worker with all that it runs, as a machine that goes; another one comes."""
        assert self.workers is not None
        registered = self.registrations()
        alive = [worker for worker in self.workers if worker.poll() is None]
        _end(rng.choice(alive))
        self.start_worker()
        self.await_registrations(registered + 1)

    def kill_master(self) -> None:
        """kill -9 of the master."""
        assert self.master is not None
        _end(self.master)

    def stop(self) -> None:
        """End everything, executors too."""
        below = [pid for worker in self.workers or [] for pid in descendants_of(worker.pid)]
        for process in [*(self.workers or []), *([self.master] if self.master else [])]:
            _end(process)
        until(lambda: ended(below), timeout_s=20)

    def report(self) -> str:
        """What to know of it when a test has failed."""
        logs = sorted(self.directory.glob("*.log")) + sorted(self.directory.glob("worker-*/app-*/*/stderr"))
        return "\n".join(f"== {log}\n{log.read_text(errors='replace')[-1500:]}" for log in logs[-12:])


def _kill_one(pids: list[int], rng: Random) -> bool:
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(sorted(pids)), signal.SIGKILL)
    return bool(pids)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole group at once, the Python workers too, which are groups of their own."""
    below = descendants_of(process.pid)
    for pid in [process.pid, *below]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(20)


@contextmanager
def cluster_of(directory: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """A cluster that is ready; ended at the end, however it stands then."""
    directory.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(directory, free_port())
    try:
        cluster.start(workers=workers)
        yield cluster
    except BaseException:
        print(cluster.report())
        raise
    finally:
        cluster.stop()


def installed_service(directory: Path, python: Path, settings: dict[str, str]) -> Service:
    """A service that finds our packages by its environment alone, which executors do not inherit."""
    paths = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "client")])
    service = Service(directory, {**settings, "PYTHONPATH": paths})
    service.command = [python, "-m", "app.cli.main"]
    return service


def pool_of(service: Service) -> dict[str, object]:
    """What a service says of its pool."""
    return dict(service.client.spark_pool.get().raw)
