"""Bytes of others as people see them: text where they are text, else base64, never longer than a page bears.

Rules:
- what is shown of a value is bounded before it is decoded;
- a text has no character that cannot be seen but line ends and tabs: none can turn the line around it. Blanks
  alone are no text.
"""

import base64
import binascii
import codecs
from dataclasses import dataclass
from typing import Final

from app.errors import InvalidRequest

SHOWN_MAX: Final = 200
"""Of bytes in a table."""
CODED: Final = "base64:"
SEEN: Final = frozenset("\n\t")


@dataclass(frozen=True, slots=True)
class Octets:
    """What is shown of some bytes.

    Attributes:
        text: as text, or in base64; of bytes that are cut their beginning.
        size: all of them, in bytes.
    """

    text: str
    is_text: bool
    size: int
    is_cut: bool


def octets(coded: str, most: int = SHOWN_MAX) -> Octets:
    """The beginning of bytes that stand in base64."""
    size = len(coded) // 4 * 3 - coded.count("=", -2)
    kept = coded[: -(-most // 3) * 4]
    found, is_cut = base64.b64decode(kept)[:most], size > most
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(found, final=not is_cut)
    except UnicodeDecodeError:
        text = None
    is_blank = text is not None and bool(text) and not text.strip()
    if text is None or is_blank or not all(each.isprintable() or each in SEEN for each in text):
        return Octets(base64.b64encode(found).decode(), False, size, is_cut)
    return Octets(text, True, size, is_cut)


def spelled(coded: str) -> str:
    """Bytes in base64 as a form takes them: `coded` reads them back."""
    found = octets(coded, len(coded))
    is_plain = found.is_text and found.text == found.text.strip() and not SEEN & set(found.text)
    return found.text if is_plain and not found.text.startswith(CODED) else CODED + coded


def coded(text: str, name: str) -> str | None:
    """What a form gives as text, or as `base64:` and bytes, in base64url for an address; None: nothing.

    Raises: InvalidRequest: it is no base64.
    """
    if not text:
        return None
    if not text.startswith(CODED):
        return base64.urlsafe_b64encode(text.encode()).decode()
    plain = text.removeprefix(CODED).translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        detail = f"behind {CODED} stands no base64"
        errors = [{"pointer": f"query:{name}", "detail": detail}]
        raise InvalidRequest("1 field(s) are not valid", errors=errors) from None
    return base64.urlsafe_b64encode(found).decode()
