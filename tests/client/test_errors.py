"""From an answer to an error."""

import httpx
import lethe_client
import pytest
from lethe_client import ConfigurationInvalid, Lethe, ProblemError, RetryPolicy, UnexpectedAnswer

ONCE = RetryPolicy(attempts=1)


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "RequestInvalid"),
        (401, "NotAuthenticated"),
        (403, "PermissionDenied"),
        (404, "NotFound"),
        (409, "Conflict"),
        (410, "Gone"),
        (412, "PreconditionFailed"),
        (422, "RequestInvalid"),
        (428, "PreconditionFailed"),
        (429, "TooManyRequests"),
        (500, "ServerFailed"),
        (503, "ServiceUnavailable"),
    ],
)
def test_status_becomes_its_own_error(script, status, name) -> None:
    document = {
        "code": "SOME_CODE",
        "title": "Some title",
        "detail": "what happened",
        "retryable": status == 503,
    }
    document["errors"] = [{"pointer": "/kind", "detail": "unknown"}]
    script.replies = [httpx.Response(status, json=document, headers={"X-Request-ID": "r-1"})]
    lethe = Lethe("http://lethe.test", "t", retries=ONCE, transport=httpx.MockTransport(script))
    with lethe, pytest.raises(getattr(lethe_client, name)) as raised:
        lethe.jobs.get("job_1")
    error = raised.value
    assert (error.status, error.code, error.title, error.detail) == (
        status,
        "SOME_CODE",
        "Some title",
        "what happened",
    )
    assert error.retryable is (status == 503)
    assert error.errors == ({"pointer": "/kind", "detail": "unknown"},)
    assert error.request_id == "r-1"


def test_proxys_page_becomes_a_problem_with_its_status(lethe, script) -> None:
    script.replies = [httpx.Response(404, text="<html>\nnginx</html>")]
    with pytest.raises(ProblemError) as raised:
        lethe.jobs.get("job_1")
    assert raised.value.code == "HTTP_404"
    assert raised.value.detail == "<html> nginx</html>"


@pytest.mark.parametrize("body", [{"id": "job_1"}, [], {"id": 1, "kind": "PURGE", "state": "QUEUED"}])
def test_answer_of_another_shape_is_unexpected(lethe, script, body) -> None:
    script.replies = [httpx.Response(200, json=body)]
    with pytest.raises(UnexpectedAnswer):
        lethe.jobs.get("job_1")


def test_page_of_another_service_is_unexpected(lethe, script) -> None:
    script.replies = [httpx.Response(200, text="<html>welcome</html>")]
    with pytest.raises(UnexpectedAnswer, match="is this a Lethe service"):
        lethe.jobs.get("job_1")


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8765", "ftp://host", "http://", "http://h:65536", "http://a..b", f"http://{'a' * 64}.b"],
)
def test_url_that_cannot_be_used_is_refused_before_sending(url) -> None:
    with pytest.raises(ConfigurationInvalid):
        Lethe(url, "token")


@pytest.mark.parametrize(
    "url",
    ["http://joe:{}@h", "http://joe:a#{}@h", "https://{}@h:1/lethe", "ftp://joe:{}@h", "http://h?k={}"],
)
def test_password_in_an_address_is_refused_and_not_shown(url) -> None:
    """It was sent in the place of the token, and every error showed it."""
    with pytest.raises(ConfigurationInvalid) as raised:
        Lethe(url.format("word77"), "token")
    assert "word77" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://h:65535/", "http://[::1]:8765", "https://h.example./a/b", "http://sæ.no"]
)
def test_url_that_can_be_used_is_taken(url) -> None:
    Lethe(url, "token").close()


def test_token_with_a_line_break_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationInvalid) as raised:
        Lethe("http://lethe.test", "se\ncret")
    assert "cret" not in str(raised.value)


def test_unknown_members_are_kept_in_raw(lethe, script) -> None:
    script.replies = [
        httpx.Response(200, json={"id": "job_1", "kind": "PURGE", "state": "RUNNING", "colour": "red"})
    ]
    job = lethe.jobs.get("job_1")
    assert job.raw["colour"] == "red"
    assert job.progress.done == 0


def test_ids_are_quoted_so_that_none_names_another_resource(lethe, script) -> None:
    script.replies = [httpx.Response(404, json={"code": "STORE_NOT_FOUND"})]
    with pytest.raises(ProblemError):
        lethe.stores.get("../jobs?x=1")
    assert script.requests[0].url.raw_path == b"/v1/stores/..%2Fjobs%3Fx%3D1"
