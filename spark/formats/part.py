"""Which part of the keys a replica holds: prefixes of keys, each of one database.

A change of other keys travels as WITHHELD: its CSN and the digest that stands for it in the chain, no key
and no value. So a partial replica has every CSN, finds every hole, and proves one history with its supplier.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from spark.formats.arrow import np, pa, pc
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIXES_MAX: Final = 100


class PartInvalid(ValueError):
    """What should name a part names none."""


@dataclass(frozen=True, slots=True, order=True)
class Prefix:
    """All keys of a database that begin so; an empty prefix: all of them."""

    database: bytes
    prefix: bytes = b""

    @property
    def end(self) -> bytes | None:
        """The least key above all of them; None: nothing is above them."""
        kept = self.prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None

    def has(self, other: Prefix) -> bool:
        """Whether every key of another one is here."""
        return self.database == other.database and other.prefix.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class Part:
    """Prefixes in their order, none within another: two parts of the same keys are equal."""

    prefixes: tuple[Prefix, ...]

    @classmethod
    def of(cls, prefixes: Iterable[Prefix]) -> Self:
        """A part of so many prefixes.

        Raises: PartInvalid.
        """
        wanted = sorted(set(prefixes))
        if not 1 <= len(wanted) <= PREFIXES_MAX:
            raise PartInvalid(f"{len(wanted)} prefixes, where 1 to {PREFIXES_MAX} can be")
        for each in wanted:
            if not 1 <= len(each.database) <= DATABASE_MAX_BYTES:
                raise PartInvalid(f"a database has 1 to {DATABASE_MAX_BYTES} bytes")
            if len(each.prefix) > KEY_MAX_BYTES:
                raise PartInvalid(f"a prefix has at most {KEY_MAX_BYTES} bytes")
        kept: list[Prefix] = []
        for each in wanted:
            if not kept or not kept[-1].has(each):
                kept.append(each)
        return cls(tuple(kept))

    @classmethod
    def read(cls, document: Any) -> Self:
        """Read what `document` has given.

        Raises: PartInvalid.
        """
        if not isinstance(document, list):
            raise PartInvalid("a part is a list of databases and prefixes")
        return cls.of(_prefix(each) for each in document)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `text` has given.

        Raises: PartInvalid.
        """
        try:
            document = json.loads(text)
        except ValueError as error:
            raise PartInvalid("a part is JSON") from error
        return cls.read(document)

    def document(self) -> list[dict[str, str]]:
        """As JSON has it: databases and prefixes in standard base64."""
        return [
            {"database": b64encode(each.database).decode(), "prefix": b64encode(each.prefix).decode()}
            for each in self.prefixes
        ]

    def text(self) -> str:
        """As a replica keeps it."""
        return json.dumps(self.document(), separators=(",", ":"), sort_keys=True)

    def has(self, database: bytes, key: bytes) -> bool:
        """Whether a key is one of the part."""
        return any(each.has(Prefix(database, key)) for each in self.prefixes)

    def covers(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Of each row of a batch with `database` and `key`, whether its key is one of the part."""
        databases, keys = batch.column("database"), batch.column("key")
        found = np.zeros(len(batch), dtype=np.bool_)
        for each in self.prefixes:
            is_in = pc.and_(
                pc.equal(databases, pa.scalar(each.database, pa.binary())),
                pc.starts_with(keys, pattern=each.prefix),
            )
            found |= np.asarray(is_in)
        return found

    def condition(self) -> tuple[str, dict[str, object]]:
        """A condition of SQL over the columns `database` and `key`, and its parameters."""
        terms, params = [], dict[str, object]()
        for at, each in enumerate(self.prefixes):
            term = f"database = :part_database{at} and key >= :part_key{at}"
            params |= {f"part_database{at}": each.database, f"part_key{at}": each.prefix}
            if each.end is not None:
                term += f" and key < :part_end{at}"
                params[f"part_end{at}"] = each.end
            terms.append(f"({term})")
        return f"({' or '.join(terms)})", params


def shown_part(part: Part | None) -> list[dict[str, str]] | None:
    """As JSON has it; None: everything."""
    return None if part is None else part.document()


def _prefix(document: Any) -> Prefix:
    if not isinstance(document, Mapping):
        raise PartInvalid("a prefix is an object of database and prefix")
    try:
        return Prefix(*(b64decode(str(document[name]), validate=True) for name in ("database", "prefix")))
    except (KeyError, ValueError) as error:
        raise PartInvalid("database and prefix are texts in standard base64") from error
