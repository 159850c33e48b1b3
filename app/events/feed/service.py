"""A page of a feed as bytes, while it is read: what is wrong before the first byte is a problem.

Rules:
- the node's transaction lasts as long as the answer, of changes at most HOLD_MAX_S; a client that stalls is
  cut off by its answer, and by the server's limit for idle transactions: a log table can be emptied again;
- so many answers are under way at once, and no more.
"""

import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

import anyio
import structlog
from starlette.concurrency import run_in_threadpool

from app.db import Database
from app.errors import ServiceError, Unavailable
from app.events.feed.forms import Form
from app.events.nodes import connected_node
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from app.stores.targets import session_limits
from spark.events.feed.copying import read_copy
from spark.events.feed.reading import Asked, read_page
from spark.events.records import Catalog
from spark.targets.connection import Connection
from spark.targets.errors import TargetError

FEEDS_AT_ONCE_MAX: Final = 16
STATEMENT_TIMEOUT_MS: Final = 600_000
"""A large SYNC is sorted by its log_actionseq before the first row comes."""
LOCK_TIMEOUT_MS: Final = 5_000
_places = threading.BoundedSemaphore(FEEDS_AT_ONCE_MAX)
logger = structlog.get_logger("lethe.slony_feed")


class FeedsBusy(Unavailable):
    """So many feeds are read already that no other may begin."""


@contextmanager
def _place() -> Iterator[None]:
    if not _places.acquire(blocking=False):
        raise FeedsBusy(
            f"{FEEDS_AT_ONCE_MAX} feeds are read at this moment; try again", headers={"Retry-After": "5"}
        )
    try:
        yield
    finally:
        _places.release()


def read_feed(
    database: Database, settings: Settings, store: Store, asked: Asked, form: Form
) -> Generator[bytes, None, None]:
    """The bytes of a page; the first come when the position is proved.

    Args:
        asked: its `origin` is the node's own.
    Raises: ServiceError, TargetError.
    """
    with _reading(database, settings, store, "slony-changes") as (conn, catalog):
        page = read_page(conn, catalog, replace(asked, origin=catalog.local_node))
        yield form.begin(page.start, asked.copied)
        for block in page.blocks:
            yield form.block(block)
        yield form.end()


def read_first_copy(
    database: Database, settings: Settings, store: Store, sets: frozenset[int], form: Form
) -> Generator[bytes, None, None]:
    """The bytes of a first copy.

    Raises: ServiceError, TargetError.
    """
    with _reading(database, settings, store, "slony-copy") as (conn, catalog):
        copy = read_copy(conn, catalog, catalog.local_node, sets)
        with closing(copy.blocks):  # a COPY that is not read to its end must end before its transaction
            yield form.begin(copy.start, copy.copied)
            for block in copy.blocks:
                yield form.block(block)
            yield form.end()


@contextmanager
def _reading(
    database: Database, settings: Settings, store: Store, purpose: str
) -> Iterator[tuple[Connection, Catalog]]:
    usual = session_limits(settings)
    limits = replace(usual, statement_timeout_ms=STATEMENT_TIMEOUT_MS, lock_timeout_ms=LOCK_TIMEOUT_MS)
    opened = connected_node(store, settings, database, purpose=purpose, limits=limits)
    with _place(), opened as (conn, catalog), conn.transaction(read_only=True):
        yield conn, catalog


def begin_feed(pieces: Generator[bytes, None, None]) -> bytes:
    """The first bytes.

    Raises: ServiceError.
    """
    try:
        return next(pieces)
    except TargetError as error:
        raise service_error(error) from error


async def send_feed(
    first: bytes, pieces: Generator[bytes, None, None], form: Form
) -> AsyncGenerator[bytes, None]:
    """All bytes; whatever ends it, the node's transaction ends too."""
    try:
        yield first
        while (piece := await run_in_threadpool(next, pieces, None)) is not None:
            yield piece
    except (TargetError, ServiceError) as error:
        logger.warning("a feed was cut off", code=error.code, detail=error.detail)
        last = form.failed(error.code, error.detail)
        if last is None:
            raise
        yield last
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(pieces.close)
