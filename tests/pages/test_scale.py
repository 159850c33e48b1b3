"""docs/scale.md: each result follows from the inputs beside it, and the thresholds are those of the code."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from app.kit.metadata.postgresql_glance import CONNECTIONS_MAX
from app.kit.spark.thresholds import CLUSTER, HERE, PURGE_INLINE_PER_S
from app.settings import Settings
from tests.style.source_files import ROOT

PAGE: Final = (ROOT / "docs" / "scale.md").read_text()
OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
ROUNDING: Final = 0.02
RESULTS: Final = "| result | formula | value |"


def rows_of(text: str, head: str) -> list[list[str]]:
    """The rows below a table's head."""
    lines = text.splitlines()
    begin = lines.index(head) + 2
    end = next((n for n in range(begin, len(lines)) if not lines[n].startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin:end]]


def number(cell: str) -> float | None:
    """A number with commas; None: never."""
    return None if cell == "never" else float(cell.replace(",", ""))


def computed(formula: str, inputs: dict[str, float]) -> float:
    """The value of a formula of names, numbers, + - * / and brackets."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        return inputs[node.id] if isinstance(node, ast.Name) else float(ast.literal_eval(node))

    return value(ast.parse(formula, mode="eval").body)


def cases() -> list[Any]:
    """(formula, inputs, value) of each result."""
    found = []
    for section in PAGE.split("\n## ")[1:]:
        if "| input | value | from |" not in section:
            continue
        given = rows_of(section, "| input | value | from |")
        inputs = {name.strip("`"): float(value) for name, value, _source in given}
        for what, formula, value in rows_of(section, RESULTS):
            found.append(pytest.param(formula.strip("`"), inputs, number(value), id=what))
    return found


@pytest.mark.parametrize(("formula", "inputs", "value"), cases())
def test_result_follows_from_its_inputs(formula: str, inputs: dict[str, float], value: float) -> None:
    assert math.isclose(computed(formula, inputs), value, rel_tol=ROUNDING)


def test_every_input_is_used_and_says_where_it_is_from() -> None:
    for section in PAGE.split("\n## ")[1:]:
        if "| input | value | from |" in section:
            results = rows_of(section, RESULTS)
            used = {name for _what, formula, _value in results for name in re.findall(r"[a-z_]+", formula)}
            for name, _value, source in rows_of(section, "| input | value | from |"):
                assert name.strip("`") in used
                assert re.match(r"the question|assumed|chosen|default|measured", source), source


def test_thresholds_are_those_of_the_code() -> None:
    head = "| work | on this machine: pool up | started first | on a cluster: pool up | started first |"
    for work, *cells in rows_of(PAGE, head):
        kind: Any = work.split("`")[1]
        here, cluster = HERE[kind], CLUSTER[kind]
        wanted = [here.least, here.least_cold, cluster.least, cluster.least_cold]
        assert [number(cell) for cell in cells] == wanted


def test_connections_to_the_metadata_count_those_that_listen_and_those_for_reads() -> None:
    [formula] = [row[1] for row in rows_of(PAGE, RESULTS) if row[0].startswith("connections to the metadata")]
    given: dict[str, float] = {"processes": 3, "metadata_pool": 10, "api_processes": 2, "api_reads": 4}
    assert computed(formula.strip("`"), given) == 3 * 10 + 3 + 2 * 4


def test_slowest_target_is_the_part_of_the_figure_that_the_page_says() -> None:
    measured = re.search(r"at ([0-9,]+) to ([0-9,]+) rows a second", PAGE)
    assert measured is not None
    parts = [round(PURGE_INLINE_PER_S / float(each.replace(",", ""))) for each in measured.groups()]
    assert parts == [9, 6]
    assert "a ninth to a sixth of the figure above" in PAGE


def test_defaults_are_those_of_the_settings() -> None:
    settings = Settings()
    said = {
        "jobs_max": settings.runner_jobs_max,
        "workers": settings.purge_workers,
        "metadata_pool": settings.metadata_pool_size,
        "api_processes": settings.api_processes,
        "api_reads": CONNECTIONS_MAX,
        "rows_per_s": PURGE_INLINE_PER_S,
    }
    for name, value in said.items():
        assert f"| `{name}` | {value} |" in PAGE
    spark = settings.spark
    for name, value in {
        "LETHE_RUNNER_SPARK_JOBS_MAX": settings.runner_spark_jobs_max,
        "LETHE_SPARK__UNITS_AHEAD_MAX": spark.units_ahead_max,
        "LETHE_SPARK__SLOTS": spark.slots,
        "LETHE_REPLICATION_IN_FLIGHT": settings.replication_in_flight,
        "LETHE_REPLICATION_BATCHES_MAX": settings.replication_batches_max,
    }.items():
        assert f"`{name}` ({value})" in PAGE
