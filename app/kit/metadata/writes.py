"""Which sessions have written: what has only read is no news to anybody."""

import re
from typing import Any, Final
from weakref import ref

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session

WROTE: Final = "lethe_wrote"
"""In the info of a session: it has sent its database a statement that may have written."""
_SESSION: Final = "lethe_session"
"""In the info of a connection: the session that has it, or had it last, as long as that lives."""
_ONLY_READS: Final = re.compile(r"\s*(select|begin|savepoint|release|rollback)\b", re.IGNORECASE)
"""Whatever begins otherwise may write, as does a WITH; a SELECT of the metadata calls nothing that does."""


def watch_writes(engine: Engine) -> None:
    """Have sessions of an engine note `WROTE`, whether objects, `execute` or a connection write."""

    @event.listens_for(engine, "before_cursor_execute")
    def _sent(connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not _ONLY_READS.match(statement):
            db = connection.info.get(_SESSION, _nobody)()
            if db is not None:
                db.info[WROTE] = True


@event.listens_for(Session, "after_begin")
def _begun(db: Session, _transaction: Any, connection: Connection) -> None:
    connection.info[_SESSION] = ref(db)


def _nobody() -> None:
    """Whose a connection is that the engine gave without a session."""
