"""Processes of Lethe that begin with its modules loaded: each is a fork of one that did nothing but import.

The imports of one `lethe serve` take two seconds of processor time, those of a child that erases one and a
half, and tests start hundreds of both. A forked one runs the same `main` with its own arguments, environment,
standard streams and process id, and is killed, stopped and frozen as any other; when it ends its threads are
joined and its exit functions run, but its modules are not taken down. `LETHE_TEST_FORGE=0` has each
started from its file, and so has whoever puts another program around one.

In a run with workers there is a forge of the run, which begins before tests are collected; the forge of each
worker is a fork of it. So modules are loaded once, and machine code is compiled once where none is kept yet.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from tests.forked import Forked
from tests.leaving import run_and_leave

ROOT = Path(__file__).parents[1]
LETHE = Path(sys.executable).with_name("lethe")
LOADED = ("app", "lethe_client")  # with all that is below
# What a service imports when it needs it, and most services of tests do.
NEEDED = (
    "alembic.command",
    "alembic.context",
    "jinja2",
    "numpy",
    "psycopg",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.parquet",
    "pymysql",
    "spark.targets.dialects.mysql",
    "spark.targets.dialects.postgresql",
)
PROGRAM = "spark.erase.hands.child_program"
MODULE = "-m"
FORGE = "forge"
"""What is asked of the forge of the run: another forge, at a path."""
OF_THE_RUN = "LETHE_TEST_FORGE_OF_THE_RUN"
"""A variable: the socket of the forge of the run, where there is one."""
FIRST = "FORGED_FIRST"
"""A variable of a process: the module of tests whose `prepare` it calls before anything else."""
STREAMS = 3
REQUEST_BYTES_MAX = 100_000  # what the kernel takes as one message is twice that
RUN_MAX_S = 60.0
PR_SET_PDEATHSIG = 1


def start_lethe(
    command: Sequence[str | Path], *, env: Mapping[str, str], log: Any, errors: Any = None
) -> subprocess.Popen[bytes] | Forked:
    """Start a command line of Lethe with nothing on its standard input.

    Args:
        log: an open file, where its standard output goes.
        errors: another one, for its standard error; None: the same.
    """
    errors = errors or log
    arguments = [str(each) for each in command]
    if arguments[0] != str(LETHE) or os.environ.get("LETHE_TEST_FORGE") == "0":
        return subprocess.Popen(
            arguments, cwd=ROOT, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=errors
        )
    with open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno(), log.fileno(), errors.fileno())
        return _forked(forge_place(), arguments, env, streams)


def run_lethe(
    command: Sequence[str | Path], *, env: Mapping[str, str], timeout: float = RUN_MAX_S
) -> subprocess.CompletedProcess[str]:
    """Run a command line of Lethe to its end, as `subprocess.run` with captured texts.

    Raises: subprocess.TimeoutExpired: it was killed.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        process = start_lethe(command, env=env, log=said, errors=errors)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (said, errors):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(process.args, code, *texts)


def forked_child() -> Forked:
    """A child that erases for this process."""
    return forked_program(forge_place(), None)


def forked_program(place: Path, environment: Mapping[str, str] | None) -> Forked:
    """A child that erases, forked from a forge: what `spark.erase.hands.child.start_program` starts."""
    return _piped(place, [PROGRAM], os.environ if environment is None else environment)


def forked_module(name: str, *arguments: str) -> subprocess.Popen[bytes] | Forked:
    """A module of tests as a program, as `python -m` runs it: its `main`, with pipes for its streams."""
    if os.environ.get("LETHE_TEST_FORGE") == "0":
        command = [sys.executable, MODULE, name, *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    return _piped(forge_place(), [MODULE, name, *arguments], os.environ)


def _piped(place: Path, arguments: list[str], env: Mapping[str, str]) -> Forked:
    (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
    try:
        found = _forked(place, arguments, env, (theirs_in, theirs_out, 2))
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    found.stdin, found.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")
    return found


def _forked(place: Path, arguments: list[str], env: Mapping[str, str], streams: Sequence[int]) -> Forked:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(place))
    request = json.dumps({"arguments": arguments, "env": dict(env)}).encode()
    assert len(request) < REQUEST_BYTES_MAX
    socket.send_fds(connection, [request], list(streams))
    return Forked(connection, arguments)


_making = threading.Lock()


def forge_place() -> Path:
    """The socket of this process's forge, which is made by whoever asks first."""
    with _making:
        return _made()


@cache
def _made() -> Path:
    """The socket of this process's forge, which ends with this process."""
    directory = Path(tempfile.mkdtemp(prefix="lethe-forge-"))
    place = directory / "socket"
    of_the_run = os.environ.get(OF_THE_RUN)
    process: subprocess.Popen[bytes] | Forked
    if of_the_run is None:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forge", str(place)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    else:
        process = _piped(Path(of_the_run), [FORGE, str(place)], os.environ)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(_put_out, process, directory)
    return place


def _put_out(process: subprocess.Popen[bytes] | Forked, directory: Path) -> None:
    process.communicate()
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def forge_of_the_run(workers: int | None) -> Iterator[None]:
    """A forge for the workers of this run, which inherit its place; it loads its modules meanwhile."""
    if not workers or os.environ.get("LETHE_TEST_FORGE") == "0":
        yield
        return
    directory = Path(tempfile.mkdtemp(prefix="lethe-forge-"))
    place = directory / "socket"
    with _listening(place) as listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forge", str(place), str(listener.fileno())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    os.environ[OF_THE_RUN] = str(place)
    try:
        yield
    finally:
        del os.environ[OF_THE_RUN]
        process.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def _listening(place: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(place))
    listener.listen(64)
    return listener


class Forge:
    """The one that forks: one thread, which waits for requests and for the ends of its children."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.children: dict[int, tuple[int, socket.socket]] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.selector.register(sys.stdin, selectors.EVENT_READ)

    def serve(self) -> list[str]:
        """Fork for each request; returns in each child, with its arguments. Ends with its standard input."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is sys.stdin:
                    self.end()
                if key.fileobj is not self.listener:
                    self.tell_end(int(key.fd))
                    continue
                connection, _ = self.listener.accept()
                arguments = self.fork(connection)
                if arguments is not None:
                    return arguments

    def fork(self, connection: socket.socket) -> list[str] | None:
        """A child for the request; its arguments there, None here."""
        data, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, STREAMS)
        if not data:  # whoever asked was killed before he could
            connection.close()
            return None
        request = json.loads(data)
        first = request["arguments"][0]
        if first in (PROGRAM, MODULE):
            load_program()
        if first == MODULE:
            import_module(request["arguments"][1])
        forge = os.getpid()
        pid = os.fork()
        if pid == 0:
            connection.close()
            self.leave()
            become(request["env"], streams, forge)
            os.chdir(request.get("cwd", ROOT))
            return list(request["arguments"])
        for stream in streams:
            os.close(stream)
        descriptor = os.pidfd_open(pid)
        self.children[descriptor] = (pid, connection)
        self.selector.register(descriptor, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            connection.send(str(pid).encode())
        return None

    def tell_end(self, descriptor: int) -> None:
        """A child has ended: take its code and hand it on."""
        pid, connection = self.children.pop(descriptor)
        self.selector.unregister(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError), connection:
            connection.send(str(code).encode())

    def leave(self) -> None:
        """In a child: nothing of the forge stays open."""
        self.selector.close()
        self.listener.close()
        for descriptor, (_, connection) in self.children.items():
            os.close(descriptor)
            connection.close()

    def end(self) -> None:
        """Whoever asked is gone; the kernel ends the children."""
        os._exit(0)


@cache
def load_program() -> None:
    """Load what a child needs to erase, and its machine code: it comes with the first call of each loop."""
    import_module(PROGRAM)
    at_work = import_module("tests.spark.erase.hands_at_work")
    write_sample = import_module("lethe_samples.je_writer.sample").write_sample
    with tempfile.TemporaryDirectory(prefix="lethe-forge-") as directory:
        write_sample(Path(directory), total_bytes=200_000, file_bytes=100_000)
        at_work.claim(Path(directory))
        at_work.erase(Path(directory))


def analyse_operations() -> None:
    """Have every operation analysed: each service would do so with those that it is asked for."""
    for name in ("app.main", "app.console.mounting"):
        for router in import_module(name).ROUTERS:
            for route in router.routes:
                assert route.app is not None


def become(env: Mapping[str, str], streams: Sequence[int], forge: int) -> None:
    """Be what an exec with this environment would be."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != forge:
        os._exit(1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- the streams of the process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """Load, listen, and in each child run the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for name in LOADED:
        package = import_module(name)
        for module in walk_packages(package.__path__, f"{name}."):
            import_module(module.name)
    for name in NEEDED:
        import_module(name)
    analyse_operations()
    import_module("sqlalchemy.orm").configure_mappers()  # each service would do so with its first statement
    place = Path(sys.argv[1])
    if len(sys.argv) > 2:  # that of the run: its children are forges
        load_program()
        listener = socket.socket(fileno=int(sys.argv[2]))
    else:
        listener = _listening(place)
    gc.enable()
    gc.freeze()
    print("ready", flush=True)
    sys.argv = Forge(listener).serve()
    if sys.argv[0] == FORGE:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        place = Path(sys.argv[1])
        listener = _listening(place)
        print("ready", flush=True)
        sys.argv = Forge(listener).serve()
    if sys.argv == [PROGRAM]:
        os.setsid()
        import_module(PROGRAM).main()
        return 0
    if sys.argv[0] == MODULE:
        del sys.argv[0]
        import_module(sys.argv[0]).main()
        return 0
    first = os.environ.get(FIRST)
    if first is not None:
        import_module(first).prepare()
    hands = import_module("spark.erase.hands.child")
    vars(hands)["start_program"] = partial(forked_program, place)
    return int(import_module("app.cli.main").main())


if __name__ == "__main__":
    run_and_leave(main)
