"""How events are to go, and whether every one of them has a way.

Source: slony-events-confirmations, 4.1; what test_slony_state finds in sl_listen.
"""

from collections.abc import Iterator
from typing import Final

from spark.events.catalog import pending_digest
from spark.events.health.ages import NOTHING, is_over, words
from spark.events.health.records import HealthFinding, NodeReading, Severity, Thresholds

NAMED_MAX: Final = 10

STORE_PATH: Final = "Store the path by slonik (STORE PATH); Slony-I then makes the listen paths by itself."


def judge_routes(reading: NodeReading) -> Iterator[HealthFinding]:
    """Listen paths and paths that miss, by receiver."""
    if reading.listens is None:
        return
    active = set(reading.catalog.active)
    for receiver in sorted(active):
        yield from _listens(reading, receiver, active)
    pending = {
        (path.server, path.client) for path in reading.catalog.paths if path.digest == pending_digest()
    }
    used = {(each.provider, each.receiver) for each in reading.listens}
    used |= {(each.provider, each.receiver) for each in reading.subscriptions or ()}
    for server, client in sorted(pending & used):
        if {server, client} <= active:
            yield _pending_path(reading, server, client)


def _listens(reading: NodeReading, receiver: int, active: set[int]) -> Iterator[HealthFinding]:
    """Origins that a receiver hears nothing of, and providers that it is to hear directly and does not."""
    listens = reading.listens or ()
    heard = {each.origin for each in listens if each.receiver == receiver}
    direct = {each.provider for each in listens if each.receiver == receiver and each.origin == each.provider}
    unheard = active - heard - {receiver}
    indirect = {
        each.provider
        for each in reading.subscriptions or ()
        if each.receiver == receiver and each.provider in active and each.provider not in direct
    }
    if not unheard and not indirect:
        return
    words = [f"none of the events of node {node}" for node in sorted(unheard)[:NAMED_MAX]]
    words += [f"not directly node {node}, its provider" for node in sorted(indirect - unheard)[:NAMED_MAX]]
    yield HealthFinding(
        code="LISTEN_MISSING",
        severity=Severity.CRITICAL if indirect else Severity.WARNING,
        node=receiver,
        detail=f"by sl_listen node {receiver} hears {', '.join(words)}",
        advice=STORE_PATH,
    )


def _pending_path(reading: NodeReading, server: int, client: int) -> HealthFinding:
    feeds = any((each.provider, each.receiver) == (server, client) for each in reading.subscriptions or ())
    return HealthFinding(
        code="PATH_MISSING",
        severity=Severity.CRITICAL if feeds else Severity.WARNING,
        node=client,
        detail=f"node {client} is to listen at node {server}, and sl_path does not say yet how to get there",
        advice=STORE_PATH,
    )


def judge_subscriptions(reading: NodeReading, limits: Thresholds) -> Iterator[HealthFinding]:
    """Subscriptions that were asked for and never became active."""
    for each in reading.subscriptions or ():
        if each.is_active or limits.subscriptions <= NOTHING:
            continue
        age = None if each.asked_at is None else reading.now - each.asked_at
        if age is not None and not is_over(age, limits.subscriptions):
            continue
        since = "longer than events are kept" if age is None else words(age)
        yield HealthFinding(
            code="SUBSCRIPTION_INACTIVE",
            severity=Severity.WARNING,
            node=each.receiver,
            detail=f"the subscription of node {each.receiver} to set {each.set_id} is not active for {since}",
            advice=f"Look at the log of node {each.receiver}'s slon: the copy of the set runs, fails again"
            " and again, or was never begun. Where nobody wants it any more: UNSUBSCRIBE SET by slonik.",
            measured=None if age is None else age.total_seconds(),
            limit=limits.subscriptions.total_seconds(),
            unit="SECONDS",
        )
