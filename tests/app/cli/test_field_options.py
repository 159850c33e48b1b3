"""An error that names a field of the request names the option beside it that filled the field."""

import importlib
import inspect
from typing import Any

import pytest
from typer.main import get_command

from app.cli.main import Root
from app.cli.shell.field_options import option_of, shown_options


def refused(service: Any, lethe: Any, words: tuple[str, ...], request: str, pointer: str) -> str:
    """What the command says of a fault in one field."""
    answer = {"code": "INVALID_REQUEST", "detail": "1 field(s) are not valid", "retryable": False}
    service.on(request, (422, answer | {"errors": [{"pointer": pointer, "detail": "too large"}]}))
    run = lethe(*words)
    assert run.code == 64, run.err
    return next(line for line in run.err.splitlines() if line.startswith("lethe: "))


@pytest.mark.parametrize(
    ("words", "request_", "pointer", "option"),
    [
        ("purge run it --max-rows-in-tx 9", "stores/it/purges", "/max_rows_in_tx", "--max-rows-in-tx"),
        ("purge run it --throttle 9", "stores/it/purges", "/throttle/rows_per_s", "--throttle"),
        ("purge run it --archive", "stores/it/purges", "/archive/format", "--archive"),
        ("purge run it --gone-rid 9", "stores/it/purges", "/gone_rids/0", "--gone-rid"),
        (
            "purge run it --channel-retention a=9",
            "stores/it/purges",
            "/channel_retention_minutes/a",
            "--channel-retention",
        ),
        ("purge rows it --table t --child c", "stores/it/purges", "/children/0", "--child"),
        (
            "fleet purge it --retention-minutes 9",
            "jobs:batch",
            "/params/retention_minutes",
            "--retention-minutes",
        ),
        ("store add it sqlite:////x --max-rows 9", "stores", "/limits/max_rows", "--max-rows"),
        ("store add it sqlite:////x", "stores", "/url", "TARGET_URL"),
        ("store add it sqlite:////x --label a=b", "stores", "/labels/a", "--label"),
        (
            "webhook add https://x --secret secret:x --expect shop:PURGE:P2D --store it",
            "webhooks",
            "/expected/0/store",
            "--expect",
        ),
        ("changes put it db key value", "stores/it/changes", "/changes/0/key", "KEY"),
        ("token create ci --scope x", "tokens", "/scopes/0", "--scope"),
        ("schedule add PURGE --store it --cron x --body {}", "schedules", "/cron", "--cron"),
        (
            "schedule add PURGE --store it --cron x --body {}",
            "schedules",
            "/body/retention_minutes",
            "--body",
        ),
        (
            "replication agreement create it https://x other --token secret:x",
            "stores/it/agreements",
            "/consumer/store",
            "CONSUMER",
        ),
        (
            "replication agreement create it https://x other --token secret:x",
            "stores/it/agreements",
            "/consumer/url",
            "URL",
        ),
    ],
)
def test_the_option_stands_beside_the_pointer(
    service, lethe, words: str, request_: str, pointer: str, option: str
) -> None:
    said = refused(service, lethe, tuple(words.split()), f"POST /v1/{request_}", pointer)
    assert said.endswith(f"; {pointer} ({option}): too large")


def test_a_field_that_no_option_fills_is_a_pointer_alone(service, lethe) -> None:
    said = refused(service, lethe, ("purge", "run", "it"), "POST /v1/stores/it/purges", "/strategy")
    assert said.endswith("; /strategy: too large")


@pytest.mark.parametrize("pointer", ["", "/"])
def test_a_fault_of_the_whole_request_has_no_pointer(service, lethe, pointer: str) -> None:
    said = refused(service, lethe, ("purge", "run", "it"), "POST /v1/stores/it/purges", pointer)
    assert said.endswith("; too large")


def test_a_field_of_a_query_is_known(service, lethe) -> None:
    words = ("audit", "list", "--after", "2026-11-01")
    said = refused(service, lethe, words, "GET /v1/audit-events", "query:created_after")
    assert said.endswith("; query:created_after (--after): too large")


def test_options_are_named_as_the_help_names_them() -> None:
    """What is shown for a field is an option that the command takes, or an argument of its usage."""
    found = get_command(importlib.import_module(Root.nouns["purge"].module).app).commands["run"]
    takes = {option for each in found.params for option in each.opts}
    source = importlib.import_module("app.cli.purge")
    [_, *own] = inspect.signature(inspect.unwrap(source.run)).parameters.values()
    shown = set(shown_options(own).values())
    assert {each for each in shown if each.startswith("-")} <= takes
    assert option_of("/strict", shown_options(own)) == "--strict"
