"""All settings by their variables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.runbook.settings import (
    callers,
    erasure,
    jobs,
    metadata,
    places,
    replication,
    requests,
    service,
    spark,
    targets,
)
from app.runbook.settings.entry import Setting

SECTIONS: Final[Mapping[str, tuple[Setting, ...]]] = MappingProxyType(
    {
        "Where the service lives": service.ENTRIES,
        "What stores may name": places.ENTRIES,
        "Requests and connections": requests.ENTRIES,
        "Tokens of an identity provider": callers.ENTRIES,
        "Metadata and instances": metadata.ENTRIES,
        "Jobs, schedules, webhooks": jobs.ENTRIES,
        "Targets and purges": targets.ENTRIES,
        "Replication": replication.ENTRIES,
        "Erasure": erasure.ENTRIES,
        "Spark": spark.ENTRIES,
    }
)
SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {entry.name: entry for entries in SECTIONS.values() for entry in entries}
)


def variable(text: str) -> str:
    """The variable that somebody means by `lethe_port`, `port`, `spark.min_rows` or `--data-dir`."""
    name = text.strip().lstrip("-").upper().replace("-", "_").replace(".", "__")
    return name if name.startswith("LETHE_") else f"LETHE_{name}"
