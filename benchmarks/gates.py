"""A measured figure and what was asked of it, as every benchmark prints and judges it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """One figure and what was asked of it."""

    name: str
    value: float
    asked: float
    unit: str
    at_least: bool = True
    judged: bool = True

    @property
    def is_met(self) -> bool:
        """Whether it is good enough, or nobody judges it."""
        held = self.value >= self.asked if self.at_least else self.value <= self.asked
        return held or not self.judged

    def line(self) -> str:
        """For people."""
        sign = ">=" if self.at_least else "<="
        verdict = "OK" if self.is_met else "MISSED"
        judged = "" if self.judged else " (not judged)"
        return f"{self.name:<46}{self.value:>9.2f} {self.unit} {sign} {self.asked:g}{judged}  {verdict}"
