"""Files on a disk against the hashes that a certificate names."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from spark.targets.files.log_place import log_paths

UNIT_BYTES: Final = 4 * 1024 * 1024
LOG_FILE: Final = re.compile(r"[0-7][0-9a-f]{7}\.jdb")
FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Outcome(StrEnum):
    """What became of a file since it was proved."""

    SAME = "SAME"
    GONE = "GONE"
    GROWN = "GROWN"
    DIFFERENT = "DIFFERENT"
    UNREADABLE = "UNREADABLE"


WORDS: Final = {
    Outcome.SAME: "as it was proved",
    Outcome.GONE: "not there: JE deletes files that it has cleaned, and Lethe reserved ones where it may",
    Outcome.GROWN: "longer than it was; its first bytes are as they were proved",
    Outcome.DIFFERENT: "not as it was proved: fine if a later cycle has erased in it again (its certificate "
    "says so, and `lethe certificate recheck` knows), else it was changed or damaged",
    Outcome.UNREADABLE: "cannot be read",
}
BAD: Final = frozenset({Outcome.DIFFERENT, Outcome.UNREADABLE})


@dataclass(frozen=True, slots=True)
class Finding:
    """One file."""

    file: str
    outcome: Outcome
    detail: str

    def document(self) -> dict[str, str]:
        """As JSON shows it."""
        return {"file": self.file, "outcome": self.outcome.value, "detail": self.detail}


def compare_directory(certificate: Mapping[str, Any], directory: Path) -> Iterator[Finding]:
    """Hash again each file that was erased and proved.

    Raises: KeyError, TypeError: the certificate is not of the form that its format says.
    """
    for each in certificate["files"]:
        if each["state"] == "ERASED" and each["proved"]:
            yield _compare(directory, str(each["name"]), int(each["bytes"]), str(each["sha256_after"]))


def _compare(directory: Path, name: str, size: int, expected: str) -> Finding:
    if LOG_FILE.fullmatch(name) is None:
        return Finding(name[:40], Outcome.UNREADABLE, "that is no name of a log file")
    [path] = log_paths(directory, [name])
    try:
        outcome = _hash_and_compare(path, size, expected)
    except FileNotFoundError:
        outcome = Outcome.GONE
    except OSError as error:
        return Finding(name, Outcome.UNREADABLE, f"{WORDS[Outcome.UNREADABLE]}: {error.strerror}")
    return Finding(name, outcome, WORDS[outcome])


def _hash_and_compare(path: Path, size: int, expected: str) -> Outcome:
    digest, left = hashlib.sha256(), size
    with open(os.open(path, FLAGS), "rb", buffering=0) as file:
        while left > 0 and (data := file.read(min(left, UNIT_BYTES))):
            digest.update(data)
            left -= len(data)
        is_longer = bool(file.read(1))
    if left or digest.hexdigest() != expected:
        return Outcome.DIFFERENT
    return Outcome.GROWN if is_longer else Outcome.SAME
