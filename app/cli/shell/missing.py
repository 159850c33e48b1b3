"""Things that are not there: which it was, and the command that lists those that are."""

import re
from typing import Final
from urllib.parse import unquote

from lethe_client import ProblemError

from app.cli.shell.hints import command

LISTS: Final = {
    "STORE_NOT_FOUND": ("stores", ("store", "list")),
    "STORE_EXISTS": ("", ("store", "list")),
    "STORE_KIND_WRONG": ("", ("store", "list")),
    "JOB_NOT_FOUND": ("jobs", ("job", "list")),
    "ARCHIVE_NOT_FOUND": ("archives", ("archive", "list")),
    "WEBHOOK_NOT_FOUND": ("webhooks", ("webhook", "list")),
    "SCHEDULE_NOT_FOUND": ("schedules", ("schedule", "list")),
    "WINDOW_NOT_FOUND": ("windows", ("window", "list")),
    "SECRET_NOT_FOUND": ("secrets", ("secret", "list")),
    "TOKEN_NOT_FOUND": ("tokens", ("token", "list")),
}
LISTS_OF_STORE: Final = {
    "BACKUP_SESSION_NOT_FOUND": ("backup", "list"),
    "PROTECTION_NOT_FOUND": ("protection", "list"),
    "CYCLE_NOT_FOUND": ("erasure", "list"),
    "ENTRY_NOT_FOUND": ("entries", "list"),
    "EXTINCTION_NOT_FOUND": ("extinction", "list"),
    "AGREEMENT_NOT_FOUND": ("replication", "agreement", "list"),
    "REPLICATION_SESSION_NOT_FOUND": ("replication", "session", "list"),
}
PATH: Final = re.compile(r"/v1/(?P<collection>[^/:]+)/(?P<id>[^/:]+)(?:[/:].*)?")


def which(error: ProblemError) -> str:
    """The detail with the id that was asked for, where the service does not say it."""
    collection, _ = LISTS.get(error.code, ("", ()))
    asked = _asked(error, collection)
    bare = error.detail.startswith("there is no ") and ":" not in error.detail
    return f"{error.detail}: {asked}" if asked and bare else error.detail


def where_listed(error: ProblemError) -> str:
    """The command that lists what there is, as advice; empty for anything else that is refused."""
    if error.code in LISTS:
        return f"Which there are: {command(*LISTS[error.code][1])}"
    store = _asked(error, "stores")
    if store and error.code in LISTS_OF_STORE:
        return f"Which there are: {command(*LISTS_OF_STORE[error.code], store)}"
    return ""


def shown_by(error: ProblemError) -> str:
    """The command that shows the job that stands in the way, or that cannot become what was asked."""
    illegal = error.code == "ILLEGAL_TRANSITION"
    job = error.document.get("job_id") or (_asked(error, "jobs") if illegal else "")
    return f"See: {command('job', 'show', job)}" if job else ""


def _asked(error: ProblemError, collection: str) -> str:
    """The id in the path that was asked for, where it is one of the collection."""
    found = PATH.fullmatch(str(error.document.get("instance") or ""))
    return unquote(found["id"]) if found and found["collection"] == collection else ""
