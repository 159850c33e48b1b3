"""`POST /v1/replicas/{store}/digests`: what a replica holds, counted and hashed for its supplier's audit."""

import time
from typing import Final

from app.errors import Unavailable
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.audits.digests import compute_digests, wanted_by
from app.replication.audits.models import DigestRequest, DigestsRead
from app.replication.consumer.api import REPLICA, ConsumerDep
from app.replication.peer.content_digest import DigestedRoute
from spark.replication.replica.digest import DigestStopped
from spark.targets.connection import Connection

router = new_router(tags=["replicas"], route_class=DigestedRoute)
READING_MAX_S: Final = 25.0
"""Suppliers wait 30 s for an answer."""


class DigestTooLong(Unavailable):
    """The ranges hold too much to be read in one request."""

    def __init__(self) -> None:
        super().__init__("more than one request can read: ask for smaller ranges")


@router.post(
    f"{REPLICA}/digests",
    response_model=DigestsRead,
    summary="Count and hash what a replica holds",
    operation_id="digest_replica",
    responses=problems(404, 409),
)
def post_digests(body: DigestRequest, consumer: ConsumerDep) -> DigestsRead:
    """Nothing is written. The form of the checksums is the one of both sides: BLAKE2b over every value."""
    until_s = time.monotonic() + READING_MAX_S

    def look(conn: Connection) -> DigestsRead:
        return compute_digests(conn, wanted_by(body), should_stop=lambda: time.monotonic() > until_s)

    try:
        return consumer.read(look)
    except DigestStopped as error:
        raise DigestTooLong from error
