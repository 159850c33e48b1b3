"""Figures of all API processes together.

Rules:
- counters only grow: what a process had told before it died stays in the sums;
- what it had not told, of its last second, is lost;
- a gauge is the sum of those that live.
"""

from collections.abc import Iterable
from fractions import Fraction
from threading import Lock
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from app.crew.messages import Family, News
from app.news.listening import Hearing

BEGAN: Final = "_created"
"""The end of the names of what tells since when something is counted: the first of all counts."""
GAUGE: Final = "gauge"
Head = tuple[str, str, str]
Place = tuple[str, tuple[tuple[str, str], ...]]
Sums = dict[Head, dict[Place, Fraction]]
"""Exact: a sum of floats may be smaller in another order, and a smaller one is a reset to Prometheus."""


class CrewFigures:
    """A collector for Prometheus; any thread."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._gone: Sums = {}
        self._told: dict[int, list[Family]] = {}
        self._silences: dict[int, float] = {}
        self._reconnects: dict[int, int] = {}
        self._reconnects_of_gone = 0
        self.alive = 0
        self.restarts = 0

    def told(self, number: int, news: News) -> None:
        """Take in what a process tells."""
        with self._guard:
            self._silences[number], self._reconnects[number] = news.silence_s, news.reconnects
            if news.families is not None:
                self._told[number] = news.families

    def gone(self, number: int) -> None:
        """A process has ended; another one takes its number."""
        with self._guard:
            _add(self._gone, (each for each in self._told.pop(number, []) if each.kind != GAUGE))
            self._silences.pop(number, None)
            self._reconnects_of_gone += self._reconnects.pop(number, 0)

    def silence_s(self) -> float:
        """Of the process that has heard nothing for longest."""
        with self._guard:
            return max(self._silences.values(), default=0.0)

    @property
    def reconnects(self) -> int:
        """Of all processes."""
        with self._guard:
            return self._reconnects_of_gone + sum(self._reconnects.values())

    def collect(self) -> Iterable[Metric]:
        """All families."""
        for (name, kind, text), samples in self._sums().items():
            metric = Metric(name, text, kind)
            for (sample, labels), value in samples.items():
                metric.add_sample(sample, dict(labels), float(value))
            yield metric
        yield GaugeMetricFamily(
            "lethe_api_processes", "Processes that answer the API, beside the first one.", value=self.alive
        )
        yield CounterMetricFamily(
            "lethe_api_process_restarts",
            "API processes that died and were started anew.",
            value=self.restarts,
        )

    def _sums(self) -> Sums:
        found: Sums = {}
        with self._guard:
            for head, samples in self._gone.items():
                found[head] = dict(samples)
            for families in self._told.values():
                _add(found, families)
        return found


class CrewEar:
    """The ear of the first process, and those of the others."""

    def __init__(self, own: Hearing, others: CrewFigures) -> None:
        self._own = own
        self._others = others

    def silence_s(self) -> float:
        """Seconds since the database last proved to all of them that it is heard."""
        return max(self._own.silence_s(), self._others.silence_s())

    @property
    def reconnects(self) -> int:
        """How often any of them made a lost connection anew."""
        return self._own.reconnects + self._others.reconnects


def _add(sums: Sums, families: Iterable[Family]) -> None:
    for family in families:
        of_family = sums.setdefault((family.name, family.kind, family.text), {})
        for sample in family.samples:
            place = sample.name, tuple(sorted(sample.labels.items()))
            value, before = Fraction(sample.value), of_family.get(place)
            if before is None:
                of_family[place] = value
            else:
                of_family[place] = min(before, value) if sample.name.endswith(BEGAN) else before + value
