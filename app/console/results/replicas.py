"""What sessions, audits, exports and imports of replicas have reached."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from markupsafe import Markup

from app.console.words import count, size, when, words

Result = Mapping[str, Any]
SHOWN_MAX: Final = 8
ENDED: Final = {
    "UP_TO_DATE": "The consumer has all that was here",
    "YIELDED": "It has ended at its bound; more is to be sent",
    "NEEDS_TOTAL": "Changes that the consumer lacks are not here any more: it needs a TOTAL session",
    "HALTED": "It has halted: somebody has to decide",
    "FAILED": "It has failed",
    "ABORTED": "It was aborted",
    "DIVERGED": "The consumer has gone a way of its own",
    "UNPROVEN": "What the consumer says could not be proved",
}
"""Every outcome of a session."""
REFUSED: Final = {
    "GENERATION_MISMATCH": "the two are of different generations",
    "NO_RUV": "one of them has no vector yet",
    "PART_DIFFERS": "the consumer holds another part",
}
"""Why an audit compared nothing."""
NOT_COMPARED: Final = {
    "ONLY_SUPPLIER": "only the supplier has any",
    "ONLY_CONSUMER": "only the consumer has any",
    "NOTHING_IN_COMMON": "the two hold no range in common",
    "TRIMMED_MEANWHILE": "they were trimmed meanwhile",
    "NOT_ASKED_FOR": "nobody asked for them",
    "RUVS_DIFFER": "the consumer lacks changes, or has more",
    "CHANGED_MEANWHILE": "they changed meanwhile",
    "TOMBSTONES_PURGED": "tombstones were purged",
}
"""Why an audit left something out."""


def session(result: Result) -> Iterator[str]:
    """Of an agreement."""
    outcome = str(result.get("outcome"))
    yield f"{ENDED.get(outcome, words(outcome).capitalize())}."
    sent = f"{count(result.get('batches'), 'batches')}, {size(result.get('bytes'))}"
    yield f"Sent: {sent}. Acknowledged: {count(result.get('acknowledged'), 'changes')}."
    problem = result.get("problem")
    if problem:
        why = f", {words(problem['reason'])}" if problem.get("reason") else ""
        yield f"{problem['code']}{why}: {problem['detail']}"


def audit(result: Result) -> Iterator[str]:
    """Of two replicas."""
    reason = result.get("reason")
    if reason:
        yield f"Nothing could be compared: {REFUSED.get(reason, words(reason))}."
        return
    yield "All that was compared is the same." if result.get("agrees") else "The two differ."
    if not result.get("complete"):
        yield "Not all was compared."
    for each in result.get("rids") or ():
        if each.get("not_compared"):
            yield f"Changes of replica id {each['rid']} were not compared: {_why_not(each['not_compared'])}."
    entries = result.get("entries") or {}
    if entries.get("not_compared"):
        yield f"Entries were not compared: {_why_not(entries['not_compared'])}."
    differing = [*(result.get("differing") or ()), *(entries.get("differing") or ())]
    more = "At least " if result.get("truncated") else ""
    if differing:
        yield f"Listed below: {more.lower()}{count(len(differing), 'differences')}."


def _why_not(name: str) -> str:
    return NOT_COMPARED.get(name, words(name))


def exported(result: Result) -> Iterator[str]:
    """Into a file."""
    yield f"{result['path']} holds {_held(result)}, {size(result['bytes'])}."
    yield from _taken(result)


def imported(result: Result) -> Iterator[str]:
    """From a file."""
    yield f"{_held(result)} of {result['path']} are in place: ordinary sessions go on from here."
    yield from _taken(result)


def _held(result: Result) -> str:
    return f"{count(result['entries'], 'entries')} ({count(result['tombstones'], 'tombstones')} among them)"


def _taken(result: Result) -> Iterator[str]:
    yield Markup("It was taken of replica id {}, which has signed it, at {}.").format(
        result["rid"], when(result["taken_at"])
    )
