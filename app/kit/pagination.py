"""Keyset pages: an opaque token holds the last row's key and the hash of the filters it belongs to."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, cast

from fastapi import Query
from sqlalchemy.orm import InstrumentedAttribute, Mapped
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from app.errors import InvalidPageToken
from app.kit.model import Model

PAGE_SIZE_DEFAULT = 50
PAGE_SIZE_MAX = 500
INTEGER_MAX: Final = 2**63 - 1
_TEXT: Final = re.compile(r"[^\0\ud800-\udfff]*")

PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX, description="Rows of one page.")]
PageToken = Annotated[str, Query(max_length=1024, description="`next_page_token` of the page before.")]

Row = TypeVar("Row")
Item = TypeVar("Item")


class Page(Model, Generic[Item]):
    """One page; `next_page_token` is empty on the last."""

    items: list[Item]
    next_page_token: str = ""


def _filter_hash(filters: Mapping[str, Any]) -> str:
    text = json.dumps(filters, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def encode_token(key: Sequence[Any], filters: Mapping[str, Any]) -> str:
    """Make the token that continues after `key`."""
    raw = json.dumps({"k": list(key), "f": _filter_hash(filters)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def decode_token(token: str, filters: Mapping[str, Any], *, types: Sequence[type]) -> list[Any] | None:
    """Read a token back; None for the first page.

    Args:
        types: the type of each part of the key.
    Raises: InvalidPageToken: not ours, or given for other filters.
    """
    if not token:
        return None
    try:
        raw = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        key, filter_hash = raw["k"], raw["f"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise InvalidPageToken("the page token was not given by this service") from error
    if filter_hash != _filter_hash(filters):
        raise InvalidPageToken("the page token belongs to other filters")
    if not isinstance(key, list) or [type(part) for part in key] != list(types):
        raise InvalidPageToken("the page token was not given for this list")
    if not all(map(_is_askable, key)):
        raise InvalidPageToken("the page token was not given by this service")
    return key


def _is_askable(part: str | int) -> bool:
    """Whether every database takes it as a parameter: anybody can write a token."""
    if isinstance(part, int):
        return -INTEGER_MAX <= part <= INTEGER_MAX
    return _TEXT.fullmatch(part) is not None


def make_page(
    rows: Sequence[Row],
    *,
    page_size: int,
    filters: Mapping[str, Any],
    key: Callable[[Row], Sequence[Any]],
    item: Callable[[Row], Item],
) -> Page[Item]:
    """Cut `page_size + 1` fetched rows to a page."""
    more = len(rows) > page_size
    rows = rows[:page_size]
    token = encode_token(key(rows[-1]), filters) if more else ""
    return Page(items=[item(row) for row in rows], next_page_token=token)


def read_page(
    db: Session,
    query: SelectOfScalar[Row],
    key: Mapped[str],
    *,
    ascending: bool = False,
    filters: Mapping[str, Any],
    page_size: int,
    page_token: str,
    item: Callable[[Row], Item],
    unfiltered: SelectOfScalar[Row] | None = None,
) -> Page[Item]:
    """A page of a query's rows by a key of text, the greatest first: of ids made here that is the newest.

    Args:
        query: the rows that the filters leave, in no order.
        key: a column of the rows that no two of them share.
        unfiltered: the same rows without filters. With it the keys of the page are found first: where many
            rows have to be put in order, they are not read as a whole for that.
    Raises: InvalidPageToken: not ours, or given for other filters.
    """
    after = decode_token(page_token, filters, types=[str])
    if after:
        query = query.where(key > after[0] if ascending else key < after[0])
    name = cast(InstrumentedAttribute[str], key).key
    order = key if ascending else key.desc()
    query = query.order_by(order).limit(page_size + 1)
    if unfiltered is not None:
        query = unfiltered.where(key.in_(query.with_only_columns(key))).order_by(order)
    rows = db.exec(query).all()
    return make_page(
        rows, page_size=page_size, filters=filters, key=lambda row: [getattr(row, name)], item=item
    )
