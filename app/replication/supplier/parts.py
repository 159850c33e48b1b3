"""A consumer that holds a part of the keys: it is asked before its acquire, and believed only if it agrees.

Rules:
- a consumer that does not say that it knows parts gets no acquire for one: it would take the part for all;
- what it says at acquire that it holds is what the agreement sends, or nothing is sent.
"""

from app.jobs.errors import JobFailed
from app.replication.peer.answers import Acquired
from app.replication.supplier.ground import Ground
from spark.replication.session_errors import PartDiffers
from spark.replication.sessions.begin import PART_CAPABILITY

PART_NOT_SUPPORTED = "PART_NOT_SUPPORTED"


def require_part_taken(ground: Ground) -> None:
    """Before the acquire: refuse to send a part to a consumer of a version that knows none.

    Raises: JobFailed, PeerError.
    """
    if ground.part is not None and PART_CAPABILITY not in ground.client.ruv().capabilities:
        detail = "the consumer's version takes no part of the keys: upgrade it, or make an agreement without"
        raise JobFailed(PART_NOT_SUPPORTED, detail)


def refusal_of_part(ground: Ground, acquired: Acquired, *, is_total: bool) -> JobFailed | None:
    """Why nothing may be sent to a consumer that holds other keys; None: it holds what is sent."""
    theirs = acquired.consumer.part
    if theirs == ground.part:
        return None
    is_new = theirs is None and acquired.consumer.generation is None and acquired.consumer.ruv is None
    if is_new and not is_total:
        return None  # it needs a total initialisation, which the decision says
    detail = "the consumer holds other keys than the agreement sends: use its `keys`, or a new consumer"
    return JobFailed(PartDiffers.code, detail)
