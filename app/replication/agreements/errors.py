"""Errors of agreements and of sessions, as their supplier's clients see them.

ServiceError
 +- NotFound 404       AgreementNotFound, ReplicationSessionNotFound
 +- Conflict 409       AgreementExists, AgreementInUse
 +- Unprocessable 422  ConsumerRefused
 +- BadGateway 502     ConsumerAnsweredWrong
 +- Unavailable 503    ConsumerUnreachable
"""

from app.errors import BadGateway, Conflict, NotFound, ServiceError, Unavailable, Unprocessable
from app.replication.peer.answers import PeerError, PeerRefused, PeerUnanswered


class AgreementNotFound(NotFound):
    """There is no such agreement of this store."""


class ReplicationSessionNotFound(NotFound):
    """There is no such session of this store, or it has been forgotten with its job."""


class AgreementExists(Conflict):
    """One agreement for each consumer."""

    def __init__(self, agreement_id: str) -> None:
        detail = f"{agreement_id} brings changes to this consumer already"
        super().__init__(detail, extra={"agreement_id": agreement_id})


class AgreementInUse(Conflict):
    """A session of the agreement has not ended."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"{job_id} works for this agreement", extra={"job_id": job_id})


class ConsumerRefused(Unprocessable):
    """The consumer's address is outside of what this service may call."""


class ConsumerAnsweredWrong(BadGateway):
    """The consumer refused, or what answered is none."""


class ConsumerUnreachable(Unavailable):
    """The consumer did not answer."""


def peer_problem(error: PeerError) -> ServiceError:
    """What a client is told of an error of the peer, for requests that ask it at once."""
    if isinstance(error, PeerUnanswered):
        return ConsumerUnreachable(error.detail, headers={"Retry-After": "5"})
    extra = {"peer_code": error.code} if isinstance(error, PeerRefused) else {}
    return ConsumerAnsweredWrong(error.detail, extra=extra)
