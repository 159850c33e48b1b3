"""How one value looks to people."""

from datetime import timedelta

import pytest

from app.cli.shell.output import cell


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0.0 s"),
        (timedelta(seconds=6.1), "6.1 s"),
        (timedelta(seconds=87), "0:01:27"),
        (timedelta(days=14, hours=7, minutes=54, seconds=21.6), "14 d 7:54:21"),
    ],
)
def test_duration_is_written_for_people(span: timedelta, text: str) -> None:
    assert cell(span) == text
