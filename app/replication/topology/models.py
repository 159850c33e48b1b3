"""All replicas of a service and their agreements, over HTTP."""

from datetime import datetime
from typing import Any, Final

from pydantic import ConfigDict, Field

from app.kit.durations import Duration
from app.kit.model import Model
from app.replication.consumer.fields import RuvRead
from app.replication.replica.models import KeyPrefix
from app.replication.rows import AgreementState, SessionOutcome

STORES_MAX: Final = 500
_AGREEMENT: Final = "agr_01k9x2m4c6d8e0f2g4h6j8k0mn"
_CSN: Final = "673d1a2f000000010000"
_EXAMPLE: Final[dict[str, Any]] = {
    "at": "2026-11-20T10:54:39Z",
    "nodes": [
        {
            "store": "orders-east",
            "url": None,
            "rid": 1,
            "status": "ONLINE",
            "generation": _CSN,
            "ruv": {"1": _CSN},
            "part": None,
            "target_code": None,
        },
        {
            "store": "orders",
            "url": "https://west.example:8765",
            "rid": 2,
            "status": None,
            "generation": None,
            "ruv": None,
            "part": None,
            "target_code": None,
        },
    ],
    "agreements": [
        {
            "id": _AGREEMENT,
            "supplier": "orders-east",
            "consumer": {"url": "https://west.example:8765", "store": "orders", "rid": 2},
            "state": "REGISTERED",
            "interval": "PT10S",
            "keys": None,
            "rids": [
                {
                    "rid": 1,
                    "changes": 12,
                    "lag": "PT4S",
                    "acknowledged": None,
                    "upto": _CSN,
                    "needs_total": False,
                }
            ],
            "lag_changes": 12,
            "lag": "PT4S",
            "needs_total": False,
            "color": "green",
            "message": "Error (0) Replica acquired successfully: Incremental update succeeded",
            "is_active": False,
            "last_session": {
                "id": "rps_01k9x2m4c6d8e0f2g4h6j8k0mn",
                "mode": "INCREMENTAL",
                "outcome": "UP_TO_DATE",
                "code": None,
                "started_at": "2026-11-20T10:54:30Z",
                "ended_at": "2026-11-20T10:54:31Z",
            },
            "target_code": None,
        }
    ],
    "truncated": False,
}


class TopologyNodeRead(Model):
    """A replica: a store of this service, or a consumer of another one, which is not asked."""

    store: str
    url: str | None = Field(description="Null: a store of this service.")
    rid: int | None = Field(description="Of another service's: as its last answer said.")
    status: str | None = Field(description="Null: it was not asked, or could not be read.")
    generation: str | None
    ruv: RuvRead | None = Field(description="Null: it was not asked, or could not be read.")
    part: list[KeyPrefix] | None = Field(description="Which keys it holds; null: all, or it was not asked.")
    target_code: str | None = Field(description="Why it could not be read now.")


class TopologyConsumerRead(Model):
    """Whom an agreement brings changes to."""

    url: str
    store: str
    rid: int | None


class TopologyLagRead(Model):
    """What a consumer has not acknowledged of one replica id."""

    rid: int
    changes: int
    lag: Duration = Field(description="How long ago the first of them was logged at the supplier.")
    acknowledged: str | None
    upto: str = Field(description="The supplier's RUV.")
    needs_total: bool = Field(description="Some of them have left the changelog.")


class TopologySessionRead(Model):
    """The last session of an agreement."""

    id: str
    mode: str
    outcome: SessionOutcome | None
    code: str | None = Field(description="What ended it, or holds it up.")
    started_at: datetime | None
    ended_at: datetime | None


class TopologyAgreementRead(Model):
    """An agreement, with its lag by RID; null: its supplier could not be read."""

    id: str
    supplier: str = Field(description="The store of this service.")
    consumer: TopologyConsumerRead
    state: AgreementState
    interval: Duration | None
    keys: list[KeyPrefix] | None = Field(description="Which keys are sent; null: all.")
    rids: list[TopologyLagRead] | None
    lag_changes: int | None = Field(description="Over all RIDs.")
    lag: Duration | None = Field(description="The longest of all RIDs.")
    needs_total: bool | None = Field(description="Only a total initialisation brings the consumer level.")
    color: str = Field(description="389's: green, amber, red.")
    message: str = Field(description="389's words for the last session.")
    is_active: bool = Field(description="Whether a session is at work or waits.")
    last_session: TopologySessionRead | None = Field(description="Null: there was none yet.")
    target_code: str | None = Field(description="Why the supplier could not be read now.")


class TopologyRead(Model):
    """Every replica that is seen and every agreement between them, at one moment for each supplier."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    at: datetime
    nodes: list[TopologyNodeRead] = Field(description="Replicas here, and consumers elsewhere.")
    agreements: list[TopologyAgreementRead] = Field(description="Of the replicas here, as suppliers.")
    truncated: bool = Field(description=f"More than {STORES_MAX} replicas are here; these are the first.")
