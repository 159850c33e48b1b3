"""Entity tags, `Prefer: wait` and frames of an event stream."""

import json

import pytest

from app.errors import EtagMismatch, InvalidHeader, PreconditionMissing
from app.kit.conditional import etag, is_current, require_match
from app.kit.http.sse import format_event
from app.kit.prefer import wait_seconds


@pytest.mark.parametrize("header", ['"7"', '"3", "7"', "*", '"7" , W/"8"'])
def test_tag_that_was_read_is_accepted(header: str) -> None:
    require_match(header, 7)
    assert is_current(header, 7)
    assert etag(7) == '"7"'


@pytest.mark.parametrize("header", ['"6"', 'W/"7"', '"3", W/"7"', '"07"'])
def test_other_or_weak_tag_does_not_change_anything(header: str) -> None:
    with pytest.raises(EtagMismatch) as stale:
        require_match(header, 7)
    assert (stale.value.status, stale.value.headers["ETag"]) == (412, '"7"')


def test_what_the_service_has_learned_itself_is_no_change_by_a_client() -> None:
    assert etag(7, "ab12") == '"7-ab12"'
    for header in ('"7"', '"7-ab12"', '"7-of before"'):
        require_match(header, 7)
    with pytest.raises(EtagMismatch):
        require_match('"6-ab12"', 7)
    assert is_current('"7-ab12"', 7, "ab12")
    assert not is_current('"7"', 7, "ab12")
    assert not is_current('"7-ab12"', 7)


def test_missing_tag_is_asked_for() -> None:
    with pytest.raises(PreconditionMissing) as missing:
        require_match(None, 7)
    assert missing.value.status == 428
    assert is_current(None, 7) is False


def test_weak_tag_is_enough_for_a_read() -> None:
    assert is_current('W/"7"', 7)
    assert not is_current('W/"6"', 7)


@pytest.mark.parametrize("header", ["7", '"7', "", '"7";"8"'])
def test_what_is_no_tag_is_refused(header: str) -> None:
    with pytest.raises(InvalidHeader):
        require_match(header, 7)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 10),
        ("wait=5", 5),
        ('wait="5"', 5),
        ("wait=0", 0),
        ("wait=3600", 60),
        ("respond-async, wait=7", 7),
        ("respond-async", 10),
        ("wait = 8; x=y", 8),
    ],
)
def test_wait_is_read_and_cut(header: str | None, seconds: int) -> None:
    assert wait_seconds(header, default_s=10, max_s=60) == seconds


def test_negative_wait_is_refused() -> None:
    with pytest.raises(InvalidHeader):
        wait_seconds("wait=-1", default_s=10, max_s=60)


def test_event_is_one_frame_whatever_it_says() -> None:
    data = {"detail": "two\nlines\r\n\r\nid: 9", "name": "Zoë"}
    frame = format_event(sequence=7, kind="warning", data=data).decode()
    lines = frame.split("\n")
    assert lines[:2] == ["id: 7", "event: warning"]
    assert lines[3:] == ["", ""]
    assert json.loads(lines[2].removeprefix("data: ")) == data
