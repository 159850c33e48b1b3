"""`python -m app.runbook.settings.page`: docs/reference/settings.md on standard output."""

import sys
from typing import Final

from app.runbook.settings.registry import SECTIONS

HEAD: Final = """\
# Settings

Every setting of `lethe serve` and `lethe worker`. Each is a variable of the environment: `LETHE_` and the
name in capitals, with `__` before a name of a group (`LETHE_SPARK__SLOTS`). Lists are written with commas,
what says JSON as JSON. Options of the command line win over the environment. A value that is no number, or
out of its range, ends the start with exit code 78 and names the variable. One that begins with `LETHE_` and
is no setting changes nothing: the log of the start names it, and the setting that is nearest.
`lethe explain LETHE_PORT` prints an entry without a service.

This page is made by `make runbook` from `app/runbook/settings`.
"""


def render() -> str:
    """The page as committed."""
    parts = [HEAD]
    for title, entries in SECTIONS.items():
        parts.append(
            f"\n## {title}\n\n| variable | default | what it says | when it is wrong |\n|---|---|---|---|\n"
        )
        parts += [f"| `{each.name}` | {each.default} | {each.meaning} | {each.wrong} |\n" for each in entries]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(render())
