"""Small environments whose records were all written several times."""

from pathlib import Path

from lethe_samples.je_writer.environment import Environment

VALUE = b"a version of a record, too long to be embedded in its slot: "


def begin_history(directory: Path) -> Environment:
    """An environment with one database and files of 4 kB."""
    environment = Environment(directory, file_bytes_max=4_000, created_ms=1_795_163_000_000)
    environment.create("records")
    return environment


def write_versions(environment: Environment, what: bytes) -> int:
    """Write every record anew; returns the LSN of the checkpoint's end."""
    for number in range(60):
        environment.put(None, "records", b"key %d" % number, VALUE + what + b" %d" % number)
    return environment.checkpoint()


def write_history(directory: Path) -> None:
    """An environment that was closed; all but its newest versions are obsolete."""
    environment = begin_history(directory)
    for what in (b"old", b"kept", b"new"):
        write_versions(environment, what)
    environment.close()
