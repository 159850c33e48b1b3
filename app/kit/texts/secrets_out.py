"""Texts of errors without what nobody may read.

Targets and peers take their own passwords out of what they raise; this is for what slips through: addresses
with a password, options of a connection, bearer tokens.
"""

import re
from typing import Final

HIDDEN: Final = "***"
_PATTERNS: Final = (
    re.compile(r"(?P<kept>[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+(?=@)", re.IGNORECASE),
    re.compile(
        r"(?P<kept>\b(?:password|passwd|pwd|secret|token|api_?key)\b[\"']?\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;&]+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<kept>\bBearer\s+)[^\s,;]+", re.IGNORECASE),
    re.compile(r"(?P<kept>\blethe_)[A-Za-z0-9_-]{20,}"),
)


def without_secrets(text: str) -> str:
    """The text with `***` where a password or a token stood."""
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: found["kept"] + HIDDEN, text)
    return text
