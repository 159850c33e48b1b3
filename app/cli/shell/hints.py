"""Commands that the command prints for people to run next: words of a shell, ready to be pasted."""

import shlex
from collections.abc import Mapping
from typing import Any

from app.cli.shell.job_options import REASON


def command(*words: str, options: Mapping[str, Any] | None = None) -> str:
    """`lethe` and its words, quoted for a shell.

    Args:
        options: by their names; None and False are left out, True stands alone, a list is repeated.
    """
    said = ["lethe", *words]
    for name, value in (options or {}).items():
        if value is None or value is False:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            said += [name] if each is True else [name, str(each)]
    return shlex.join(said)


def of_plan(*words: str, plan_id: str, reason: str, options: Mapping[str, Any]) -> str:
    """The line that says how to execute a plan exactly as it was made.

    Args:
        options: those that the execution must repeat.
    """
    kept = {"--reason": None if reason == REASON else reason, "--plan-id": plan_id}
    return f"Run exactly this: {command(*words, options={**options, **kept})}"
