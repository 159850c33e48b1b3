"""Keyset pages: a token continues the list it was given for, and no other."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlmodel import col, select

from app.db import Database
from app.errors import InvalidPageToken
from app.jobs.rows import Instance
from app.jobs.running.instances import register_instance
from app.kit.pagination import Page, decode_token, encode_token, make_page, read_page

FILTERS = {"list": "jobs", "states": ["RUNNING"], "after": None}


def page(rows: list[int], *, size: int, token: str, filters: dict[str, object]) -> Page[int]:
    after = decode_token(token, filters, types=[int])
    found = [row for row in rows if after is None or row > after[0]][: size + 1]
    return make_page(found, page_size=size, filters=filters, key=lambda row: [row], item=lambda row: row)


@given(
    rows=st.lists(st.integers(-1000, 1000), unique=True).map(sorted),
    size=st.integers(min_value=1, max_value=7),
)
def test_pages_together_are_the_whole_list_once(rows: list[int], size: int) -> None:
    seen: list[int] = []
    token = ""
    while True:
        current = page(rows, size=size, token=token, filters=FILTERS)
        assert len(current.items) <= size
        seen += current.items
        token = current.next_page_token
        if not token:
            break
        assert len(current.items) == size
    assert seen == rows


@pytest.mark.parametrize(
    "other",
    [
        FILTERS | {"states": []},
        FILTERS | {"states": ["RUNNING", "QUEUED"]},
        FILTERS | {"list": "events"},
        FILTERS | {"after": "2024-01-01"},
        {"list": "jobs"},
    ],
)
def test_token_of_other_filters_is_refused(other: dict[str, object]) -> None:
    token = encode_token([7], FILTERS)
    assert decode_token(token, FILTERS, types=[int]) == [7]
    with pytest.raises(InvalidPageToken, match="other filters"):
        decode_token(token, other, types=[int])


@pytest.mark.parametrize(
    "token",
    ["x", "é", "====", base64.urlsafe_b64encode(b"[]").decode(), base64.urlsafe_b64encode(b"\xff").decode(),
     base64.urlsafe_b64encode(b'{"k": [1]}').decode(), base64.urlsafe_b64encode(b"null").decode()],
)  # fmt: skip
def test_token_that_was_never_given_is_refused(token: str) -> None:
    with pytest.raises(InvalidPageToken) as refused:
        decode_token(token, FILTERS, types=[int])
    assert (refused.value.status, refused.value.code) == (400, "INVALID_PAGE_TOKEN")


@given(st.text(max_size=60))
def test_no_text_is_an_unexpected_error(text: str) -> None:
    try:
        decode_token(text, FILTERS, types=[int])
    except InvalidPageToken:
        return
    assert text == ""


@pytest.mark.parametrize("key", [["7"], [7, 8], [], [True], [None], [7.0]])
def test_key_of_another_shape_is_refused(key: list[object]) -> None:
    with pytest.raises(InvalidPageToken):
        decode_token(encode_token(key, FILTERS), FILTERS, types=[int])


@pytest.mark.parametrize("key", ["a\0b", "\ud800", 2**63, -(2**63) - 1, 10**300])
def test_key_that_no_database_takes_is_refused(key: str | int) -> None:
    with pytest.raises(InvalidPageToken, match="not given by this service"):
        decode_token(encode_token([key], FILTERS), FILTERS, types=[type(key)])


@pytest.mark.parametrize("key", ["", "é\n\U0001f600", 2**63 - 1, -1])
def test_key_at_the_border_is_taken(key: str | int) -> None:
    assert decode_token(encode_token([key], FILTERS), FILTERS, types=[type(key)]) == [key]


@pytest.mark.parametrize("ascending", [False, True])
def test_pages_of_a_query_are_its_rows_once_in_order(database: Database, *, ascending: bool) -> None:
    ids = [f"ins_{number}" for number in range(7)]
    with database.transaction() as db:
        for each in ids:
            register_instance(db, each, role="worker", version="1", labels=[], now=database.now(db))
    seen: list[str] = []
    token = ""
    while True:
        with database.reading() as db:
            found = read_page(
                db,
                select(Instance).where(Instance.id != "ins_3"),
                col(Instance.id),
                ascending=ascending,
                filters=FILTERS,
                page_size=2,
                page_token=token,
                item=lambda row: row.id,
            )
        seen += found.items
        token = found.next_page_token
        if not token:
            break
    assert seen == sorted(set(ids) - {"ins_3"}, reverse=not ascending)
