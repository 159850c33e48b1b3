"""Jobs: look, control, wait, watch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.errors import WaitTimedOut
from lethe_client.job_events import events
from lethe_client.paths import collection, resource
from lethe_client.results import TERMINAL, Job, JobEvent
from lethe_client.transport import Answer, Call, Transport

# A change between two polls may go unnoticed by the service's wait; this is how late it is found at most.
POLL_MAX_S: Final = 10.0
# A service (or a proxy) that answers a long poll at once must not make us spin.
POLL_PAUSE_S: Final = 0.2
# How much longer than the long poll itself we wait for its answer.
POLL_MARGIN_S: Final = 15.0


def job_of(answer: Answer) -> Job:
    """Read a job together with the ETag that it came with."""
    return replace(decode(Job, answer.body), etag=answer.etag)


class Jobs:
    """`/v1/jobs`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, job_id: str) -> Job:
        path = resource("jobs", job_id)
        return job_of(self._transport.request(Call(method="GET", path=path, repeatable=True)))

    def list(
        self,
        *,
        states: Iterable[str] = (),
        kinds: Iterable[str] = (),
        stores: Iterable[str] = (),
        parent: str | None = None,
        created_after: datetime | None = None,
    ) -> Iterator[Job]:
        """Yield the jobs that match; several states, kinds or stores mean any of them."""
        params = {
            "state": [*states] or None,
            "kind": [*kinds] or None,
            "store": [*stores] or None,
            "parent": parent,
            "created_after": created_after.isoformat() if created_after else None,
        }
        return pages.items(self._transport, collection("jobs"), Job, params=params)

    def pause(self, job_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Job:
        return self._act(job_id, "pause", reason, key=idempotency_key)

    def resume(self, job_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Job:
        return self._act(job_id, "resume", reason, key=idempotency_key)

    def abort(self, job_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Job:
        return self._act(job_id, "abort", reason, key=idempotency_key)

    def abandon(self, job_id: str, *, reason: str, idempotency_key: str | None = None) -> Job:
        """End a job whose target is gone for good; `silence_proved` of it stays false."""
        return self._act(job_id, "abandon", reason, key=idempotency_key)

    def retry(self, job_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Job:
        """Make a new job of a failed one, with its reason if none is given; the answer is the new one."""
        return self._act(job_id, "retry", reason, key=idempotency_key)

    def throttle(
        self,
        job_id: str,
        *,
        rows_per_s: float | None = None,
        bytes_per_s: float | None = None,
        intensity: float | None = None,
        lift: bool = False,
    ) -> Job:
        """Change the pace of a live job; `lift` also takes away the limits that no value is given for."""
        asked = {"rows_per_s": rows_per_s, "bytes_per_s": bytes_per_s, "intensity": intensity}
        body = asked if lift else {name: value for name, value in asked.items() if value is not None}
        path = resource("jobs", job_id, "throttle")
        return job_of(self._transport.request(Call(method="PATCH", path=path, json=body, repeatable=True)))

    def batch(
        self,
        *,
        kind: str,
        params: Mapping[str, Any],
        stores: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Start one job over many stores, named or found by their labels; the answer is the parent."""
        body: dict[str, Any] = {"kind": kind, "params": dict(params)}
        if named := [*stores]:
            body["stores"] = named
        if labels:
            body["labels"] = dict(labels)
        path = f"{collection('jobs')}:batch"
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return job_of(self._transport.request(call))

    def wait(self, job_id: str, *, until: Iterable[str] = TERMINAL, timeout_s: float | None = None) -> Job:
        """Wait by long poll until the job is in one of these states, or has ended.

        Raises: WaitTimedOut: it is not, after `timeout_s`.
        """
        last: Job | None = None
        for job in self.follow(job_id, until=until, wait_for="state", timeout_s=timeout_s):
            last = job
        assert last is not None, "a job that is followed is seen once at least"
        return last

    def follow(
        self,
        job_id: str,
        *,
        until: Iterable[str] = TERMINAL,
        wait_for: str = "progress",
        timeout_s: float | None = None,
    ) -> Iterator[Job]:
        """Yield the job now and at every change, by long poll, up to the state waited for.

        Args:
            until: states to stop at; the terminal ones always stop.
            wait_for: `progress` or only `state`.
            timeout_s: of all of it; None waits as long as the job takes.
        Raises: WaitTimedOut: with the job as it was seen last.
        """
        assert wait_for in ("state", "progress")
        wanted = TERMINAL | frozenset(until)
        policy = self._transport.retries
        deadline = None if timeout_s is None else policy.monotonic() + timeout_s
        job = self.get(job_id)
        yield job
        while job.state not in wanted:
            polled = policy.monotonic()
            left_s = POLL_MAX_S if deadline is None else deadline - polled
            if left_s <= 0:
                raise WaitTimedOut(job, timeout_s=timeout_s or 0.0)
            changed = self._poll(job, wait_for=wait_for, wait_s=min(POLL_MAX_S, left_s))
            if changed is not None and changed != job:
                job = changed
                yield job
            else:
                policy.sleep(max(0.0, POLL_PAUSE_S - (policy.monotonic() - polled)))

    def events(self, job_id: str, *, last_event_id: int = 0) -> Iterator[JobEvent]:
        """Yield each event once and in order, over lost connections; ends with the job (see job_events)."""
        return events(self._transport, job_id, last_event_id=last_event_id, look=self.get)

    def event_list(self, job_id: str) -> Iterator[JobEvent]:
        """Yield the events so far, from the paged list."""
        return pages.items(self._transport, resource("jobs", job_id, "events"), JobEvent)

    def _poll(self, job: Job, *, wait_for: str, wait_s: float) -> Job | None:
        """Ask once; None where the service says 304, nothing changed."""
        headers = {"Prefer": f"wait={max(1, round(wait_s))}"}
        if job.etag:
            headers["If-None-Match"] = job.etag
        answer = self._transport.request(
            Call(
                method="GET",
                path=resource("jobs", job.id),
                params={"wait_for": wait_for},
                headers=headers,
                repeatable=True,
                patient=True,
                timeout_s=wait_s + POLL_MARGIN_S,
            )
        )
        return None if answer.status == 304 else job_of(answer)

    def _act(self, job_id: str, verb: str, reason: str | None, *, key: str | None) -> Job:
        path, body = resource("jobs", job_id, verb=verb), {"reason": reason} if reason else {}
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=key)
        return job_of(self._transport.request(call))
