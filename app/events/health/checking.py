"""The health of a node as findings of its `:check`, which is how Lethe looks at it by itself."""

from collections.abc import Collection, Iterator
from typing import Final

import structlog

from app.db import Database
from app.events.health.limits import limits_of
from app.events.health.notes import note_node, note_unasked
from app.events.nodes import LOCAL_NODE
from app.parameters.service import global_values
from app.stores.checks.models import Finding, FindingSeverity
from app.stores.rows import Store
from spark.events.health.reading import read_health
from spark.events.health.records import NodeReading, Severity
from spark.events.records import Catalog
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetUnreachable

NOT_ASKED: Final = "NODE_NOT_ASKED"
AWAY: Final = "NODE_AWAY"

logger = structlog.get_logger("lethe.events")


def try_reading(conn: Connection, catalog: Catalog) -> NodeReading | None:
    """Read a node's health; None: not in its time, and the rest of the check stands."""
    try:
        return read_health(conn, catalog)
    except TargetError as error:
        logger.info("no health", code=error.code, detail=error.detail)
        return None


def health_findings(
    database: Database, store: Store, reading: NodeReading | None, told: Collection[str]
) -> Iterator[Finding]:
    """What is wrong with the node and its cluster, noted for `/metrics` too.

    A CRITICAL one is a WARNING of a check: an ERROR says that Lethe cannot work with the store.

    Args:
        told: codes of the check's own findings, which are not told twice.
    """
    if reading is None:
        note_unasked(database, store, None, NOT_ASKED)
        return
    with database.reading() as db:
        limits = limits_of(global_values(db), store)
    known = {*told, "NO_OWN_SLON"} if "NO_SLON" in told else told
    for each in note_node(database, store, reading, limits):
        if each.code not in known:
            severity = FindingSeverity.INFO if each.severity is Severity.UNKNOWN else FindingSeverity.WARNING
            yield Finding(code=each.code, severity=severity, detail=f"{each.detail}. {each.advice}")


def note_refused(database: Database, store: Store, code: str) -> None:
    """Note that a check did not come as far as the node."""
    node = store.target_parameters.get(LOCAL_NODE)
    known = node if isinstance(node, int) else None
    note_unasked(database, store, known, AWAY if code == TargetUnreachable.code else NOT_ASKED)
