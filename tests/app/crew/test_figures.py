"""Figures of several processes: sums that only grow, whoever dies."""

import json
import random

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from app.crew.figures import CrewFigures
from app.crew.messages import Begin, News, families_of
from app.kit.request_figures import RequestFigures
from app.settings import Settings

ROUTES = ["/v1/jobs", "/v1/stores"]


def _shown(figures: object) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(figures)  # type: ignore[arg-type]
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def _answer(figures: RequestFigures, chosen: random.Random) -> None:
    route = type("Route", (), {"path": chosen.choice(ROUTES)})
    status = chosen.choice([200, 404])
    figures.answered({"method": "GET", "route": route}, status, chosen.choice([0.001, 0.2, 7.0]))


def _news(figures: RequestFigures) -> News:
    return News.read(News(families=families_of(figures.collect()), silence_s=1.5, reconnects=2).line())


def test_sums_are_those_of_one_process_and_never_sink() -> None:
    chosen = random.Random(3)
    crew, alone = CrewFigures(), RequestFigures()
    own = {number: RequestFigures() for number in range(3)}
    before: dict[str, float] = {}
    for turn in range(300):
        number = chosen.randrange(3)
        same = random.Random(turn)
        _answer(own[number], same)
        _answer(alone, random.Random(turn))
        crew.told(number, _news(own[number]))
        if chosen.random() < 0.1:
            crew.gone(number)
            own[number] = RequestFigures()
        after = _shown(crew)
        grown = {name: value for name, value in after.items() if "_created" not in name}
        assert all(grown[name] >= value for name, value in before.items()), turn
        before = {name: value for name, value in grown.items() if name != "lethe_api_processes"}
    wanted = {name: value for name, value in _shown(alone).items() if "_created" not in name}
    assert {name: round(before[name], 6) for name in wanted} == {
        name: round(value, 6) for name, value in wanted.items()
    }


def test_a_gauge_is_that_of_those_that_live() -> None:
    crew = CrewFigures()
    for number, readers in ((1, 2), (2, 3)):
        gauge = GaugeMetricFamily("lethe_change_feeds_open", "Readers.", labels=["form"])
        gauge.add_metric(["SSE"], readers)
        crew.told(number, News.read(News(families=families_of([gauge])).line()))
    assert _shown(crew)['lethe_change_feeds_open{form="SSE"}'] == 5
    crew.gone(1)
    assert _shown(crew)['lethe_change_feeds_open{form="SSE"}'] == 3


def test_what_is_heard_worst_is_told_and_reconnects_of_the_dead_stay() -> None:
    crew = CrewFigures()
    crew.told(1, News(silence_s=3.0, reconnects=2))
    crew.told(2, News(silence_s=200.0, reconnects=1))
    assert (crew.silence_s(), crew.reconnects) == (200.0, 3)
    crew.gone(2)
    crew.told(2, News(silence_s=0.0, reconnects=0))
    assert (crew.silence_s(), crew.reconnects) == (3.0, 3)


def test_settings_reach_the_others_as_they_are() -> None:
    settings = Settings(
        labels=["a", "b"],
        allowed_hosts=["10.0.0.0/8"],
        exec_secrets={"shop": ["/usr/bin/true", "x"]},
        proxy_addresses=["10.1.2.3"],
        vault={"url": "https://vault", "token_file": "/run/token"},  # type: ignore[arg-type]
        oidc={"issuer": "https://id", "audience": ["lethe"], "roles": {"ops": "admin"}},  # type: ignore[arg-type]
    )
    begin = Begin(1, "ins_x", json.loads(settings.model_dump_json()))
    assert Settings(**Begin.read(begin.line()).settings) == settings
