"""`python -m app.runbook.page`: docs/reference/runbook.md on standard output."""

import sys
from typing import Final

from app.runbook.entry import Entry, Passes, Seen
from app.runbook.registry import SECTIONS

HEAD: Final = """\
# Runbook

Every code that a problem, a job's error, a job's `waiting_on` or `GET /v1/overview` (`lethe status`)
may have, each state, each message of the command, each finding of a check, warning of a plan, and cause why
a file or an entry stays, each word in capitals of an answer, and each kind of job, store, purge and erasure.
Their `help` leads here, and `lethe explain CODE` prints the same without a service.
This page is made by `make runbook` from `app/runbook/entries`.

Of a wait, `since` tells since when (looks in between do not count), `next_look` when the job looks again at
the latest, `cause` what the last look has met. An error of a target comes as a problem, as a job's error, or
as what a job waits for while it tries again. A record that a consumer refused has its code in
`lethe replication dead-letters`.
"""
PASSES: Final = {
    Passes.YES: "Passes by itself.",
    Passes.NO: "Does not pass by itself.",
    Passes.MAYBE: "May pass by itself.",
    Passes.FINE: "Nothing is wrong.",
}
SEEN: Final = {
    Seen.HTTP: "HTTP",
    Seen.JOB: "a job's error",
    Seen.TARGET: "an error of a target, a file or a peer",
    Seen.WAIT: "`waiting_on`",
    Seen.ATTENTION: "`lethe status`",
    Seen.STATE: "the state of a job, a cycle, a backup or a session",
    Seen.COMMAND: "a message of the command",
    Seen.READY: "a note of `/readyz`",
    Seen.ANSWER: "a word of an answer: an outcome, a state, a reason",
    Seen.FINDING: "a finding, a warning or a cause: of a check, a plan, a result, a file",
}


def seen_text(entry: Entry) -> str:
    """Where the code is met, for people."""
    return ", ".join(SEEN[each] for each in entry.seen)


def render() -> str:
    """The page as committed."""
    parts = [HEAD]
    for title, entries in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        parts += [_shown(entry) for entry in entries]
    return "".join(parts)


def _shown(entry: Entry) -> str:
    said = f"{entry.meaning} *{PASSES[entry.passes]}* Seen: {seen_text(entry)}."
    return f"\n### {entry.code}\n\n{said}\n\nNext: {entry.next}\n"


if __name__ == "__main__":
    sys.stdout.write(render())
