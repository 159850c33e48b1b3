"""Waiting, watching and controlling jobs."""

import json

import httpx
import pytest
from lethe_client import Conflict, PlanFailed, ProblemError, PurgeRequest, TransportFailed, WaitTimedOut


def job(state: str, **more: object) -> dict[str, object]:
    return {"id": "job_1", "kind": "PURGE", "state": state, **more}


def reply(state: str, etag: str = "", **more: object) -> httpx.Response:
    return httpx.Response(200, json=job(state, **more), headers={"ETag": etag} if etag else {})


def event(seq: int, kind: str = "progress", **data: object) -> bytes:
    document = {"seq": seq, "type": kind, "data": data}
    return f"id: {seq}\nevent: {kind}\ndata: {json.dumps(document)}\n\n".encode()


class Cut(httpx.SyncByteStream):
    """A stream that breaks after its bytes."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    def __iter__(self):
        yield from self.chunks
        raise httpx.ReadError("connection reset")


def stream(*chunks: bytes, cut: bool = False) -> httpx.Response:
    headers = {"Content-Type": "text/event-stream"}
    if cut:
        return httpx.Response(200, headers=headers, stream=Cut(*chunks))
    return httpx.Response(200, headers=headers, content=b"".join(chunks))


def test_wait_long_polls_with_the_etag_until_the_end(lethe, script) -> None:
    script.replies = [
        reply("QUEUED", '"1"'),
        httpx.Response(304),
        reply("RUNNING", '"2"'),
        reply("SUCCEEDED", '"3"'),
    ]
    assert lethe.jobs.wait("job_1").state == "SUCCEEDED"
    assert script.headers("if-none-match") == [None, '"1"', '"1"', '"2"']
    assert script.headers("prefer") == [None, "wait=10", "wait=10", "wait=10"]
    assert [str(request.url.params) for request in script.requests[1:]] == ["wait_for=state"] * 3


def test_wait_for_a_state_stops_there(lethe, script) -> None:
    script.replies = [reply("PAUSING"), reply("PAUSED")]
    assert lethe.jobs.wait("job_1", until=["PAUSED"]).state == "PAUSED"


def test_wait_for_a_state_that_never_comes_stops_at_the_end(lethe, script) -> None:
    script.replies = [reply("PAUSING"), reply("SUCCEEDED")]
    assert lethe.jobs.wait("job_1", until=["PAUSED"]).state == "SUCCEEDED"


def test_wait_beyond_its_time_raises_with_the_last_job(lethe, script, clock) -> None:
    def later(_request: httpx.Request) -> httpx.Response:
        clock.now += 10.0
        return reply("RUNNING")

    script.replies = [reply("RUNNING"), later, later]
    with pytest.raises(WaitTimedOut) as raised:
        lethe.jobs.wait("job_1", timeout_s=15)
    assert raised.value.job.state == "RUNNING"
    assert script.headers("prefer")[1:] == ["wait=10", "wait=5"]


def test_service_that_does_not_wait_is_not_asked_in_a_spin(lethe, script, clock) -> None:
    script.replies = [reply("RUNNING")] * 5 + [reply("SUCCEEDED")]
    lethe.jobs.wait("job_1")
    assert clock.slept == [0.2] * 4


def test_follow_yields_every_change(lethe, script) -> None:
    script.replies = [reply("RUNNING", progress={"done": done, "total": 9}) for done in (1, 5)]
    script.replies.append(reply("SUCCEEDED", progress={"done": 9, "total": 9}))
    assert [seen.progress.done for seen in lethe.jobs.follow("job_1")] == [1, 5, 9]


def test_stream_cut_three_times_yields_each_event_once(lethe, script) -> None:
    first = [b": keep-alive\n\n", event(1, "state", state="RUNNING"), event(2), b"id: 3\nevent: prog"]
    script.replies = [
        stream(*first, cut=True),
        httpx.ConnectError("refused"),
        stream(event(2), event(3), event(4), cut=True),
        stream(event(5), event(6, "state", state="SUCCEEDED"), event(7)),
    ]
    assert [seen.seq for seen in lethe.jobs.events("job_1")] == [1, 2, 3, 4, 5, 6]
    assert script.headers("last-event-id") == [None, "2", "2", "4"]


def test_stream_that_is_always_cut_is_an_error_and_not_the_end(lethe, script) -> None:
    # Seen with a service that failed inside of the stream: 200, no event, connection closed. The job had
    # ended, and the watch ended with it, without one of its events.
    script.replies = [stream(cut=True) for _ in range(100)]
    with pytest.raises(TransportFailed, match="stream of events was cut"):
        list(lethe.jobs.events("job_1"))


def test_stream_that_the_service_ends_early_is_opened_again(lethe, script) -> None:
    script.replies = [
        stream(event(1)),
        reply("RUNNING"),
        stream(),
        reply("RUNNING"),
        stream(event(2, "state", state="SUCCEEDED")),
    ]
    assert [seen.seq for seen in lethe.jobs.events("job_1")] == [1, 2]


def test_stream_resumed_by_the_caller_asks_from_there(lethe, script) -> None:
    script.replies = [stream(event(8), event(9, "state", state="ABORTED"))]
    assert [seen.seq for seen in lethe.jobs.events("job_1", last_event_id=7)] == [8, 9]
    assert script.headers("last-event-id") == ["7"]


def test_stream_of_a_job_that_has_ended_already_ends(lethe, script) -> None:
    script.replies = [stream(event(1)), reply("SUCCEEDED"), stream()]
    assert [seen.seq for seen in lethe.jobs.events("job_1")] == [1]


def test_event_after_the_jobs_end_was_seen_is_not_missed(lethe, script) -> None:
    script.replies = [
        stream(event(1)),
        reply("SUCCEEDED"),
        stream(event(2, "state", state="SUCCEEDED")),
    ]
    assert [seen.seq for seen in lethe.jobs.events("job_1")] == [1, 2]


def test_line_separator_inside_of_an_event_does_not_cut_it(lethe, script) -> None:
    text = '{"seq":1,"type":"state","data":{"state":"FAILED"},"detail":"a\u2028b\u0085c"}'
    whole = f"id: 1\nevent: state\ndata: {text}\n\n".encode()
    script.replies = [stream(whole[:61], whole[61:])]
    [seen] = lethe.jobs.events("job_1")
    assert seen.raw["detail"] == "a\u2028b\u0085c"


def test_stream_that_cannot_be_opened_ends_after_the_policys_time(lethe, script, clock) -> None:
    script.replies = [httpx.ConnectError("refused")] * 100
    with pytest.raises(TransportFailed):
        list(lethe.jobs.events("job_1"))
    assert 45 < sum(clock.slept) <= 60


def test_wait_outlives_a_restart_of_the_service(lethe, script, clock) -> None:
    gone = [httpx.ReadError("reset"), *[httpx.ConnectError("refused")] * 7]
    script.replies = [reply("RUNNING"), *gone, reply("SUCCEEDED")]
    assert lethe.jobs.wait("job_1").state == "SUCCEEDED"
    assert sum(clock.slept) > 15


def test_stream_of_an_unknown_job_is_a_problem_at_once(lethe, script) -> None:
    script.replies = [httpx.Response(404, json={"code": "JOB_NOT_FOUND", "retryable": False})]
    with pytest.raises(ProblemError, match="JOB_NOT_FOUND"):
        list(lethe.jobs.events("job_1"))


def test_plan_that_is_ready_needs_one_request(lethe, script) -> None:
    script.replies = [
        httpx.Response(200, json={"plan_id": "job_9", "tables": [{"table": "sym_data", "rows": 4}]})
    ]
    plan = lethe.purges.plan("shop", PurgeRequest(retention_minutes=60))
    assert plan.tables[0].rows == 4
    assert script.bodies() == [{"kind": "OUTGOING", "retention_minutes": 60}]
    assert str(script.requests[0].url.params) == "validate_only=true"


def test_plan_that_takes_long_is_waited_for(lethe, script) -> None:
    done = {**job("SUCCEEDED"), "kind": "PLAN", "result": {"plan_id": "job_1"}}
    script.replies = [
        httpx.Response(202, json=job("QUEUED")),
        reply("RUNNING"),
        httpx.Response(200, json=done),
    ]
    assert lethe.purges.plan("shop", PurgeRequest()).plan_id == "job_1"


def test_plan_whose_job_fails_says_why(lethe, script) -> None:
    failed = job("FAILED", error={"code": "TARGET_UNREACHABLE", "detail": "no route", "retryable": True})
    script.replies = [httpx.Response(202, json=job("QUEUED")), httpx.Response(200, json=failed)]
    with pytest.raises(PlanFailed, match="TARGET_UNREACHABLE: no route"):
        lethe.purges.plan("shop", PurgeRequest())


def test_illegal_transition_is_a_conflict(lethe, script) -> None:
    script.replies = [httpx.Response(409, json={"code": "ILLEGAL_TRANSITION", "detail": "it has ended"})]
    with pytest.raises(Conflict):
        lethe.jobs.pause("job_1")


def test_throttle_lifted_is_sent_as_null(lethe, script) -> None:
    script.replies = [reply("RUNNING"), reply("RUNNING")]
    lethe.jobs.throttle("job_1", rows_per_s=500)
    lethe.jobs.throttle("job_1", lift=True)
    assert script.bodies() == [
        {"rows_per_s": 500},
        {"rows_per_s": None, "bytes_per_s": None, "intensity": None},
    ]


def test_list_goes_over_all_pages_with_its_filters(lethe, script) -> None:
    script.replies = [
        httpx.Response(200, json={"items": [job("RUNNING")], "next_page_token": "n1"}),
        httpx.Response(200, json={"items": [job("PAUSED")], "next_page_token": ""}),
    ]
    assert [each.state for each in lethe.jobs.list(states=["RUNNING", "PAUSED"])] == ["RUNNING", "PAUSED"]
    assert [request.url.params.get_list("state") for request in script.requests] == [
        ["RUNNING", "PAUSED"]
    ] * 2
    assert script.requests[1].url.params["page_token"] == "n1"


def test_parameter_out_of_a_list_is_read_again_for_its_etag(lethe, script) -> None:
    name = "purge.retention.minutes"
    document = {"name": name, "type": "INTEGER", "value": 7200}
    script.replies = [
        httpx.Response(200, json={"items": [document], "next_page_token": ""}),
        httpx.Response(200, json=document, headers={"ETag": '"4"'}),
        httpx.Response(200, json={**document, "value": 60}, headers={"ETag": '"5"'}),
    ]
    [parameter] = lethe.parameters.list(store="shop")
    assert lethe.parameters.set(parameter, 60).value == 60
    assert script.headers("if-match") == [None, None, '"4"']
    assert script.requests[2].url.path == f"/v1/stores/shop/parameters/{name}"
