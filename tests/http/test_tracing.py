"""A service with LETHE_OTEL hands spans of requests, jobs, attempts and units to a receiver of OTLP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.http.environments import make_environment_store
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.supplying import make_pair, write
from tests.http.targets import copy_reference
from tests.je_data import unpack


class Receiver(ThreadingHTTPServer):
    """Takes OTLP over HTTP, and keeps the spans."""

    daemon_threads = True

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(("127.0.0.1", 0), _Request)

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, begin: str) -> list[Span]:
        """Those whose names begin so."""
        return [span for span in self.spans if span.name.startswith(begin)]


class _Request(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        self.server.spans += [
            span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans
        ]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join(10)


def _erase(http: httpx.Client, roots: Path) -> str:
    store = make_environment_store(http, roots, unpack("closed", roots / "sample"))
    job = wait_for(http, accepted(store.post("erasure-cycles", {"min_file_age": "PT0S", "duration": "PT0S"})))
    assert job["state"] == "SUCCEEDED", job["error"]
    return str(job["id"])


def _replicate(http: httpx.Client, service: ServiceProcess, roots: Path) -> str:
    pair = make_pair(http, service, roots)
    write(pair.supplier, 5)
    job = pair.run()
    assert job["state"] == "SUCCEEDED", job["error"]
    return str(job["id"])


def _units_below(receiver: Receiver, attempt: Span) -> list[Span]:
    return [span for span in receiver.named("unit ") if span.parent_span_id == attempt.span_id]


def _assert_units_of(receiver: Receiver, job_id: str, kind: str, wanted: set[str]) -> None:
    """Each attempt of the job has its units below it, all of one trace."""
    attempts = [
        span
        for span in receiver.named(f"attempt {kind}")
        if any(each.key == "lethe.job" and each.value.string_value == job_id for each in span.attributes)
    ]
    units = [unit for attempt in attempts for unit in _units_below(receiver, attempt)]
    assert {unit.name.removeprefix("unit ") for unit in units} >= wanted
    assert len({span.trace_id for span in (*attempts, *units)}) == 1
    assert all(each.value.string_value for unit in units for each in unit.attributes)


@pytest.mark.parametrize("engine", ["INLINE", pytest.param("SPARK", marks=pytest.mark.long)])
def test_receiver_gets_each_unit_below_its_attempt_and_its_job(
    engine: str, roots: Path, settings: dict[str, str]
) -> None:
    with receiving() as receiver:
        asked = {
            "LETHE_OTEL": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        service = ServiceProcess(roots / f"traced-{engine.lower()}", settings=settings | asked).start()
        with service.http() as http:
            path = copy_reference(service.directory / "shop.sqlite")
            store = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
            assert http.post("/v1/stores", json=store).status_code == 201
            shop = Shop(http, "shop", path)
            job = wait_for(http, accepted(shop.purge(engine=engine, max_rows_in_tx=100)))
            assert (job["state"], job["engine"]) == ("SUCCEEDED", engine), job["error"]
            cycle = _erase(http, roots)
            session = _replicate(http, service, roots)
        assert service.stop() == 0
    _assert_units_of(receiver, cycle, "ERASURE", {"PLAN", "PREPARE", "ROUND", "PROVE"})
    _assert_units_of(receiver, session, "REPLICATION_SESSION", {"CHANGES"})
    [whole], [attempt] = receiver.named("job PURGE"), receiver.named("attempt PURGE")
    units = _units_below(receiver, attempt)
    assert attempt.parent_span_id == whole.span_id
    assert {unit.parent_span_id for unit in units} == {attempt.span_id}
    assert len({span.trace_id for span in (whole, attempt, *units)}) == 1
    assert len(units) == job["result"]["units"] > 1
    assert {"unit DATA", "unit EVENTS", "unit BATCHES"} <= {unit.name for unit in units}
    assert all(unit.start_time_unix_nano < unit.end_time_unix_nano for unit in units)
    assert receiver.named("POST /v1/stores"), {span.name for span in receiver.spans}
