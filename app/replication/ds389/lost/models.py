"""`/v1/ds389:find-lost`: what servers have left, and what follows from it."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from app.kit.model import Model
from spark.formats.csn import CSN_CHARS, RID_MAX, RID_MIN

CSNS_MAX: Final = 100_000
SESSIONS_MAX: Final = 10_000
LINES_MAX: Final = 5_000
CsnText = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{CSN_CHARS}}}$")]
Line = Annotated[str, StringConstraints(max_length=1_200)]
Lines = Annotated[list[Line], Field(max_length=LINES_MAX)]
Csns = Annotated[list[CsnText], Field(max_length=CSNS_MAX)]
Rid = Annotated[int, Field(ge=RID_MIN, le=RID_MAX)]

_SESSION: Final[dict[str, Any]] = {
    "agreement": "s1-to-s2",
    "start": "20/Nov/2026:08:21:08.524481962 +0000",
    "consumer_ruv": [
        "{replicageneration} 6afffdfc000000010000",
        "{replica 2 ldap://s2.example:389} 6afffdff000100020000 6b0002da000000020000 00000000",
        "{replica 1 ldap://s1.example:389} 6afffdfc000300010000 6b0002e5000100010000 00000000",
    ],
    "supplier_ruv": [
        "{replicageneration} 6afffdfc000000010000",
        "{replica 1 ldap://s1.example:389} 6afffdfc000300010000 6b0002f3000400010000 6b0002f3",
    ],
    "sent": ["6b0002f3000400010000"],
    "end": {"state": 5},
}
_CHANGELOG: Final[dict[str, Any]] = {"server": 4, "csns": ["6b0002e7000000010000"]}
_EXAMPLE: Final[dict[str, Any]] = {"sessions": [_SESSION], "changelogs": [_CHANGELOG]}


class SessionBody(Model):
    """One session of a supplier, as its error log tells it at the level of replication."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_SESSION]})

    agreement: Line = Field(default="", description="Its cn.")
    start: Line = Field(default="", description="As in the log: 20/Nov/2026:08:21:08.52 +0000.")
    consumer_ruv: Lines = Field(description="The lines in their order: the consumer tells itself first.")
    supplier_ruv: Lines = Field(description="The lines of what the supplier had then.")
    sent: Csns = Field(description="What the session sent, in its order.")
    skipped_consumer_rid: Csns = Field(default=[], description="The consumer's own that were read.")
    end: dict[str, Any] = Field(default={"state": 5}, description="`state` 5: it came to its own end.")


class ChangelogBody(Model):
    """What the changelog of a server holds."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_CHANGELOG]})

    server: Rid = Field(description="Its RID.")
    purged: Lines = Field(default=[], description="Lines of clpurgeruv.")
    maxima: Lines = Field(default=[], description="Lines of clmaxruv.")
    csns: Csns = Field(description="All changes that it holds.")


class ResultsBody(Model):
    """What a server answered to changes that it was sent."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"server": 2, "results": {"6b0002f3000400010000": 0}}]},
    )

    server: Rid = Field(description="Its RID.")
    results: dict[CsnText, int] = Field(
        max_length=CSNS_MAX, description="The LDAP result of each change; 0: taken."
    )


class LostRequest(Model):
    """All that is known; the more, the more is found."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    changelogs: list[ChangelogBody] = Field(default=[], max_length=1_000, description="Of servers.")
    sessions: list[SessionBody] = Field(default=[], max_length=SESSIONS_MAX, description="In any order.")
    results: list[ResultsBody] = Field(default=[], max_length=1_000, description="Of access logs.")


class LostChange(Model):
    """One change that a server does not have although its RUV says so."""

    csn: str = Field(description="The change.")
    server: int = Field(description="The RID of the server that lacks it.")
    why: Literal["JUMPED", "REFUSED", "HOLE"] = Field(
        description="JUMPED: a session sent a later change of the same replica without it. REFUSED: the"
        " server answered with an error, and the session went on. HOLE: its changelog has changes before and"
        " behind it; a total update leaves such holes too, so this alone is a suspicion."
    )
    proved: bool = Field(description="false: a suspicion.")
    agreement: str | None = Field(description="Whose session jumped over it.")
    at: datetime | None = Field(description="When that session began.")
    after: str | None = Field(
        description="JUMPED: behind this change the session may have jumped over more than anything names;"
        " null: from the first."
    )
    upto: str | None = Field(description="JUMPED: where that stretch ends.")
    result: int | None = Field(description="REFUSED: the LDAP result.")


class JudgedSession(Model):
    """A session beside the lossless rule."""

    agreement: str = Field(description="Whose session it was.")
    at: datetime | None = Field(description="When it began.")
    consumer: int | None = Field(description="The RID of the consumer.")
    outcome: Literal["UP_TO_DATE", "SEND", "NEEDS_TOTAL"] = Field(description="What it had to do.")
    reason: str | None = Field(description="NEEDS_TOTAL: why.")
    should: int = Field(description="Known changes that the consumer lacked.")
    sent: int = Field(description="Changes that it sent.")
    held: int = Field(description="Of those not sent, the ones that later sessions still send.")
    lost: int = Field(description="Of those not sent, the ones that no later session sends.")


class LostRead(Model):
    """The answer: nothing is lost as far as is known where `lost` is empty."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "known": 3,
                    "lost": [
                        {
                            "csn": "6b0002e7000000010000",
                            "server": 2,
                            "why": "JUMPED",
                            "proved": True,
                            "agreement": "s1-to-s2",
                            "at": "2026-11-20T08:21:08.524481Z",
                            "after": "6b0002e5000100010000",
                            "upto": "6b0002f3000400010000",
                            "result": None,
                        }
                    ],
                    "sessions": [
                        {
                            "agreement": "s1-to-s2",
                            "at": "2026-11-20T08:21:08.524481Z",
                            "consumer": 2,
                            "outcome": "SEND",
                            "reason": None,
                            "should": 2,
                            "sent": 1,
                            "held": 0,
                            "lost": 1,
                        }
                    ],
                }
            ]
        }
    )

    known: int = Field(description="Different changes that anything given names.")
    lost: list[LostChange] = Field(description="By server and change.")
    sessions: list[JudgedSession] = Field(description="By their time.")
