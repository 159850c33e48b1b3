"""The live records of an environment, by an independent reader that recovers it as JE would."""

import hashlib
from pathlib import Path

from tests.oracles.je_liveness_reader import read_environment
from tests.oracles.je_liveness_recovery import as_the_user_sees, recover


def live_records(directory: Path) -> set[tuple[str, str, str]]:
    """(database, key, SHA-256 of the value); JE would die of an entry that is erased and still needed."""
    log = read_environment(directory)
    recovered = recover(log)
    assert recovered.fatal == []
    records = as_the_user_sees(log, recovered.records)
    return {(name, key.hex(), hashlib.sha256(value).hexdigest()) for name, key, value in records}
