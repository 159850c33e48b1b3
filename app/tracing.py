"""Spans of OpenTelemetry: a job, its attempts, and their units. Off, nothing of it is imported or made.

A job outlives processes, so the ids of its span follow from its own id: every attempt, wherever it runs, is a
child of a span that is handed over when the job ends. Units are told by the process that runs the job, as
their outcomes come back: workers of Spark need no SDK.
Source: opentelemetry.io, Trace API and the OTEL_* variables, which the SDK reads by itself.
"""

import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, StatusCode, TraceFlags

SERVICE: Final = "lethe"
NS: Final = 1_000_000_000
GOOD: Final = frozenset({"SUCCEEDED"})


class AnyAttempt(Protocol):
    """What a span tells of a job and its attempt."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def store(self) -> str | None: ...
    @property
    def attempt(self) -> int: ...


class Tracing:
    """What of it this process does; one for all threads."""

    def __init__(self) -> None:
        self._provider: Any = None
        self._tracer: trace.Tracer | None = None
        self._ids = threading.local()

    @property
    def is_on(self) -> bool:
        """Whether spans are made."""
        return self._tracer is not None

    def start(self, *, version: str, processor: Any = None) -> None:
        """Begin to make spans.

        Args:
            processor: who gets them; None: OTLP over HTTP, as OTEL_EXPORTER_OTLP_* says.
        Raises: ImportError: the extra `otel` is not installed.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        ids = self._ids

        class JobIds(RandomIdGenerator):
            """Random ids, but for the span that was asked for by name."""

            def generate_span_id(self) -> int:
                return getattr(ids, "span", None) or super().generate_span_id()

            def generate_trace_id(self) -> int:
                return getattr(ids, "trace", None) or super().generate_trace_id()

        ours = Resource({"service.name": SERVICE, "service.version": version})
        resource = Resource.create().merge(ours).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, id_generator=JobIds(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(SERVICE, version)

    def stop(self) -> None:
        """Hand over what is left, and make no more spans."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is not None:
            provider.shutdown()

    @property
    def for_requests(self) -> TelemetryConfig:
        """What the framework needs for the spans of its requests."""
        return {
            "tracing": self.is_on,
            "tracer_provider": self._provider,
            "metrics": False,
            "logs": False,
            "auto_configure": False,
        }

    @contextmanager
    def attempt(self, job: AnyAttempt, *, rests: tuple[type[Exception], ...]) -> Iterator[None]:
        """An attempt of a job, in the thread that runs it.

        Args:
            rests: what ends an attempt and is no fault.
        """
        if self._tracer is None:
            yield
            return
        parent = trace.set_span_in_context(NonRecordingSpan(self._of_job(job.id)), Context())
        facts = _facts(job.id, job.kind, job.store) | {"lethe.attempt": job.attempt}
        with self._tracer.start_as_current_span(
            f"attempt {job.kind}",
            context=parent,
            attributes=facts,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            finally:
                error = sys.exception()
                if error is not None:
                    span.set_attribute("lethe.ended_by", type(error).__name__)
                if error is not None and not isinstance(error, rests):
                    span.set_status(StatusCode.ERROR, str(getattr(error, "code", type(error).__name__)))

    def unit(self, name: str, *, unit_id: str, took_s: float, now: datetime, error: str | None) -> None:
        """A unit of the attempt of this thread, that has just come back.

        Args:
            took_s: what its worker measured.
            error: why it failed; None: it was done.
        """
        if self._tracer is None:
            return
        began = _ns(now - timedelta(seconds=took_s))
        span = self._tracer.start_span(f"unit {name}", start_time=began, attributes={"lethe.unit": unit_id})
        if error is not None:
            span.set_status(StatusCode.ERROR, error)
        span.end(_ns(now))

    def job_ended(self, told: Mapping[str, Any], created_at: datetime, finished_at: datetime | None) -> None:
        """A job has ended, whoever did it."""
        if self._tracer is None:
            return
        job_id, state, parent_id = told["job_id"], str(told["state"]), told["parent_id"]
        links = [] if parent_id is None else [Link(self._of_job(parent_id))]
        own = self._of_job(job_id)
        self._ids.trace, self._ids.span = own.trace_id, own.span_id
        try:
            span = self._tracer.start_span(
                f"job {told['kind']}",
                context=Context(),
                links=links,
                start_time=_ns(created_at),
                attributes=_facts(job_id, told["kind"], told["store"])
                | {"lethe.state": state, "lethe.attempts": told["attempts"]},
            )
        finally:
            self._ids.trace = self._ids.span = None
        if state not in GOOD:
            span.set_status(StatusCode.ERROR, told["error_code"] or state)
        span.end(None if finished_at is None else _ns(finished_at))

    def _of_job(self, job_id: str) -> SpanContext:
        """The ids of a job's span: the same in every process."""
        digest = hashlib.sha256(job_id.encode()).digest()
        trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
        is_kept = self._provider is None or _is_sampled(self._provider.sampler, trace_id)
        flags = TraceFlags(TraceFlags.SAMPLED if is_kept else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


def _is_sampled(sampler: Any, trace_id: int) -> bool:
    """Whether OTEL_TRACES_SAMPLER keeps a trace, by its id alone."""
    return bool(sampler.should_sample(Context(), trace_id, "job").decision.is_sampled())


def _facts(job_id: str, kind: str, store: str | None) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"lethe.job": job_id, "lethe.kind": kind}
    return facts if store is None else facts | {"lethe.store": store}


def _ns(at: datetime) -> int:
    return int(at.timestamp() * NS)


TRACING: Final = Tracing()
"""Of this process: `serve` and `worker` start it where LETHE_OTEL is set."""
