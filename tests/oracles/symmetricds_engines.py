"""What can run an outgoing purge on a database; all must leave the same rows.

"literal" is the document's statements; "lethe" the units of spark.purge, one by one, or two workers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.oracles.inline_purge import inline_engine
from tests.oracles.symmetricds import Place, literal_purge

# Called as (place, cutoff, stranded=..., strict=..., data_limit=..., events_limit=..., batches_limit=...).
Engine = Callable[..., Any]
ENGINES: dict[str, Engine] = {
    "literal": literal_purge,
    "lethe": inline_engine(1),
    "lethe-2-workers": inline_engine(2),
}

PLACES = ("sqlite-2.x", "sqlite-3.x", "postgresql-2.x", "postgresql-3.x", "mariadb-2.x", "mariadb-3.x")


def named_place(name: str, *, directory: Path, server_url: Callable[[str], str]) -> Place:
    """The place of one of PLACES, without tables yet.

    Args:
        name: one of PLACES.
        directory: where a SQLite file may be made.
        server_url: gives the address of an empty database of a dialect; called only where it is needed.
    """
    dialect, _, version = name.partition("-")
    url = f"sqlite:///{directory}/{version}.db" if dialect == "sqlite" else server_url(dialect)
    return Place(url, "2.x" if version == "2.x" else "3.x")
