"""Replication: what a consumer needs, decided on given vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport


@dataclass(frozen=True, kw_only=True)
class Anchor(Result):
    """Where CLASSIC begins to read; `csn` is None at the beginning of the changelog."""

    csn: str | None = None
    inclusive: bool = False


@dataclass(frozen=True, kw_only=True)
class Decision(Result):
    """`outcome` is UP_TO_DATE, SEND or NEEDS_TOTAL; `windows` is [after or None, upto] by replica."""

    outcome: str
    need: tuple[int, ...] = ()
    blocked_rids: tuple[int, ...] = ()
    reason: str | None = None
    anchor: Anchor | None = None
    windows: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReplicaVectors(Result):
    """Where a replica stands: of each RID the newest CSN, and the newest that was trimmed.

    `ruv` is None where it has none, or half a copy; `incarnation` changes where it is made anew or put back.
    """

    rid: int
    status: str
    generation: str | None = None
    incarnation: str = ""
    ruv: Mapping[str, Any] | None = None
    min: Mapping[str, Any] = field(default_factory=dict)
    purged: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Topology(Result):
    """All replicas and agreements of a service that the token sees; `raw` has all of it.

    An agreement has `supplier`, `consumer`, `rids` (changes, lag, acknowledged and upto of each RID), `lag`,
    `needs_total`, `color` and `last_session`; `rids` is None where its supplier could not be read.
    """

    at: datetime
    nodes: tuple[Mapping[str, Any], ...] = ()
    agreements: tuple[Mapping[str, Any], ...] = ()
    truncated: bool = False


class Replication:
    """`/v1/replication`, and where a replica stands."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def decide(self, question: Mapping[str, Any]) -> Decision:
        """Compare a supplier with a consumer.

        Args:
            question: `{strategy?, supplier: {ruv, min?, purged?, generation?}, consumer: {ruv, generation?},
                previous?: {ruv, csn_buffer}}`; a vector is a mapping of RID to CSN or a list of 389's lines,
                the consumer's `ruv` None where it has none.
        Raises: RequestInvalid: `errors` points at every CSN and line that is wrong.
        """
        path = f"{collection('replication')}:decide"
        call = Call(method="POST", path=path, json=dict(question), repeatable=True)
        return decode(Decision, self._transport.request(call).body)

    def topology(self) -> Topology:
        """All replicas, their agreements, and how far each consumer is behind; consumers are not asked."""
        path = f"{collection('replication')}/topology"
        return decode(Topology, self._transport.request(Call(method="GET", path=path, repeatable=True)).body)

    def vectors(self, store_id: str) -> ReplicaVectors:
        """The RUV of a replica, and what of its changelog was trimmed; nothing is made or changed.

        Raises: NotFound, Conflict; Forbidden: the token has neither `data:read` nor `replication:peer`.
        """
        call = Call(method="GET", path=resource("replicas", store_id, "ruv"), repeatable=True)
        return decode(ReplicaVectors, self._transport.request(call).body)
