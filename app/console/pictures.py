"""Series of a store as small pictures: inline SVG, made here, with attributes and no style.

The picture says little to who cannot see it: the greatest, the last and the sum stand beside it as text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.console.words import instant

WIDTH: Final = 480
HEIGHT: Final = 72
LEAST_PX: Final = 1.5


@dataclass(frozen=True, slots=True)
class Trend:
    """What a template draws.

    Attributes:
        bars: (x, y, width, height) of each piece of time that has a value.
        most, last: in the unit of the series.
        total: of those that add up; None: of the others.
    """

    bars: Sequence[tuple[float, float, float, float]]
    most: float
    last: float
    total: float | None
    width: int = WIDTH
    height: int = HEIGHT


def trend(series: Mapping[str, Any], window: Mapping[str, Any]) -> Trend | None:
    """The bars of a series; None: it has no values.

    Args:
        series: one of a StoreSeries: `adds_up` and its points, each with the beginning of its piece.
        window: the StoreSeries: from when to when, and how long a piece is.
    """
    points = series["points"]
    if not points:
        return None
    value = "sum" if series["adds_up"] else "max"
    values = [float(point[value]) for point in points]
    begins, ends = instant(window["begins_at"]), instant(window["ends_at"])
    lasts_s = max(1.0, (ends - begins).total_seconds())
    most = max(values)
    pieces = max(1, _pieces(window, lasts_s))
    bars = []
    for point, number in zip(points, values, strict=True):
        place = max(0.0, (instant(point["at"]) - begins).total_seconds() / lasts_s)
        high = max(LEAST_PX, HEIGHT * number / most) if most > 0 else LEAST_PX
        wide = max(LEAST_PX, WIDTH / pieces - 1)
        bars.append(
            (
                round(min(place * WIDTH, WIDTH - wide), 1),
                round(HEIGHT - high, 1),
                round(wide, 1),
                round(high, 1),
            )
        )
    last = values[-1] if series["adds_up"] else float(points[-1]["last"])
    return Trend(bars, most, last, sum(values) if series["adds_up"] else None)


def _pieces(window: Mapping[str, Any], lasts_s: float) -> int:
    return round(lasts_s / (600 if window["window"] == "DAY" else 21_600))
