"""What the change feed takes and gives."""

from datetime import datetime
from typing import Final

from pydantic import ConfigDict, Field

from app.kit.model import Model
from app.replication.replica.models import Base64, ChangeRead
from spark.replication.feed.key_history import Outcome
from spark.replication.feed.overwritten import Verdict

_LOST: Final = "6aff000a000000010000"
_WON: Final = "6aff000b000000020000"
_CURSOR: Final = "AWr_AAAAAAAAAQAAav8ACgAAAAEAAKqqqqqqqgvXyWk"


class ChangeFeedPage(Model):
    """What follows a cursor; of each replica id in the order of the CSNs, each change once."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [ChangeRead.model_json_schema()["examples"][0]],
                    "cursor": _CURSOR,
                    "more": False,
                }
            ]
        }
    )

    items: list[ChangeRead]
    cursor: str = Field(description="Where to go on, once the items are safe with the reader.")
    more: bool = Field(description="More was there already: ask again at once.")


class ChangeFeedBegin(Model):
    """The first event of a stream: from where it tells."""

    cursor: str


class KeyChangeRead(Model):
    """A change of a key, and what it is now."""

    rid: int = Field(description="The replica that made the change.")
    csn: str
    payload: Base64 | None = Field(description="The value; null: it deletes.")
    logged_at: datetime = Field(description="When it came here, by the target's clock.")
    outcome: Outcome = Field(
        description="WON: the entry is at it. OVERWRITTEN: a greater CSN has won. EXTINCT: an extinction has"
        " removed the key's entry."
    )
    overwritten_by: str | None = Field(description="The next greater CSN of the key that is known here.")
    overwritten_by_rid: int | None = Field(description="The replica that made that one.")


class KeyHistoryRead(Model):
    """Changes of a key, the greatest CSN first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {
                            "rid": 1,
                            "csn": _LOST,
                            "payload": "eyJhIjoxfQ==",
                            "logged_at": "2026-11-20T10:54:39Z",
                            "outcome": "OVERWRITTEN",
                            "overwritten_by": _WON,
                            "overwritten_by_rid": 2,
                        }
                    ],
                    "next_page_token": "",
                    "purged": {"1": "6aff0001000000010000"},
                }
            ]
        }
    )

    items: list[KeyChangeRead]
    next_page_token: str
    purged: dict[str, str] = Field(
        description="By replica id the CSN up to which changes have left the changelog."
    )


class OverwrittenRead(Model):
    """A change that lost against one of another replica id."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "database": "b3JkZXJz",
                    "key": "MTAwMQ==",
                    "verdict": "CONCURRENT",
                    "csn": _LOST,
                    "rid": 1,
                    "logged_at": "2026-11-20T10:54:49Z",
                    "overwritten_by": _WON,
                    "overwritten_by_rid": 2,
                    "overwritten_by_logged_at": "2026-11-20T10:54:39Z",
                }
            ]
        }
    )

    database: Base64
    key: Base64
    verdict: Verdict = Field(
        description="Whether the winner's replica had the loser: CONCURRENT: no. SEEN: yes. UNCERTAIN: the"
        " changelog does not tell."
    )
    csn: str = Field(description="Of the change that lost.")
    rid: int = Field(description="The replica that made the change.")
    logged_at: datetime = Field(description="When it came here, by the target's clock.")
    overwritten_by: str = Field(description="The next greater CSN of the key that is known here.")
    overwritten_by_rid: int = Field(description="The replica that made that one.")
    overwritten_by_logged_at: datetime | None = Field(
        description="When that one came here; null: its record is not here any more."
    )
