"""Where to look, as a command: the service names what needs somebody by its path below /v1."""

import re
from typing import Final

from app.cli.shell.hints import command

LOOKS: Final = {
    re.compile(r"jobs/([^/]+)"): ("job", "show"),
    re.compile(r"stores/([^/]+)"): ("store", "check"),
    re.compile(r"stores/([^/]+)/backup-sessions/[^/]+"): ("backup", "list"),
    re.compile(r"stores/([^/]+)/agreements/([^/]+)"): ("replication", "agreement", "show"),
    re.compile(r"stores/([^/]+)/erasure-cycles/([^/]+)"): ("erasure", "files"),
    re.compile(r"instances/[^/]+"): ("instance", "list"),
}


def look(subject: str) -> str:
    """The command that shows it; a place that this command does not know is left as it is."""
    for place, words in LOOKS.items():
        if found := place.fullmatch(subject):
            return command(*words, *found.groups())
    return subject
