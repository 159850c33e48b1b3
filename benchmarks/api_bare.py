"""Measures what GET of a job costs beside a bare FastAPI handler that returns the same model.

The bare application has no token, no database and no log, and answers with a job that it holds. It runs under
the same server, once with a plain function (FastAPI runs that in a thread, as whatever asks a database has to
be) and once with a coroutine. Told is the processor time of a request, of the whole process; what the service
takes while nobody asks is taken off. Rounds of all kinds of requests take turns, so that others' work on the
machine meets them alike; the least of the rounds counts.
Exit status 1: GET of a job costs more than 1.2 times the plain function.

    python benchmarks/api_bare.py --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from app.jobs.models import JobRead
from benchmarks.api import purge
from benchmarks.gates import Gate
from benchmarks.process_tree import tree_cpu_s
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.targets import copy_reference
from tests.ports import free_port

RATIO_MAX = 1.2
CLIENTS = 4
JOBS = 20
START_MAX_S = 30.0
SETTINGS = {"LETHE_SPARK__ENABLED": "false"}
BARE, BARE_COROUTINE, OURS = "bare, function", "bare, coroutine", "GET job"
CHANGES = {"suspend": {"reason": "the benchmark", "duration": "PT1S"}, "resume": {}}


def serve_bare(file: Path, port: int) -> None:
    """The bare application, in a process of its own."""
    job = JobRead.model_validate_json(file.read_text())
    app = FastAPI()

    @app.get("/function/{job_id}")
    def function(job_id: str) -> JobRead:
        assert job_id
        return job

    @app.get("/coroutine/{job_id}")
    async def coroutine(job_id: str) -> JobRead:
        assert job_id
        return job

    uvicorn.run(app, host="127.0.0.1", port=port, http="h11", log_config=None, access_log=False)


class Asked:
    """One kind of request to one process."""

    def __init__(self, pid: int, port: int, request: bytes, share: float = 1.0) -> None:
        self.pid = pid
        self.port = port
        self.request = request
        self.share = share
        self.costs_ms: list[float] = []

    def measure(self, requests: int, idle_cores: float) -> None:
        """Ask so often, and note what one has cost."""
        number = max(CLIENTS, int(requests * self.share))
        asyncio.run(self._ask(max(CLIENTS, number // 10)))
        before, began = tree_cpu_s(self.pid), time.monotonic()
        asyncio.run(self._ask(number))
        took = tree_cpu_s(self.pid) - before - idle_cores * (time.monotonic() - began)
        self.costs_ms.append(took / number * 1000)

    async def _ask(self, number: int) -> None:
        await asyncio.gather(*(self._client(number // CLIENTS) for _ in range(CLIENTS)))

    async def _client(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for _ in range(number):
            writer.write(self.request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            assert head.startswith("http/1.1 200"), head
            await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))
        writer.close()


def request_bytes(method: str, path: str, token: str, body: object = None) -> bytes:
    """One request, as a client sends it."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
    lines += [] if body is None else ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def _await_listener(port: int) -> None:
    deadline = time.monotonic() + START_MAX_S
    while True:
        try:
            asyncio.run(asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 1))
        except OSError:
            assert time.monotonic() < deadline, "the bare application does not listen"
            time.sleep(0.05)
        else:
            return


def _of_service(service: ServiceProcess, directory: Path) -> tuple[dict[str, Asked], str]:
    with service.http() as http:
        for store in ("shop", "resting"):
            url = f"sqlite:///{copy_reference(directory / f'{store}.sqlite')}"
            body = {"id": store, "kind": "SYMMETRICDS", "url": url}
            http.post("/v1/stores", json=body).raise_for_status()
        for _ in range(JOBS):
            job = wait_for(http, purge(http, "shop"))
    port, token = service.port, service.token
    paths = {
        OURS: f"/v1/jobs/{job['id']}",
        "GET jobs, 20": "/v1/jobs?page_size=20",
        "GET stores": "/v1/stores?page_size=20",
        "GET schedules": "/v1/schedules?page_size=20",
    }
    asked = {
        name: Asked(service.pid, port, request_bytes("GET", path, token), 1.0 if name == OURS else 0.2)
        for name, path in paths.items()
    }
    for verb, body in CHANGES.items():
        request = request_bytes("POST", f"/v1/stores/resting:{verb}", token, body)
        asked[f"POST {verb}"] = Asked(service.pid, port, request, 0.05)
    return asked, json.dumps(job)


def _of_bare(stack: ExitStack, directory: Path, job: str) -> dict[str, Asked]:
    file, port = directory / "job.json", free_port()
    file.write_text(job)
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.api_bare", "--serve", str(file), str(port)])
    stack.callback(process.wait)
    stack.callback(process.kill)
    _await_listener(port)
    kinds = {BARE: "function", BARE_COROUTINE: "coroutine"}
    return {
        name: Asked(process.pid, port, request_bytes("GET", f"/{kind}/job_1", "lethe_x"))
        for name, kind in kinds.items()
    }


def measure(options: argparse.Namespace) -> dict[str, Asked]:
    """All kinds of requests in turn, as often as there are rounds."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = ServiceProcess(directory / "service", settings=SETTINGS).start()
        stack.callback(service.kill9)
        ours, job = _of_service(service, directory)
        bare = _of_bare(stack, directory, job)
        before = tree_cpu_s(service.pid)
        time.sleep(options.idle_seconds)
        idle_cores = (tree_cpu_s(service.pid) - before) / options.idle_seconds
        for _ in range(options.rounds):
            for name, asked in (bare | ours).items():
                asked.measure(options.requests, idle_cores if name in ours else 0.0)
    return bare | ours


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2_000, help="of a kind in a round; of slow ones less")
    parser.add_argument("--idle-seconds", type=float, default=5.0)
    parser.add_argument("--serve", nargs=2, metavar=("FILE", "PORT"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure; 0: the ratio held."""
    options = parse(arguments)
    if options.serve is not None:
        serve_bare(Path(options.serve[0]), int(options.serve[1]))
        return 0
    found = measure(options)
    least: Callable[[str], float] = lambda name: min(found[name].costs_ms)  # noqa: E731
    print(f"{'processor ms a request':<24}{'least':>8}{'most':>8}{'to bare':>9}")
    for name, asked in found.items():
        print(f"{name:<24}{least(name):>8.3f}{max(asked.costs_ms):>8.3f}{least(name) / least(BARE):>8.2f}x")
    gate = Gate("GET job, to a bare function", least(OURS) / least(BARE), RATIO_MAX, "x", at_least=False)
    print(gate.line())
    return 0 if gate.is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
