"""What the first process and an API process say to each other: lines of JSON over two pipes.

To the child: how it begins, and then words. From the child, about once a second: what it has to tell; a line
without news says that its loop still turns.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from prometheus_client.core import Metric

LINE_BYTES_MAX: Final = 8 << 20


class Word(StrEnum):
    """What the first process says."""

    STARTED = "started"
    """Jobs are run: the service is ready."""
    DRAIN = "drain"
    """The service stops: whoever waits is answered."""
    LEAVE = "leave"
    """It has stopped: end, once the requests that are here have their answers."""


@dataclass(frozen=True, slots=True)
class Begin:
    """How an API process begins.

    Attributes:
        number: 1 and so on; one that takes another's place has its number.
        settings: of the service, as JSON.
    """

    number: int
    instance_id: str
    settings: dict[str, Any]

    def line(self) -> bytes:
        """As it is sent."""
        return _line(asdict(self))

    @classmethod
    def read(cls, line: bytes) -> "Begin":
        """Out of a line."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """A family of figures, as they are now."""

    name: str
    kind: str
    text: str
    samples: list[Sample]

    @classmethod
    def of(cls, metric: Metric) -> "Family":
        """As a collector gives it."""
        samples = [Sample(each.name, dict(each.labels), each.value) for each in metric.samples]
        return cls(metric.name, metric.type, metric.documentation, samples)


@dataclass(frozen=True, slots=True)
class News:
    """What an API process tells.

    Attributes:
        families: None: as before.
        supplied: replicas that suppliers have reached there.
        rings: it has left something for those that send webhooks.
        silence_s: since the metadata proved to it that it hears news.
        reconnects: how often it had to listen anew.
        waits: it lives, and has not begun: the metadata does not answer.
    """

    families: list[Family] | None = None
    supplied: list[str] = field(default_factory=list)
    rings: bool = False
    silence_s: float = 0.0
    reconnects: int = 0
    waits: bool = False

    def line(self) -> bytes:
        """As it is sent."""
        return _line(asdict(self))

    @classmethod
    def read(cls, line: bytes) -> "News":
        """Out of a line."""
        found = json.loads(line)
        families = found.pop("families")
        return cls(**found, families=None if families is None else [_family(each) for each in families])


def families_of(metrics: Iterable[Metric]) -> list[Family]:
    """What a collector gives."""
    return [Family.of(metric) for metric in metrics]


def _family(found: dict[str, Any]) -> Family:
    samples = [Sample(**each) for each in found.pop("samples")]
    return Family(**found, samples=samples)


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
