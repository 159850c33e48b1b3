"""What cycles of erasure, their verifications and extinctions have reached."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.console.words import count, listed, size, words

Result = Mapping[str, Any]
FILES_MAX: Final = 8
CAUSES: Final = {
    "vlsn_index": "the VLSN index of a replicated environment may still point into them",
}
"""Why files remain, where the cause's own name says too little."""


def erasure(result: Result) -> Iterator[str]:
    """Of a JE log."""
    entries = (result.get("erased") or {}).get("entries")
    if entries is not None:
        yield f"{count(entries, 'entries')} were erased."
    states = [f"{count(number)} {words(state)}" for state, number in (result.get("files") or {}).items()]
    if states:
        yield f"Files: {listed(states, FILES_MAX)}."
    for cause, files in (result.get("remaining_by_cause") or {}).items():
        why = CAUSES.get(cause.lower(), words(cause))
        yield f"{count(len(files), 'files')} remain ({listed(files, FILES_MAX)}): {why}."
    if result.get("fewer_than_planned"):
        yield f"{count(result['fewer_than_planned'], 'entries')} of the plan stay."


def verification(result: Result) -> Iterator[str]:
    """Of what a cycle has proved."""
    if result.get("verified"):
        yield "The environment is as the cycle's proof says."
    else:
        yield f"The environment is not as the cycle's proof says: {count(result['faults_count'], 'faults')}."
    yield f"{count(result['files_as_proved'])} of {count(result['files_read'], 'files')} are as proved."
    erased = f"{count(result['erased_entries'], 'entries')}, {size(result['erased_bytes'])}"
    yield f"Erased: {erased}."
    if result.get("explained_count"):
        yield f"{count(result['explained_count'], 'differences')} have a reason."


def extinction(result: Result) -> Iterator[str]:
    """Of a range of keys."""
    yield f"{count(result['records'], 'records')} with {size(result['bytes'])} are extinct."
    if result.get("tombstones"):
        yield f"{count(result['tombstones'], 'tombstones')} among them."
    if result.get("hint"):
        yield str(result["hint"])
    if result.get("fewer_than_planned"):
        yield f"{count(result['fewer_than_planned'], 'records')} of the plan stay."
