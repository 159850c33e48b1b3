"""JSON on the command line and in answers: what cannot go on is said before anything is sent."""

import json

import pytest

from app.cli.main import main

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": 1e999}', "1e999 is too large a number"),
        ('{"a": "\\ud800"}', "a text holds half of a character"),
        ('{"a": 1, "a": 2}', "is given twice"),
        (DEEP, "too many levels"),
    ],
)
def test_json_that_no_service_takes_is_a_fault_of_usage(service, capsys, body, said) -> None:
    """Each of the first three was called a bug of ours."""
    words = ["schedule", "add", "PURGE", "--store", "shop", "--cron", "30 2 * * *", "--body", body]
    assert main([*words, "--url", service.url]) == 64
    assert said in capsys.readouterr().err
    assert service.asked == []


def test_change_whose_value_stands_twice_is_not_imported(service, capsys, tmp_path) -> None:
    """One reader deletes the key, another writes it."""
    file = tmp_path / "changes"
    file.write_text(json.dumps({"database": "d", "key": "k"})[:-1] + ', "value": "v", "value": null}')
    assert main(["changes", "import", "shop", str(file), "--url", service.url]) == 64
    assert "line 1: no JSON" in capsys.readouterr().err


def test_answer_that_is_too_deep_is_unexpected(service, capsys) -> None:
    service.on("GET /v1/stores/shop", (200, DEEP.encode()))
    assert main(["store", "show", "shop", "--url", service.url]) == 78
    assert "UNEXPECTED_ANSWER" in capsys.readouterr().err


def test_pause_that_is_no_number_of_seconds_is_passed_over(service, capsys) -> None:
    document = {"code": "METADATA_BUSY", "detail": "wait", "retryable": True}
    service.on("GET /v1/stores/shop", (503, document, {"Retry-After": "\xb2"}))
    assert main(["store", "show", "shop", "--url", service.url]) == 75
