"""Spans of jobs, attempts and units, as an exporter in memory gets them; without the setting, none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.settings import Settings
from app.starting import Misconfigured, start_tracing
from app.tracing import TRACING, Tracing
from tests.app.forged import ended
from tests.app.starts_forged import loaded

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
JOB = SimpleNamespace(id="job_01", kind="PURGE", store="shop", attempt=2)
ENDED: dict[str, Any] = {
    "job_id": "job_01",
    "kind": "PURGE",
    "store": "shop",
    "state": "SUCCEEDED",
    "error_code": None,
    "parent_id": None,
    "attempts": 2,
}


class Rests(Exception):
    """Ends an attempt, and is no fault."""


class Breaks(Exception):
    """A fault with a code."""

    code = "TARGET_UNREACHABLE"


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(memory: InMemorySpanExporter) -> Iterator[Tracing]:
    found = Tracing()
    found.start(version="1", processor=SimpleSpanProcessor(memory))
    yield found
    found.stop()


def by_name(memory: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in memory.get_finished_spans()}


def test_units_are_children_of_their_attempt_and_attempts_of_their_job(
    tracing: Tracing, memory: InMemorySpanExporter
) -> None:
    with tracing.attempt(JOB, rests=(Rests,)):
        tracing.unit("DATA", unit_id="data-1-9", took_s=2.0, now=NOW, error=None)
    tracing.job_ended(ENDED, NOW - timedelta(minutes=5), NOW)
    spans = by_name(memory)
    job, attempt, unit = spans["job PURGE"], spans["attempt PURGE"], spans["unit DATA"]
    assert job.parent is None
    assert attempt.parent is not None
    assert unit.parent is not None
    assert attempt.parent.span_id == job.get_span_context().span_id
    assert unit.parent.span_id == attempt.get_span_context().span_id
    assert len({span.get_span_context().trace_id for span in (job, attempt, unit)}) == 1
    assert attempt.attributes == {
        "lethe.job": "job_01",
        "lethe.kind": "PURGE",
        "lethe.store": "shop",
        "lethe.attempt": 2,
    }
    assert (unit.end_time or 0) - (unit.start_time or 0) == 2_000_000_000
    assert (job.end_time or 0) - (job.start_time or 0) == 300_000_000_000
    assert job.resource.attributes["service.name"] == "lethe"


def test_attempts_of_other_processes_are_of_the_same_job() -> None:
    seen: list[ReadableSpan] = []
    for _process in range(2):
        tracing, memory = Tracing(), InMemorySpanExporter()
        tracing.start(version="1", processor=SimpleSpanProcessor(memory))
        with tracing.attempt(JOB, rests=()):
            pass
        seen += memory.get_finished_spans()
        tracing.stop()
    one, two = seen
    assert one.parent == two.parent
    assert one.get_span_context().span_id != two.get_span_context().span_id


def test_what_rests_is_no_fault_and_what_breaks_is_one(
    tracing: Tracing, memory: InMemorySpanExporter
) -> None:
    for error in (Rests(), Breaks()):
        with pytest.raises(type(error)), tracing.attempt(JOB, rests=(Rests,)):
            raise error
    tracing.unit("DATA", unit_id="1", took_s=0.1, now=NOW, error="TARGET_LOCK_TIMEOUT")
    tracing.job_ended(ENDED | {"state": "FAILED", "error_code": "TARGET_UNREACHABLE"}, NOW, NOW)
    rested, broken, unit, job = memory.get_finished_spans()
    assert rested.status.status_code is StatusCode.UNSET
    assert (broken.status.status_code, broken.status.description) == (StatusCode.ERROR, "TARGET_UNREACHABLE")
    assert (unit.status.status_code, unit.status.description) == (StatusCode.ERROR, "TARGET_LOCK_TIMEOUT")
    assert job.status.status_code is StatusCode.ERROR


def test_child_of_a_batch_is_linked_to_its_parent(tracing: Tracing, memory: InMemorySpanExporter) -> None:
    tracing.job_ended(ENDED | {"job_id": "job_02", "parent_id": "job_01"}, NOW, NOW)
    tracing.job_ended(ENDED, NOW, NOW)
    child, parent = memory.get_finished_spans()
    assert [link.context.span_id for link in child.links] == [parent.get_span_context().span_id]


@pytest.mark.parametrize(("sampler", "kept"), [("always_off", 0), ("always_on", 3)])
def test_sampler_of_the_environment_keeps_all_of_a_job_or_nothing(
    sampler: str, kept: int, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", f"parentbased_{sampler}")
    tracing = Tracing()
    tracing.start(version="1", processor=SimpleSpanProcessor(memory))
    with tracing.attempt(JOB, rests=()):
        tracing.unit("DATA", unit_id="1", took_s=0.1, now=NOW, error=None)
    tracing.job_ended(ENDED, NOW, NOW)
    assert len(memory.get_finished_spans()) == kept
    tracing.stop()


def test_without_the_setting_nothing_is_made_and_nothing_imported() -> None:
    start_tracing(Settings())
    assert not TRACING.is_on
    assert TRACING.for_requests["tracing"] is False
    with TRACING.attempt(JOB, rests=()):
        TRACING.unit("DATA", unit_id="1", took_s=0.1, now=NOW, error=None)
    TRACING.job_ended(ENDED, NOW, NOW)
    assert ended(loaded, "opentelemetry.sdk") == (0, "[]\n")


def test_setting_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Misconfigured, match=r"pip install 'lethe-control-plane\[otel\]'"):
        start_tracing(Settings(otel=True))
    assert not TRACING.is_on
