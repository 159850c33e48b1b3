"""When a request is sent again, and how long after.

Rules:
- never more than `attempts` sendings (unless the call is patient), and none that would start after `total_s`;
- a request whose effect may already have happened is sent again only if the caller says it is repeatable
  (a GET, or a POST under an Idempotency-Key);
- a Retry-After is a floor: jitter only adds to it.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from lethe_client.errors import LetheError, ProblemError, TransportFailed

# These failed before a byte of the request was sent, so that even an unrepeatable request may go again.
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# A proxy's words for "I do not know whether it happened".
OUTCOME_UNKNOWN = frozenset({502, 504})
DOUBLINGS_MAX = 20
NOT_DONE = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounded exponential backoff with full jitter; the last four are there so that tests own the time.

    `asleep` is what AsyncLethe sleeps by.
    """

    attempts: int = 6
    first_s: float = 0.2
    most_s: float = 10.0
    total_s: float = 60.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    asleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)
    monotonic: Callable[[], float] = field(default=time.monotonic, repr=False)
    uniform: Callable[[float, float], float] = field(default=random.uniform, repr=False)

    def delay_s(self, attempt: int, *, retry_after_s: float = 0.0) -> float:
        """Draw the pause after the given attempt (counted from 1)."""
        ceiling = min(self.most_s, self.first_s * 2 ** min(attempt - 1, DOUBLINGS_MAX))
        return retry_after_s + self.uniform(0.0, ceiling)


class Following:
    """How whoever follows a stream goes on after the end of a connection: who moves on begins anew."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._fruitless = 0

    def pause_s(self, failure: LetheError | None, *, has_moved: bool, heard_at: float) -> float:
        """Until the next connection.

        Args:
            failure: what ended this one; None: the service itself.
            has_moved: whether it brought anything.
            heard_at: when the service was heard last.
        Raises: LetheError: the failure, where the service was not heard for as long as the policy says.
        """
        policy = self._policy
        self._fruitless = 0 if has_moved else self._fruitless + 1
        delay_s = policy.delay_s(self._fruitless + 1)
        if failure is not None and policy.monotonic() + delay_s - heard_at > policy.total_s:
            raise failure
        return delay_s


def passing(error: ProblemError | TransportFailed) -> LetheError:
    """The failure of a connection that another one may follow.

    Raises: ProblemError: the service refuses.
    """
    if isinstance(error, ProblemError) and not error.retryable:
        raise error
    return error


def retry_after_s(response: httpx.Response) -> float | None:
    """Read Retry-After as seconds or as an HTTP date; None where it is absent or unreadable."""
    value = response.headers.get("retry-after")
    if value is None:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def worth_repeating(response: httpx.Response, *, repeatable: bool, refused: bool) -> bool:
    """Tell whether this answer is one to send the same request again for.

    Args:
        response: the answer.
        repeatable: sending twice does no harm even if the first one had its effect.
        refused: the problem document says `retryable: false` in so many words.
    """
    if "idempotency-replayed" in response.headers:  # what our key got before is what it gets for ever
        return False
    if response.status_code in NOT_DONE:
        return not refused
    if response.status_code in OUTCOME_UNKNOWN:
        return repeatable and not refused
    # Another request with our Idempotency-Key is in flight; every other conflict comes without Retry-After.
    in_flight = response.status_code == 409 and "retry-after" in response.headers
    return in_flight and "idempotency-key" in response.request.headers
