"""Former versions run beside this one: what came to the parameters of a kind of job has a level."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from app.jobs.running.newer import FIELDS, LEVELS, OF_BEFORE, VALUES, labels_known, labels_of
from app.purge.models import PurgeKind
from app.verbs.table import PLANS, VERBS

RECORD = Path(__file__).with_name("job_parameters.json")


def _values(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return sorted(annotation)
    return sorted({value for part in get_args(annotation) for value in _values(part)})


def _found() -> dict[str, dict[str, list[str]]]:
    models = [verb.params for verb in VERBS] + [plan.params for plan in PLANS]
    return {
        model.__name__: {
            name: _values(field.annotation) for name, field in sorted(model.model_fields.items())
        }
        for model in sorted(models, key=lambda model: model.__name__)
    }


def test_what_a_job_can_be_asked_for_is_recorded_with_its_level() -> None:
    recorded = json.loads(RECORD.read_text())
    assert _found() == recorded, (
        "a parameter of jobs, or a value of one, has come or gone. Where a former version would do something"
        " else without it, give it the next level in app/jobs/running/newer.py (a kind of purge has a label"
        " by itself); then record it in"
        f" {RECORD.name}"
    )
    fields = {name for model in recorded.values() for name in model}
    assert set(FIELDS) <= fields
    assert {name for name, _ in VALUES} <= fields


def test_every_level_is_known_to_runners_of_this_version() -> None:
    assert {*FIELDS.values(), *VALUES.values()} == set(range(1, LEVELS + 1))
    for (name, value), level in VALUES.items():
        assert labels_of({name: value}) == labels_of({"params": {name: value}}) == {f"level/{level}"}
    assert labels_of({"channel_retention_minutes": {"sale": 1}}) == {"level/1"} <= labels_known()
    for plain in ({}, {"kind": "OUTGOING", "stranded": "MARK"}, {"channel_retention_minutes": {}}):
        assert labels_of(plain) == frozenset()


def test_a_kind_of_purge_that_comes_goes_to_runners_that_have_it() -> None:
    """A runner of the former version took such a job, and failed it."""
    for params in ({"kind": "TOYS"}, {"kind": "PURGE", "params": {"kind": "TOYS"}}):
        assert labels_of(params) == {"purge/TOYS"}
        assert labels_of(params) <= labels_known([*PurgeKind, "TOYS"])
        assert not labels_of(params) <= labels_known(PurgeKind)
    assert labels_of({"kind": "ERASURE", "params": {"min_free": 1}}) == frozenset()
    for kind in PurgeKind:
        assert labels_of({"kind": str(kind)}) <= labels_known(PurgeKind)
    assert {"OUTGOING", "ROWS", "TOMBSTONES"} <= OF_BEFORE <= {*PurgeKind}
