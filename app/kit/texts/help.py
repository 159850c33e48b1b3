"""Where the documentation explains a code: the one place that knows."""

from typing import Final

PAGE: Final = "docs/reference/runbook.md"


def help_of(code: str) -> str:
    """The page and heading that say what a code means, and what to do."""
    return f"{PAGE}#{code.lower()}"
