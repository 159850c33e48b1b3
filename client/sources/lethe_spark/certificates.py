"""`lethe_certificates`: certificates of erasure as files have them, each with its signature checked.

A row says whether the signature holds, and with which key. What a certificate says is shown only where it
holds; `view=files` fails at a certificate whose signature does not.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lethe_client.certificates import (
    DOCUMENT_BYTES_MAX,
    CertificateInvalid,
    VerifiedCertificate,
    verify_certificate,
)
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lethe_spark.options import Options
from lethe_spark.parts import in_parts
from spark.worker import keep_modules

VIEWS: Final = {
    "certificates": (
        "file string, valid boolean, problem string, key_id string, key_was_named boolean, store string, "
        "cycle string, state string, started_at timestamp, ended_at timestamp, "
        "environment string, files bigint, files_erased_and_proved bigint, entries_erased_and_proved bigint, "
        "files_remaining bigint, stays_readable array<string>, certificate string"
    ),
    "files": (
        "file string, key_id string, key_was_named boolean, store string, cycle string, environment string, "
        "name string, state string, proved boolean, bytes bigint, sha256_after string, details string"
    ),
}
OPTIONS: Final = ("path", "view", "trusted")
FILES_MAX: Final = 100_000
PART_BYTES: Final = 16 * 2**20
BIGINT_MAX: Final = 2**63 - 1
_SAID: Final = 11
"""How many columns of a certificate's row are what the certificate says."""


@dataclass(frozen=True, slots=True)
class _Asked:
    path: Path
    view: str
    trusted: frozenset[str]


def _asked(given: Mapping[str, str]) -> _Asked:
    options = Options("lethe_certificates", given)
    options.only(OPTIONS)
    path = options.path("path", "a certificate's file, or a folder of them")
    if not path.exists():
        raise options.refuse(f"there is no {path}; give a file or a folder that this machine and workers see")
    trusted = options.words("trusted") or ()
    for each in trusted:
        if not each.startswith("ed25519:") or len(each) != len("ed25519:") + 64:
            raise options.refuse(f"trusted names {each!r}, which is not ed25519: and 64 digits")
    return _Asked(path, options.choice("view", VIEWS, default="certificates"), frozenset(trusted))


class CertificateSource(DataSource):
    """`lethe_certificates`: a row for each certificate, or with `view=files` for each file that it speaks of.

    Options: `path` (a file, or a folder whose *.json files are read); `trusted`: fingerprints of the keys
    that may have signed, between commas; `view`: certificates (default) or files.
    """

    @classmethod
    def name(cls) -> str:
        return "lethe_certificates"

    def schema(self) -> str:
        return VIEWS[_asked(self.options).view]

    def reader(self, schema: Any) -> DataSourceReader:
        return CertificateReader(_asked(self.options))


@dataclass(frozen=True)
class CertificatesPart(InputPartition):
    """Some certificates' files, in their order."""

    paths: tuple[Path, ...]


class CertificateReader(DataSourceReader):
    """Reads and checks the certificates of a partition, one after the other."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """The files that are there now. Raises: OptionInvalid: there is none, or there are too many."""
        path = self._asked.path
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not 0 < len(found) <= FILES_MAX:
            raise Options("lethe_certificates", {}).refuse(
                f"{path} has {len(found)} files *.json; give a folder with 1 to {FILES_MAX}"
            )
        return [CertificatesPart(part) for part in in_parts(found, _size, bytes_most=PART_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of some certificates. Raises: CertificateInvalid: `view=files`, and one does not hold."""
        if not isinstance(partition, CertificatesPart):
            return
        keep_modules()
        for path in partition.paths:
            yield from self._read(path)

    def _read(self, path: Path) -> Iterator[tuple[Any, ...]]:
        file = str(path)
        try:
            found = _verified(path, self._asked.trusted)
            if self._asked.view == "files":
                yield from list(_files(file, found))
            else:
                yield _certificate(file, found)
        except CertificateInvalid as error:
            if self._asked.view == "files":
                raise CertificateInvalid(f"{file}: {error}") from error
            yield (file, False, str(error), None, None, *[None] * (_SAID + 1))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # whoever reads it says so
        return 0


def _verified(path: Path, trusted: frozenset[str]) -> VerifiedCertificate:
    try:
        with path.open("rb") as opened:
            data = opened.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateInvalid(f"it cannot be read: {error.strerror}") from error
    return verify_certificate(data, trusted=trusted)


def _certificate(file: str, found: VerifiedCertificate) -> tuple[Any, ...]:
    said = found.certificate
    try:
        cycle, totals = said["cycle"], said["totals"]
        return (
            file,
            True,
            None,
            found.key_id,
            found.is_pinned,
            _text(said["store"]),
            _text(cycle["id"]),
            _text(cycle["state"]),
            _instant(cycle["started_at"]),
            _instant(cycle["ended_at"]),
            _text(said["environment"]["path"]),
            _number(totals["files"]),
            _number(totals["files_erased_and_proved"]),
            _number(totals["entries_erased_and_proved"]),
            _number(totals["files_remaining"]),
            [_text(each["code"]) for each in _list(said["stays_readable"])],
            json.dumps(said, ensure_ascii=False, sort_keys=True, separators=(",", ":")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _formless(error) from error


def _files(file: str, found: VerifiedCertificate) -> Iterator[tuple[Any, ...]]:
    said = found.certificate
    try:
        store, cycle = _text(said["store"]), _text(said["cycle"]["id"])
        for each in _list(said["files"]):
            sha256 = each.get("sha256_after")
            yield (
                file,
                found.key_id,
                found.is_pinned,
                store,
                cycle,
                _text(said["environment"]["path"]),
                _text(each["name"]),
                _text(each["state"]),
                _truth(each["proved"]),
                _number(each["bytes"]),
                None if sha256 is None else _text(sha256),
                json.dumps(each, ensure_ascii=False, sort_keys=True, separators=(",", ":")),
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _formless(error) from error


def _formless(error: Exception) -> CertificateInvalid:
    return CertificateInvalid(f"its signature holds, but it says not what its format asks for ({error!r})")


# A certificate of another key says what its maker likes: nothing is turned into what it is not, and what a
# column cannot hold fails its own row, not the query.
def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= BIGINT_MAX:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no list")
    return value


def _instant(value: Any) -> datetime | None:
    if value is None:
        return None
    found = datetime.fromisoformat(_text(value))
    if found.tzinfo is None:
        raise ValueError(f"{value:.40} has no offset")
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{value:.40} is no time in UTC") from error
