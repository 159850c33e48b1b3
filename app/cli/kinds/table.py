"""The kinds of stores that the command knows more of than the service tells it."""

from collections.abc import Mapping
from typing import Final

from app.cli.kinds import replica, slony, sql, symmetricds
from app.cli.kinds.kind import CommandsOfKind

KINDS: Final[Mapping[str, CommandsOfKind]] = {
    "SLONY": slony.COMMANDS,
    "SYMMETRICDS": symmetricds.COMMANDS,
    "SQL": sql.COMMANDS,
    "REPLICA": replica.COMMANDS,
}
"""A store of kind JE is a directory of files: nobody is granted anything."""
