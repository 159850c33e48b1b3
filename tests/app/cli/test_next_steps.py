"""What goes wrong at the first steps is named, with the next step beside it."""

import shlex
import socket
from typing import Any

import pytest

from app.cli.main import main
from app.cli.overview.places import look
from tests.style.test_examples import understood

PAGE = b"<!DOCTYPE HTML>\n<html><title>Error response</title></html>"

EMPTY: dict[str, Any] = {"items": [], "next_page_token": ""}

NO_STORE = {
    "code": "STORE_NOT_FOUND",
    "detail": "there is no such store",
    "retryable": False,
    "instance": "/v1/stores/nope",
}


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("status", "body", "ends"),
    [
        (404, PAGE, 1),
        (401, PAGE, 77),
        (500, PAGE, 70),
        (501, PAGE, 1),
        (404, {"detail": "Not Found"}, 1),
        (404, {"code": 404, "message": "no"}, 1),
        (404, [], 1),
    ],
)
def test_what_is_not_lethe_is_named_as_that(lethe, service, status, body, ends) -> None:
    service.on("GET /v1/stores/shop", (status, body))
    run = lethe("store", "show", "shop", "--json")
    assert run.code == ends
    said = f"something answers at {service.url}/v1/stores/shop, but it is not Lethe (HTTP {status})"
    assert f"lethe: UNEXPECTED_ANSWER: {said}\n  Check --url or LETHE_URL." in run.err
    assert (run.json()["code"], run.json()["status"]) == ("UNEXPECTED_ANSWER", status)
    assert "HTML" not in run.err + run.out
    assert main(["explain", "UNEXPECTED_ANSWER"]) == 0


def test_page_of_a_proxy_that_passes_is_tried_again(lethe, service, monkeypatch) -> None:
    monkeypatch.setattr("lethe_client.retries.RetryPolicy.delay_s", lambda *_words, **_more: 0.0)
    service.on("GET /v1/stores/shop", (502, PAGE))
    run = lethe("store", "show", "shop")
    assert run.code == 75
    assert "not Lethe (HTTP 502)" in run.err
    assert "A proxy answers so while Lethe behind it is away" in run.err


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("jobs/job_1", "lethe job show job_1"),
        ("stores/shop", "lethe store check shop"),
        ("stores/shop/backup-sessions/bks_1", "lethe backup list shop"),
        ("stores/shop/agreements/agr_1", "lethe replication agreement show shop agr_1"),
        ("stores/shop/erasure-cycles/ec_1", "lethe erasure files shop ec_1"),
        ("instances/host-1", "lethe instance list"),
    ],
)
def test_where_to_look_is_a_command(subject, expected) -> None:
    assert look(subject) == expected
    understood(shlex.split(expected)[1:])


def test_place_of_a_newer_service_is_left_as_it_is() -> None:
    assert look("moons/moon_1") == "moons/moon_1"


@pytest.mark.parametrize(("host", "is_here"), [("127.0.0.1", True), ("localhost", True), ("10.0.0.1", False)])
def test_service_of_this_machine_that_is_away_can_be_started(lethe, monkeypatch, host, is_here) -> None:
    monkeypatch.setattr("lethe_client.retries.RetryPolicy.delay_s", lambda *_words, **_more: 0.0)
    if not is_here:
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setattr("socket.create_connection", _refused)
    port = closed_port()
    run = lethe("store", "list", "--url", f"http://{host}:{port}")
    assert run.code == 75
    start = f"Start it: lethe serve --data-dir DIR --port {port}\n"
    assert (start in run.err) is is_here
    understood(["serve", "--data-dir", "DIR", "--port", str(port)])


def _refused(*_words: object, **_more: object) -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def test_https_to_a_port_of_http_says_so(lethe, service, monkeypatch) -> None:
    monkeypatch.setattr("lethe_client.retries.RetryPolicy.delay_s", lambda *_words, **_more: 0.0)
    run = lethe("store", "list", "--url", service.url.replace("http:", "https:"))
    assert run.code == 75
    assert f"The service there speaks http, not https; give it so: --url {service.url}\n" in run.err
    assert "lethe serve" not in run.err


@pytest.mark.parametrize("address", ["127.0.0.1:8765", "localhost:8765", "lethe"])
def test_address_without_its_scheme_is_shown_with_it(lethe, address) -> None:
    run = lethe("status", "--url", address)
    assert run.code == 78
    assert f"not an http or https URL: {address}; write http://{address} or" in run.err


@pytest.mark.parametrize(
    ("words", "path"), [("job", "jobs"), ("archive", "archives"), ("schedule", "schedules")]
)
def test_empty_list_of_a_store_that_is_not_there_says_so(lethe, service, words, path) -> None:
    service.on(f"GET /v1/{path}", (200, EMPTY))
    service.on("GET /v1/stores/nope", (404, NO_STORE))
    run = lethe(words, "list", "--store", "nope", "--json")
    assert (run.code, run.json()) == (0, {"items": []})
    assert run.err == "There is no store nope. Which there are: lethe store list\n"


def test_empty_list_says_nothing_of_stores_that_are_there_or_hidden(lethe, service) -> None:
    service.on("GET /v1/jobs", (200, EMPTY))
    service.on("GET /v1/stores/shop", (200, {"id": "shop", "kind": "SYMMETRICDS"}))
    hidden = {"code": "SCOPE_MISSING", "detail": "no", "retryable": False}
    service.on("GET /v1/stores/depot", (403, hidden))
    assert lethe("job", "list", "--store", "shop", "--store", "depot", "--json").err == ""
    service.asked.clear()
    assert lethe("job", "list", "--json").err == ""
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("code", "detail", "path", "words", "listed"),
    [
        ("STORE_NOT_FOUND", "there is no such store", "stores/nope", ("store", "show", "nope"), "store list"),
        ("JOB_NOT_FOUND", "there is no such job", "jobs/nope", ("job", "show", "nope"), "job list"),
        (
            "WEBHOOK_NOT_FOUND",
            "there is no such webhook",
            "webhooks/nope",
            ("webhook", "show", "nope"),
            "webhook list",
        ),
        (
            "ARCHIVE_NOT_FOUND",
            "there is no archive of this job",
            "archives/nope:verify",
            ("archive", "verify", "nope"),
            "archive list",
        ),
    ],
)
def test_what_is_not_there_is_named_with_the_list(lethe, service, code, detail, path, words, listed) -> None:
    problem = {"code": code, "detail": detail, "retryable": False, "instance": f"/v1/{path}"}
    for method in ("GET", "POST"):
        service.on(f"{method} /v1/{path}", (404, problem))
    run = lethe(*words)
    assert run.code == 1
    assert f"lethe: {code}: {detail}: nope\n  Which there are: lethe {listed}\n" in run.err
    understood(listed.split())


def test_what_a_store_does_not_have_is_listed_by_store(lethe, service) -> None:
    problem = {"code": "AGREEMENT_NOT_FOUND", "detail": "there is no such agreement of this store"}
    problem["instance"] = "/v1/stores/shop/agreements/agr_1"
    service.on("GET /v1/stores/shop/agreements/agr_1", (404, problem))
    run = lethe("replication", "agreement", "show", "shop", "agr_1")
    assert "Which there are: lethe replication agreement list shop\n" in run.err


@pytest.mark.parametrize(("typed", "meant"), [("purg", "purge"), ("stores", "store"), ("jobs", "job")])
def test_top_level_asks_what_was_meant(lethe, typed, meant) -> None:
    run = lethe(typed)
    assert run.code == 64
    assert f"No such command '{typed}'. Did you mean '{meant}'" in run.err
    assert "Did you mean" not in lethe("zzzzqq").err


@pytest.mark.parametrize(
    ("request_", "code", "words", "advice"),
    [
        ("GET /v1/stores/x", "NOT_FOUND", "store show x", "it is given without /v1"),
        ("POST /v1/stores", "STORE_EXISTS", "store add x sqlite:////x", "lethe store list"),
        ("POST /v1/stores/x/purges", "STORE_KIND_WRONG", "purge run x", "lethe store list"),
        (
            "GET /v1/stores/x/entries/ZA/aw",
            "ENTRY_NOT_FOUND",
            "entries get x d k",
            "lethe entries list x",
        ),
    ],
)
def test_refusal_has_its_next_step(lethe, service, request_, code, words, advice) -> None:
    """These four ended with `lethe explain` alone."""
    path = request_.partition(" ")[2]
    service.on(request_, (404, {"code": code, "detail": "no", "retryable": False, "instance": path}))
    run = lethe(*words.split())
    assert run.code == 1
    [line] = [each for each in run.err.splitlines() if advice in each]
    if "lethe" in advice:
        assert line == f"  Which there are: {advice}"
        understood(shlex.split(advice)[1:])


def test_what_the_detail_and_its_fault_both_say_is_said_once(lethe, service) -> None:
    kinds = "Input should be 'JE' or 'SQL'"
    faults = [{"pointer": "/kind", "detail": kinds}]
    refusal = {"code": "KIND_NOT_SUPPORTED", "detail": f"kind: {kinds}", "retryable": False, "errors": faults}
    service.on("POST /v1/stores", (422, refusal))
    run = lethe("store", "add", "x", "sqlite:////x", "--kind", "nosql")
    assert f"lethe: KIND_NOT_SUPPORTED: /kind (--kind): {kinds}\n" in run.err


@pytest.mark.parametrize(
    ("words", "request_", "field"),
    [
        ("store add x sqlite:////x --kind sql", "POST /v1/stores", "kind"),
        ("window add allow --cron x --duration PT8H", "POST /v1/windows", "kind"),
        ("schedule add purge --store x --cron x --body {}", "POST /v1/schedules", "verb"),
    ],
)
def test_kinds_are_taken_in_small_letters_as_those_of_purges_are(
    lethe, service, words, request_, field
) -> None:
    service.on(request_, (422, {"code": "INVALID_REQUEST", "detail": "no", "retryable": False}))
    lethe(*shlex.split(words))
    [body] = service.bodies(request_)
    assert body[field] in ("SQL", "ALLOW", "PURGE")


def test_fault_of_an_option_is_said_without_the_name_of_its_class(lethe) -> None:
    run = lethe("purge", "plan", "shop", "--kind", "outgoin")
    assert run.code == 64
    assert "Invalid value for '--kind': 'outgoin' is not one of 'outgoing'" in run.err


def test_option_before_its_command_is_shown_where_it_belongs(lethe) -> None:
    run = lethe("--json", "store", "list")
    assert run.code == 64
    assert "Options stand behind the command, as in `lethe store list --json`. See: lethe --help" in run.err
    assert "stand behind" not in lethe("store", "list", "--jsn").err
    understood(["store", "list", "--json"])


def test_job_that_cannot_be_ended_any_more_is_shown(lethe, service) -> None:
    """Who aborts a purge that has just ended wants to know what it removed."""
    detail = "a job that is SUCCEEDED cannot become ABORTED"
    problem = {"code": "ILLEGAL_TRANSITION", "detail": detail, "retryable": False}
    service.on("POST /v1/jobs/job_1:abort", (409, problem | {"instance": "/v1/jobs/job_1:abort"}))
    run = lethe("job", "abort", "job_1")
    assert f"{detail}\n  See: lethe job show job_1\n" in run.err
