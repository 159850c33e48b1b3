"""Health and topology of the replicas of a suffix, as clients see them."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from app.kit.durations import Duration
from app.kit.model import Model


class Ds389Status(StrEnum):
    """How well it is, as plugins of Nagios say it."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"


class Ds389Role(StrEnum):
    """SUPPLIER takes changes, HUB passes them on, CONSUMER only reads."""

    SUPPLIER = "SUPPLIER"
    HUB = "HUB"
    CONSUMER = "CONSUMER"


_LAG: Final[dict[str, Any]] = {
    "rid": 1,
    "supplier_csn": "6b073470000300010000",
    "consumer_csn": "6b07346c000100010000",
    "at_least": "PT2.5S",
    "at_most": "PT6.5S",
}
_FINDING: Final[dict[str, Any]] = {
    "code": "AGREEMENT_FAILED",
    "severity": "CRITICAL",
    "servers": ["ldap1", "ldap3"],
    "rid": None,
    "agreement": "ldap1-to-ldap3",
    "detail": "agreement ldap1-to-ldap3 of ldap1 has failed: Error (-1) Problem connecting to replica",
    "advice": "Look at the consumer and its error log.",
    "measured": None,
    "limit": None,
}
_SERVER: Final[dict[str, Any]] = {
    "store": "ldap1",
    "rid": 1,
    "role": "SUPPLIER",
    "status": "CRITICAL",
    "as_of": "2026-11-25T19:18:10Z",
    "clock_difference": "PT0.4S",
    "generation": "6b073467000000010000",
    "version": "389-Directory/2.3.1 B2025.016.1616",
    "changes": 6,
    "ruv": [
        {
            "rid": 1,
            "url": "ldap://ldap1.example:389",
            "min_csn": "6b07346c000100010000",
            "max_csn": "6b073470000300010000",
        }
    ],
    "lags": [],
}
_AGREEMENT: Final[dict[str, Any]] = {
    "supplier": "ldap1",
    "name": "ldap1-to-ldap3",
    "consumer": "ldap3",
    "host": "ldap3.example",
    "port": 389,
    "enabled": True,
    "updating": False,
    "initialising": False,
    "state": "red",
    "status": "Error (-1) Problem connecting to replica - LDAP error: Can't contact LDAP server",
    "init_status": "Error (0) Total update succeeded",
    "started_at": "2026-11-25T19:18:08Z",
    "ended_at": "2026-11-25T19:18:08Z",
    "sent": 4,
    "skipped": 0,
    "lags": [_LAG],
}


class Ds389LagRead(Model):
    """How far behind in the changes of one replica."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LAG]})

    rid: int = Field(description="Whose changes.")
    supplier_csn: str = Field(description="The newest change that there is to have.")
    consumer_csn: str | None = Field(description="The newest that it has; null: none.")
    at_least: Duration = Field(description="Age of the newest change that it lacks.")
    at_most: Duration | None = Field(description="Age of the newest change that it has; null: it has none.")


class Ds389FindingRead(Model):
    """One thing that is wrong."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FINDING]})

    code: str = Field(description="Stable, UPPER_SNAKE; the runbook has an entry for each.")
    severity: Literal[Ds389Status.WARNING, Ds389Status.CRITICAL, Ds389Status.UNKNOWN] = Field(
        description="UNKNOWN: it could not be looked at."
    )
    servers: list[str] = Field(description="The stores that it is about, or that see it, by id.")
    rid: int | None = Field(description="The replica that it is about.")
    agreement: str | None = Field(description="The agreement that it is about, by its cn.")
    detail: str = Field(description="What is wrong, with numbers.")
    advice: str = Field(description="What to do next.")
    measured: float | None = Field(description="What was measured, in seconds.")
    limit: float | None = Field(description="What it may be, in seconds.")


class Ds389RuvRead(Model):
    """What a server has of one replica."""

    rid: int = Field(description="The replica.")
    url: str = Field(description="Where that replica says it is.")
    min_csn: str | None = Field(description="The first change of it that was ever logged here.")
    max_csn: str | None = Field(description="All of its changes up to this one are here.")


class Ds389ServerRead(Model):
    """One server as it was looked at."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SERVER]})

    store: str = Field(description="The store that is the server.")
    rid: int | None = Field(description="Its replica id; null: it did not tell, now or before.")
    role: Ds389Role | None = Field(description="null: it could not be asked.")
    status: Ds389Status = Field(description="The worst of what concerns it.")
    as_of: datetime | None = Field(description="When it was read; null: it could not be asked.")
    clock_difference: Duration | None = Field(
        description="Between its clock and ours, whichever is ahead; it tells whole seconds."
    )
    generation: str | None = Field(description="Of its data: all replicas of one topology have the same.")
    version: str = Field(description="Of the server, in its own words.")
    changes: int | None = Field(description="Entries of its changelog.")
    ruv: list[Ds389RuvRead] = Field(description="What it has of each replica.")
    lags: list[Ds389LagRead] = Field(description="What it lacks of what any other server has.")


class Ds389AgreementRead(Model):
    """One agreement as its supplier tells of it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_AGREEMENT]})

    supplier: str = Field(description="The store whose server has it.")
    name: str = Field(description="Its cn.")
    consumer: str | None = Field(description="The store that it leads to; null: none is registered there.")
    host: str = Field(description="Where it leads to.")
    port: int = Field(description="Where it leads to.")
    enabled: bool = Field(description="Whether it sends at all.")
    updating: bool = Field(description="A session is under way.")
    initialising: bool = Field(description="A total update is under way.")
    state: str = Field(description="green, amber or red, as the server says; empty: no session yet.")
    status: str = Field(description="Of the last session, in the server's words.")
    init_status: str = Field(description="Of the last total update.")
    started_at: datetime | None = Field(description="Begin of the last session.")
    ended_at: datetime | None = Field(description="End of the last session.")
    sent: int = Field(description="Changes that the consumer took since the server started.")
    skipped: int = Field(description="Changes that the consumer refused, or that were empty.")
    lags: list[Ds389LagRead] = Field(description="What the consumer lacks of what this supplier has.")


class Ds389HealthRead(Model):
    """What is wrong, the worst first, and how each server was found."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "suffix": "dc=example,dc=com",
                    "status": "CRITICAL",
                    "servers": [_SERVER],
                    "findings": [_FINDING],
                }
            ]
        }
    )

    suffix: str = Field(description="The replicated suffix.")
    status: Ds389Status = Field(
        description="The worst of all findings: CRITICAL, then WARNING, then UNKNOWN; OK: there is none."
    )
    servers: list[Ds389ServerRead] = Field(description="The servers that were to be asked, by store.")
    findings: list[Ds389FindingRead] = Field(description="Each fault once, the worst first.")


class Ds389TopologyRead(Model):
    """Who supplies whom, and how far everybody is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"suffix": "dc=example,dc=com", "servers": [_SERVER], "agreements": [_AGREEMENT]}]
        }
    )

    suffix: str = Field(description="The replicated suffix.")
    servers: list[Ds389ServerRead] = Field(description="By store.")
    agreements: list[Ds389AgreementRead] = Field(description="Of all servers that could be asked.")
