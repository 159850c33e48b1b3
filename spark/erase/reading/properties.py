"""What je.properties in an environment says: of JE's own eraser, and of the VLSNs that stay in the index.

An application can switch the eraser on in its own code too. Then the headers of entries change under a plan,
and each round refuses its file (HEADER_CHANGED).
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

from spark.erase.errors import EnvironmentUnreadable, OwnEraserOn
from spark.targets.files.beneath import open_beneath

PROPERTIES_NAME: Final = "je.properties"
RUN_ERASER: Final = "je.env.runEraser"
VLSNS_LEFT: Final = "je.rep.minVLSNIndexSize"
VLSNS_LEFT_DEFAULT: Final = 1_000
VLSNS_LEFT_MAX: Final = 2**31 - 1
VLSNS_LEFT_DIGITS: Final = 10
PROPERTIES_BYTES_MAX: Final = 1024 * 1024
# A pipe of this name would hold us for ever without O_NONBLOCK.
OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

BLANKS: Final = " \t\f"
# A key ends at the first separator that is not escaped; one sign and blanks may part it from its value.
PROPERTY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def refuse_own_eraser(directory: Path) -> None:
    """Refuse an environment whose je.properties switches JE's own eraser on.

    Raises: OwnEraserOn, EnvironmentUnreadable.
    """
    value = _properties_of(directory).get(RUN_ERASER, "false")
    # JE itself takes no other word than these two; one that it would refuse is no reason to go on.
    if value.strip().lower() not in ("false", ""):
        detail = (
            f"{RUN_ERASER}={value.strip()}: JE's own eraser is switched on. Of two erasers one must rest: "
            "set it to false and restart the application, or leave it to JE and switch the store's cycles off"
        )
        raise OwnEraserOn(detail, file=PROPERTIES_NAME)


def vlsns_left(directory: Path) -> int:
    """How many VLSNs JE leaves in its index whatever is erased: je.rep.minVLSNIndexSize, 1,000 by default.

    What is no number there is refused by JE too; the default is said then.

    Raises: EnvironmentUnreadable.
    """
    value = _properties_of(directory).get(VLSNS_LEFT, "").strip()
    # Python itself refuses to read a number of thousands of digits.
    if not (value.isascii() and value.isdigit() and len(value) <= VLSNS_LEFT_DIGITS):
        return VLSNS_LEFT_DEFAULT
    return int(value) if int(value) <= VLSNS_LEFT_MAX else VLSNS_LEFT_DEFAULT


def _properties_of(directory: Path) -> dict[str, str]:
    raw = _read(directory / PROPERTIES_NAME)
    return {} if raw is None else properties(raw.decode("latin-1"))


def properties(text: str) -> dict[str, str]:
    """Read Java's format of properties; the last word on a key counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = PROPERTY.fullmatch(line)
        assert match is not None, "every line is a key, at least an empty one"
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> list[str]:
    """Put lines together that end in an odd number of backslashes; leave out blank lines and comments."""
    lines: list[str] = []
    open_end = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(BLANKS)
        if not open_end:
            if not line or line[0] in "#!":
                continue
            lines.append("")
        open_end = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        lines[-1] += line[:-1] if open_end else line
    return lines


def _unescaped(text: str) -> str:
    def plain(escape: re.Match[str]) -> str:
        found = escape[1]
        return chr(int(found[1:], 16)) if len(found) == 5 else ESCAPED.get(found, found)

    return ESCAPE.sub(plain, text)


def _read(path: Path) -> bytes | None:
    """Read a file whole; None where there is none."""
    try:
        descriptor = open_beneath(path, OPEN_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentUnreadable(os.strerror(error.errno or 0), file=path.name) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise EnvironmentUnreadable("it is no regular file", file=path.name)
        with open(descriptor, "rb", closefd=False) as file:
            raw = file.read(PROPERTIES_BYTES_MAX + 1)
    except OSError as error:
        raise EnvironmentUnreadable(os.strerror(error.errno or 0), file=path.name) from error
    finally:
        os.close(descriptor)
    if len(raw) > PROPERTIES_BYTES_MAX:
        raise EnvironmentUnreadable(f"it has more than {PROPERTIES_BYTES_MAX} bytes", file=path.name)
    return raw
