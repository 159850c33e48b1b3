"""What became of SYNCs, waits and log switches of Slony-I, and of feeds from it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from markupsafe import Markup

from app.console.words import count, lasting, listed, when, words

Result = Mapping[str, Any]
SHOWN_MAX: Final = 8
SWITCHED: Final = {
    "STARTED": "The switch has begun",
    "ALREADY_SWITCHING": "A switch was under way already; none was begun",
    "FINISHED": "The switch is finished",
    "FINISHED_ELSEWHERE": "Somebody else has finished the switch",
    "NOTHING_TO_FINISH": "No switch was under way",
    "TIMED_OUT": "The switch could not be finished in time",
}
"""Every outcome of a log switch."""


def sync(result: Result) -> Iterator[str]:
    """Whether a SYNC was made."""
    if result.get("outcome") == "MADE":
        yield f"Node {result['origin']} has made SYNC {count(result['seqno'])}."
    elif result.get("last_seqno") is not None:
        last, age = count(result["last_seqno"]), lasting(result["last_age"])
        yield f"No SYNC was due: {last} of node {result['origin']} was {age} old."
    if result.get("interval"):
        yield f"One is due where the newest is {lasting(result['interval'])} old."
    if result.get("has_own_slon") is False:
        yield "The node's own slon is not connected: replication to this node stands still."


def wait(result: Result) -> Iterator[str]:
    """Who has confirmed what was waited for."""
    events = [f"{count(each['seqno'])} of node {each['origin']}" for each in result.get("awaited") or ()]
    what = f"event {listed(events, SHOWN_MAX)}" if events else "what was waited for"
    if result.get("is_satisfied"):
        yield f"All {count(result['pairs'], 'pairs')} of origin and receiver have confirmed {what}."
    else:
        total, pairs = count(result.get("outstanding_total")), count(result.get("pairs"), "pairs")
        yield f"{total} of {pairs} of origin and receiver have not confirmed {what}."
    for each in list(result.get("outstanding") or ())[:SHOWN_MAX]:
        behind = (
            "never confirmed any"
            if each["behind"] is None
            else f"is {count(each['behind'], 'events')} behind"
        )
        yield f"Node {each['receiver']} {behind} of node {each['origin']} ({words(each['why'])})."
    if result.get("origins_gone"):
        gone = listed([str(each) for each in result["origins_gone"]], SHOWN_MAX)
        yield f"Dropped meanwhile, and waited for no longer: node {gone}."


def switch(result: Result) -> Iterator[str]:
    """How a log switch has ended."""
    outcome = str(result.get("outcome"))
    yield f"{SWITCHED.get(outcome, words(outcome).capitalize())}: {result.get('active')} is written."
    if result.get("emptied"):
        yield f"{result['emptied']} was emptied."
    blocked = result.get("blocked")
    if blocked:
        yield f"{blocked['table']} could not be emptied: {words(blocked['why'])}."


def feed(result: Result) -> Iterator[str]:
    """What a feed has carried into a replica, and where it stands."""
    if result.get("copied"):
        yield f"A first copy was made: {count(result['rows_copied'], 'records')}."
    carried = f"{count(result['records'], 'records')} of {count(result['syncs'], 'SYNCs')}"
    yield f"Applied: {carried} of node {result['origin']}."
    level = (
        "the node's newest at its start"
        if result["seqno"] >= result["newest_seqno"]
        else "not yet the newest"
    )
    at = Markup(", made {}").format(when(result["at"])) if result.get("at") else ""
    yield Markup("It stands at SYNC {}, {}{}.").format(count(result["seqno"]), level, at)
    if result.get("scripts"):
        ran = count(result["scripts"], "scripts")
        yield f"{ran} of EXECUTE SCRIPT ran there, and no record says what they did: make a new first copy."
