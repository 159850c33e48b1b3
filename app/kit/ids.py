"""Generated ids: a prefix and a ULID in lower case, sortable by time."""

import os
import re
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 26
_lock = threading.Lock()
_last = 0


def _next_value() -> int:
    """Return a 128-bit value, strictly greater than the one before in this process."""
    global _last
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    with _lock:
        _last = value if value > _last else _last + 1
        return _last


def new_id(prefix: str) -> str:
    """Make an id such as `job_01k9...`: prefix, underscore, 26 characters."""
    value = _next_value()
    digits = [_ALPHABET[value >> 5 * place & 31] for place in reversed(range(_ID_LENGTH))]
    return f"{prefix}_{''.join(digits)}"


def is_id(prefix: str, text: str) -> bool:
    """Whether a text that somebody else wrote could have been made here."""
    return re.fullmatch(rf"{prefix}_[0-9a-z]{{{_ID_LENGTH}}}", text) is not None
