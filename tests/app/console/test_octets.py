"""Bytes of others are shown as text or in base64, bounded; what a form takes is read back."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.octets import CODED, coded, octets, spelled
from app.console.rendering import environment
from app.errors import InvalidRequest


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@given(st.binary(max_size=300), st.integers(1, 300))
def test_bytes_are_shown_up_to_a_bound_and_never_invented(value: bytes, most: int) -> None:
    found = octets(b64(value), most)
    assert found.size == len(value)
    assert found.is_cut == (len(value) > most)
    shown = found.text.encode() if found.is_text else base64.b64decode(found.text)
    assert value.startswith(shown)
    assert most - 3 <= len(shown) <= most or shown == value
    assert all(each.isprintable() or each in "\n\t" for each in found.text)


@given(st.text(max_size=100))
def test_text_is_shown_as_text_if_all_of_it_can_be_seen(text: str) -> None:
    found = octets(b64(text.encode(errors="replace")), 1_000)
    is_seen = all(each.isprintable() or each in "\n\t" for each in text.encode(errors="replace").decode())
    assert found.is_text == (is_seen and (bool(text.strip()) or not text))


@pytest.mark.parametrize(
    "value", [b"\xff\xfe", b"a\x00b", "\u202eabc".encode(), "a\u200bb".encode(), b"\r", b"  "]
)
def test_bytes_that_hide_are_no_text(value: bytes) -> None:
    assert octets(b64(value)).is_text is False


def test_a_character_at_the_bound_does_not_make_bytes_of_a_text() -> None:
    found = octets(b64("ä".encode() * 200), 201)
    assert (found.is_text, found.text, found.is_cut) == (True, "ä" * 100, True)


@given(st.binary(min_size=1, max_size=200))
def test_what_is_spelled_is_read_back(value: bytes) -> None:
    text = coded(spelled(b64(value)), "key")
    assert text is not None
    assert base64.urlsafe_b64decode(text) == value


def test_nothing_is_none_and_what_is_no_base64_is_said_of_its_field() -> None:
    assert coded("", "key") is None
    with pytest.raises(InvalidRequest) as caught:
        coded(CODED + "§", "key")
    assert [each["pointer"] for each in caught.value.errors] == ["query:key"]


def test_bytes_are_escaped_on_a_page() -> None:
    template = environment().from_string(
        '{% import "replica_macros.html" as r %}{{ r.octets(value) }}|{{ r.octets(long) }}|{{ r.octets("") }}'
    )
    page = template.render(value=b64(b"<script>\"'"), long=b64(b"x" * 2_000))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "x" * 201 not in page
    assert "the beginning of 2.0 kB" in page
    assert "empty" in page
