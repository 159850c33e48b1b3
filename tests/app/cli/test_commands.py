"""Exit codes, what goes to which stream, and the requests that commands make."""

import json
import subprocess
import sys

import pytest

from app.cli.main import main

STORE = {"id": "shop", "kind": "SYMMETRICDS", "url": "sqlite:////srv/shop.db", "labels": {"site": "x"}}
STORE_REPLY = (200, STORE, {"ETag": '"7"'})
PURGES = "POST /v1/stores/shop/purges"
PLAN = {
    "plan_id": "job_plan",
    "store": "shop",
    "cutoff": "2026-11-01T03:00:00Z",
    "tables": [{"table": "sym_data", "rows": 200000, "rows_to_remove": 90000, "lo": 1, "hi": 7}],
    "stranded": {"mode": "MARK", "nodes": [{"node_id": "store-05", "batches": 120, "rows": 600}]},
    "warnings": [
        {"code": "NULL_CREATE_TIME", "table": "sym_data", "count": 3, "sample": [4, 5], "detail": "stay"}
    ],
}


def job(state: str, **more: object) -> dict[str, object]:
    return {"id": "job_1", "kind": "PURGE", "store": "shop", "state": state, **more}


DONE = job(
    "SUCCEEDED",
    result={"removed": {"data": 90000, "data_event": 80000}, "counts": "EXACT", "units": 9, "warnings": []},
)
FAILED = job(
    "FAILED", error={"code": "TARGET_UNREACHABLE", "title": "t", "detail": "no route", "retryable": True}
)


def problem(code: str, *, retryable: bool = False, **more: object) -> dict[str, object]:
    return {"code": code, "detail": f"because of {code}", "retryable": retryable, **more}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, problem("INVALID_PAGE_TOKEN"), 64),
        (401, problem("UNAUTHENTICATED"), 77),
        (403, problem("SCOPE_MISSING"), 77),
        (404, problem("STORE_NOT_FOUND"), 1),
        (409, problem("CONFLICTING_JOB", job_id="job_2"), 1),
        (409, problem("JOB_CHANGING", retryable=True), 75),
        (412, problem("ETAG_MISMATCH"), 1),
        (422, problem("INVALID_REQUEST", errors=[{"pointer": "/kind", "detail": "unknown"}]), 64),
        (500, problem("INTERNAL"), 70),
        (503, problem("METADATA_BUSY"), 75),
    ],
)
def test_refusal_ends_with_its_code_and_one_problem_document(lethe, service, status, body, expected) -> None:
    service.on("GET /v1/stores/shop", (status, body))
    run = lethe("store", "show", "shop", "--json")
    assert run.code == expected
    assert run.json() == body
    assert f"lethe: {body['code']}: because of {body['code']}" in run.err
    plain = lethe("store", "show", "shop")
    assert (plain.code, plain.out) == (expected, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("store", "bogus"),
        ("store", "show"),
        ("store", "show", "shop", "--colour"),
        ("job", "throttle", "job_1"),
        ("job", "throttle", "job_1", "--rows-per-s", "5", "--off"),
        ("purge", "run", "shop", "--retention-minutes", "soon"),
        ("purge", "run", "shop", "--retention-minutes", "60", "--cutoff", "2026-11-01T03:00:00Z"),
        ("purge", "run", "shop", "--cutoff", "2026-11-01T03:00:00"),
        ("purge", "run", "shop", "--kind", "EVERYTHING"),
        ("store", "add", "shop", "sqlite:////x", "--label", "novalue"),
        ("token", "create", "ci"),
        ("archive", "restore", "job_1"),
    ],
)
def test_usage_error_ends_with_64_and_asks_for_nothing(lethe, service, arguments) -> None:
    run = lethe(*arguments, "--json")
    assert run.code == 64
    assert run.json()["code"] == "USAGE"
    assert run.err.startswith("lethe: USAGE: ")
    assert service.asked == []


def test_no_service_ends_with_75(lethe) -> None:
    run = lethe("store", "list", "--url", "http://127.0.0.1:9", "--json")
    assert run.code == 75
    assert run.json()["code"] == "SERVICE_UNREACHABLE"


@pytest.mark.parametrize("arguments", [("--url", "nonsense"), ("--token-file", "/nowhere/token")])
def test_unusable_configuration_ends_with_78(lethe, service, arguments) -> None:
    run = lethe("store", "list", "--json", *arguments)
    assert run.code == 78
    assert run.json()["code"] == "CONFIGURATION_INVALID"
    assert service.asked == []


def test_page_of_another_service_ends_with_78(lethe, service) -> None:
    service.on("GET /v1/stores", (200, b"<html>welcome</html>"))
    assert lethe("store", "list").code == 78


def test_bug_ends_with_70_and_a_file_instead_of_a_traceback(lethe, service, monkeypatch, tmp_path) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("app.cli.shell.session.Lethe", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = lethe("store", "list", "--json")
    assert run.code == 70
    assert run.json()["code"] == "BUG"
    assert "Traceback" not in run.err
    [report] = tmp_path.glob("lethe-bug-*.txt")
    assert "ZeroDivisionError: oops" in report.read_text()
    assert str(report) in run.err


@pytest.mark.parametrize(("option", "name"), [("--token-file", "token"), ("--data-dir", "")])
def test_token_of_an_option_wins_over_the_environment(lethe, service, tmp_path, option, name) -> None:
    (tmp_path / "token").write_text("from-the-file\n")
    (tmp_path / "admin.token").write_text("from-the-file\n")
    service.on("GET /v1/stores", (200, {"items": [], "next_page_token": ""}))
    assert lethe("store", "list", option, str(tmp_path / name)).code == 0
    assert lethe("store", "list").code == 0
    sent = [headers["authorization"] for *_, headers in service.asked]
    assert sent == ["Bearer from-the-file", "Bearer from-the-environment"]


def test_store_list_over_two_pages_is_one_document(lethe, service) -> None:
    second = {**STORE, "id": "depot"}
    service.on(
        "GET /v1/stores",
        (200, {"items": [STORE], "next_page_token": "n"}),
        (200, {"items": [second], "next_page_token": ""}),
    )
    assert lethe("store", "list", "--json").json() == {"items": [STORE, second]}


def test_table_in_a_pipe_is_neither_cut_nor_decorated(lethe, service) -> None:
    url = "sqlite:////srv/" + "very-long/" * 30 + "shop.db"
    service.on("GET /v1/stores", (200, {"items": [{**STORE, "url": url}], "next_page_token": ""}))
    run = lethe("store", "list")
    assert url in run.out
    assert "\x1b" not in run.out
    assert [line.split()[0] for line in run.out.splitlines()] == ["store", "shop"]


def test_text_of_the_service_is_not_taken_as_markup_or_terminal_codes(lethe, service) -> None:
    service.on("GET /v1/stores/shop", (404, problem("X", title="t") | {"detail": "[red]a[/red]\x1b[2J\x07b"}))
    run = lethe("store", "show", "shop")
    assert "[red]a[/red]" in run.err
    assert "\x07" not in run.err


def test_store_add_sends_what_was_said_and_nothing_else(lethe, service) -> None:
    service.on("POST /v1/stores", (201, STORE))
    arguments = ["--label", "site=x", "--parameter", "purge.retention.minutes=60", "--max-rows", "5"]
    assert lethe("store", "add", "shop", "sqlite:////srv/shop.db", *arguments, "--json").json() == STORE
    assert service.bodies("POST /v1/stores") == [
        {
            "id": "shop",
            "kind": "SYMMETRICDS",
            "url": "sqlite:////srv/shop.db",
            "labels": {"site": "x"},
            "parameters": {"purge.retention.minutes": 60},
            "limits": {"max_rows": 5},
        }
    ]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"ok": True, "reachable": True, "findings": [{"code": "C", "severity": "WARNING"}]}, 0),
        ({"ok": False, "reachable": False, "findings": []}, 1),
        ({"ok": True, "reachable": True, "findings": [{"code": "C", "severity": "ERROR", "detail": "d"}]}, 1),
    ],
)
def test_check_ends_with_1_where_it_found_an_error(lethe, service, report, expected) -> None:
    service.on("POST /v1/stores/shop:check", (200, report))
    assert lethe("store", "check", "shop").code == expected
    assert lethe("store", "check", "shop", "--json").json() == report


def test_check_of_an_environment_names_the_next_step(lethe, service) -> None:
    report = {"ok": True, "reachable": True, "findings": [], "can": ["PLAN_ERASURE", "ERASE"]}
    service.on("POST /v1/stores/orders:check", (200, report))
    run = lethe("store", "check", "orders")
    assert "Next: lethe erasure plan orders " in run.err
    service.on("POST /v1/stores/orders:check", (200, report | {"can": []}))
    assert "Next" not in lethe("store", "check", "orders").err


def test_store_remove_sends_the_etag_it_read(lethe, service) -> None:
    service.on("GET /v1/stores/shop", STORE_REPLY)
    service.on("DELETE /v1/stores/shop", (204, None))
    assert lethe("store", "remove", "shop", "--json").json() == {"id": "shop", "removed": True}
    assert service.asked[-1][3]["if-match"] == '"7"'


def test_purge_run_sends_every_option(lethe, service) -> None:
    service.on(PURGES, (202, job("QUEUED")))
    arguments = (
        "--kind incoming --retention-minutes 5 --stranded skip --strict --max-rows-in-tx 500 --archive"
        " --force --throttle 1000 --overlap queue --plan-id job_plan --reason nightly --no-wait --json"
    )
    run = lethe("purge", "run", "shop", *arguments.split())
    assert (run.code, run.json()["id"]) == (0, "job_1")
    assert service.bodies(PURGES) == [
        {
            "kind": "INCOMING",
            "retention_minutes": 5,
            "stranded": "SKIP",
            "strict": True,
            "max_rows_in_tx": 500,
            "archive": {"format": "PARQUET"},
            "throttle": {"rows_per_s": 1000.0},
            "force": True,
            "overlap": "QUEUE",
            "plan_id": "job_plan",
            "reason": "nightly",
        }
    ]


@pytest.mark.parametrize(("end", "expected"), [(DONE, 0), (FAILED, 1), (job("ABORTED", reason="by ann"), 1)])
def test_purge_run_waits_and_ends_as_its_job_does(lethe, service, end, expected) -> None:
    service.on(PURGES, (202, job("QUEUED")))
    running = job("RUNNING", progress={"unit": "rows", "done": 1, "total": 2, "fraction": 0.5})
    service.on("GET /v1/jobs/job_1", (200, running), (200, end))
    run = lethe("purge", "run", "shop", "--json")
    assert run.code == expected
    assert run.json() == end
    assert "job_1 RUNNING 50 %, 1 of 2 rows" in run.err


def test_purge_result_is_shown_to_people_on_stdout(lethe, service) -> None:
    service.on(PURGES, (202, job("QUEUED")))
    service.on("GET /v1/jobs/job_1", (200, DONE))
    run = lethe("purge", "run", "shop")
    assert run.code == 0
    assert ["data", "90,000"] in [line.split() for line in run.out.splitlines()]


def test_failed_purge_says_why_and_how_to_repeat(lethe, service) -> None:
    service.on(PURGES, (202, job("QUEUED")))
    service.on("GET /v1/jobs/job_1", (200, FAILED))
    run = lethe("purge", "run", "shop")
    assert "TARGET_UNREACHABLE: no route" in run.err
    assert "lethe job retry job_1" in run.err


def test_retry_within_the_old_limits_is_not_what_raised_ones_ask_for(lethe, service) -> None:
    """After LIMIT_EXCEEDED the retry was all that was named: it keeps the limits, and fails again."""
    over = job("FAILED", error={"code": "LIMIT_EXCEEDED", "detail": "max_rows", "retryable": False})
    service.on(PURGES, (202, job("QUEUED")))
    service.on("GET /v1/jobs/job_1", (200, over))
    run = lethe("purge", "run", "shop")
    assert "Once the limits of the store are raised, give the command again as it was." in run.err
    assert "with the limits of this job: lethe job retry job_1" in run.err
    assert "When the cause is gone" not in run.err


def test_wait_that_takes_too_long_ends_with_75_and_how_to_go_on(lethe, service) -> None:
    service.on(PURGES, (202, job("QUEUED")))
    service.on("GET /v1/jobs/job_1", (200, job("RUNNING")))
    run = lethe("purge", "run", "shop", "--timeout", "0.1", "--json")
    assert run.code == 75
    assert run.json()["code"] == "WAIT_TIMED_OUT"
    assert "lethe job watch job_1" in run.err


def test_interrupt_while_watching_leaves_the_job_and_ends_with_130(lethe, service, monkeypatch) -> None:
    service.on(PURGES, (202, job("QUEUED")))
    service.on("GET /v1/jobs/job_1", (200, job("RUNNING")))

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.shell.progress.PlainLines.show", interrupt)
    run = lethe("purge", "run", "shop", "--json")
    assert run.code == 130
    assert run.json()["state"] == "RUNNING"
    assert "lethe job watch job_1" in run.err
    assert [method for method, *_ in service.asked] == ["POST", "GET"]


def test_plan_is_printed_with_its_tables_and_warnings(lethe, service) -> None:
    service.on(PURGES, (200, PLAN))
    run = lethe("purge", "plan", "shop")
    assert run.code == 0
    assert ["sym_data", "200,000", "90,000", "1", "7"] in [line.split() for line in run.out.splitlines()]
    assert ["store-05", "120", "600"] in [line.split() for line in run.out.splitlines()]
    assert "warning: NULL_CREATE_TIME sym_data 3: stay (such as 4, 5)" in run.err
    assert lethe("purge", "plan", "shop", "--json").json() == PLAN


def test_plan_whose_job_failed_ends_with_75_where_it_may_pass(lethe, service) -> None:
    service.on(PURGES, (202, {**job("QUEUED"), "kind": "PLAN"}))
    service.on("GET /v1/jobs/job_1", (200, FAILED))
    assert lethe("purge", "plan", "shop").code == 75


def test_watch_with_json_prints_one_line_per_event_and_the_job_last(lethe, service) -> None:
    events = [{"seq": seq, "type": "progress", "data": {"done": seq}} for seq in (1, 2)]
    events.append({"seq": 3, "type": "state", "data": {"state": "SUCCEEDED"}})
    frames = "".join(
        f"id: {each['seq']}\nevent: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events
    )
    service.on("GET /v1/jobs/job_1/events", (200, frames.encode(), {"Content-Type": "text/event-stream"}))
    service.on("GET /v1/jobs/job_1", (200, DONE))
    run = lethe("job", "watch", "job_1", "--json")
    assert run.code == 0
    assert [json.loads(line) for line in run.out.splitlines()] == [*events, {"type": "job", "job": DONE}]


@pytest.mark.parametrize(("end", "expected"), [("PAUSED", 0), ("SUCCEEDED", 1)])
def test_pause_with_wait_ends_with_1_where_the_job_ended_first(lethe, service, end, expected) -> None:
    service.on("POST /v1/jobs/job_1:pause", (202, job("PAUSING")))
    service.on("GET /v1/jobs/job_1", (200, job("PAUSING")), (200, job(end)))
    run = lethe("job", "pause", "job_1", "--wait", "--json")
    assert (run.code, run.json()["state"]) == (expected, end)


def test_throttle_off_sends_nulls(lethe, service) -> None:
    service.on("PATCH /v1/jobs/job_1/throttle", (200, job("RUNNING")))
    assert lethe("job", "throttle", "job_1", "--off").code == 0
    assert service.bodies("PATCH /v1/jobs/job_1/throttle") == [
        {"rows_per_s": None, "bytes_per_s": None, "intensity": None}
    ]


@pytest.mark.parametrize(
    ("arguments", "into"),
    [
        (("--into", "/srv/new.db"), {"file": "/srv/new.db"}),
        (("--into", "restored"), {"schema": "restored"}),
        (("--live",), {"live": True}),
    ],
)
def test_archive_restore_tells_files_from_schemas(lethe, service, arguments, into) -> None:
    service.on("POST /v1/archives/job_1:restore", (202, job("QUEUED")))
    assert lethe("archive", "restore", "job_1", "--no-wait", *arguments).code == 0
    assert service.bodies("POST /v1/archives/job_1:restore") == [{"into": into}]


def test_parameter_set_sends_its_type_and_the_etag(lethe, service) -> None:
    path = "/v1/stores/shop/parameters/purge.retention.minutes"
    parameter = {"name": "purge.retention.minutes", "type": "INTEGER", "value": 7200, "source": "DEFAULT"}
    service.on(f"GET {path}", (200, parameter, {"ETag": '"0"'}))
    service.on(f"PUT {path}", (200, {**parameter, "value": 60, "source": "STORE"}))
    run = lethe("parameter", "set", "purge.retention.minutes", "60", "--store", "shop")
    assert run.out == "purge.retention.minutes = 60 (STORE)\n"
    assert service.bodies(f"PUT {path}") == [{"value": 60}]
    assert service.asked[-1][3]["if-match"] == '"0"'


def test_token_create_prints_the_secret_alone_on_stdout(lethe, service) -> None:
    made = {"id": "tok_1", "name": "ci", "scopes": ["jobs:read"], "token": "s3cret"}
    service.on("POST /v1/tokens", (201, made))
    run = lethe("token", "create", "ci", "--scope", "jobs:read")
    assert run.out == "s3cret\n"
    assert "s3cret" not in run.err


def test_help_is_fast_because_no_noun_is_imported() -> None:
    heavy = {"httpx", "pydantic", "sqlalchemy", "fastapi", "lethe_client", "app.server"}
    code = (
        "import sys\nfrom app.cli.main import main\nassert main(['--help']) == 0\n"
        f"found = {heavy} & set(sys.modules)\nsys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_arguments_shows_help_and_ends_with_64(capsys) -> None:
    assert main([]) == 64
    assert "Commands" in capsys.readouterr().out


def test_a_warning_of_a_result_is_printed_once(lethe, service) -> None:
    """It stood among the facts of a result, and again as a warning."""
    ended = {"id": "job_1", "kind": "ERASURE", "store": "it", "state": "SUCCEEDED"}
    warned = {"code": "TAIL_OF_LOG", "detail": "it stays", "count": 1}
    service.on("GET /v1/jobs/job_1", (200, ended | {"result": {"state": "COMPLETE", "warnings": [warned]}}))
    run = lethe("job", "watch", "job_1")
    assert run.code == 0, run.err
    assert "COMPLETE" in run.out
    assert (run.out + run.err).count("TAIL_OF_LOG") == 1
