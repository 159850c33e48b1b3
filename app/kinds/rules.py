"""What a store of a kind is made of: which fields it has, which it needs, and what holds by default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from app.kinds.parameter import ParameterSpec
from spark.targets.target import DATABASES, validate_place


class StoreMode(StrEnum):
    """How a JE environment is shared with its own process.

    CLOSED: JE's locks are held while something is written. LIVE: beside the running process.
    """

    CLOSED = "CLOSED"
    LIVE = "LIVE"


class ExtinctionFilterMode(StrEnum):
    """What the application's extinction filter says to JE."""

    NONE = "NONE"
    ALWAYS_MAYBE = "ALWAYS_MAYBE"
    INSTALLED = "INSTALLED"


SQL_FIELDS: Final = frozenset({"url", "password", "schema_name", "table_prefix", "time_zone"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """The rules of a kind.

    Args:
        fields: that not every kind has; those of other kinds are refused.
        needs: fields that it cannot do without, the place first.
        dialects: of the database that it lies on; empty: any database.
        lies_on: the same in a sentence.
        defaults: what holds where a client says nothing.
        counts_bytes: whether `limits.max_bytes` means something.
        example: what a new one looks like, as JSON.
        parameters: that its stores may set, beside those of all kinds.
    """

    fields: frozenset[str]
    needs: tuple[str, ...]
    dialects: frozenset[str] = frozenset()
    lies_on: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    counts_bytes: bool = False
    example: Mapping[str, Any]
    parameters: tuple[ParameterSpec, ...] = ()

    def refuses(self, url: str) -> str | None:
        """Why a URL is none of this kind; None: it may be one.

        Raises: TargetUrlInvalid.
        """
        if validate_place(url) in (self.dialects or DATABASES):
            return None
        return self.lies_on or "a store of this kind lies on a database"
