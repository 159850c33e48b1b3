"""What cycles of erasure, their verifications and extinctions have reached."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.console.words import count, listed, size, words

Result = Mapping[str, Any]
FILES_MAX: Final = 8
CAUSES: Final = {
    "vlsn_index": "replication of the environment may still read them, until JE has truncated its VLSN index",
}
"""Why files remain, where the cause's own name says too little."""


def erasure(result: Result) -> Iterator[str]:
    """Of a JE log."""
    entries = (result.get("erased") or {}).get("entries")
    if entries is not None:
        yield f"Erased: {count(entries, 'entries')}."
    states = [f"{count(number)} {words(state)}" for state, number in (result.get("files") or {}).items()]
    if states:
        yield f"Files: {listed(states, FILES_MAX)}."
    for cause, files in (result.get("remaining_by_cause") or {}).items():
        why = CAUSES.get(cause.lower(), words(cause))
        yield f"Left: {count(len(files), 'files')} ({listed(files, FILES_MAX)}): {why}."
    if result.get("fewer_than_planned"):
        fewer = count(result["fewer_than_planned"], "entries")
        yield f"{fewer} of the plan did not go: they are not there any more, or are needed now."


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
        yield f"Rightly different: {count(result['explained_count'], 'places')}."


def extinction(result: Result) -> Iterator[str]:
    """Of a range of keys."""
    yield f"Extinct: {count(result['records'], 'records')}, {size(result['bytes'])}."
    if result.get("tombstones"):
        yield f"Among them: {count(result['tombstones'], 'tombstones')}."
    if result.get("hint"):
        yield str(result["hint"])
    if result.get("fewer_than_planned"):
        fewer = count(result["fewer_than_planned"], "records")
        yield f"{fewer} of the plan did not go: they are not there any more, or are needed now."
