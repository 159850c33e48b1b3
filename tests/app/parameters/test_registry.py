"""The seeds' parameters: names, aliases, types, ranges and defaults as their documents give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Unprocessable
from app.kit.durations import parse_duration
from app.parameters.registry import REGISTRY, find_parameter
from app.parameters.spec import ParameterScope, ParameterType, as_timedelta

EVENTS_3X = "job.purge.max.num.data.event.batches.to.delete.in.tx"


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("purge.retention.minutes", 7200),
        ("job.purge.max.num.data.to.delete.in.tx", 5000),
        ("job.purge.max.num.data.events.to.delete.in.tx", 5),
        ("job.purge.max.num.batches.to.delete.in.tx", 5000),
        ("routing.data.reader.type.gap.retention.period.minutes", 1440),
        ("je.env.runEraser", False),
        ("je.erase.period", "PT0S"),
        ("je.erase.deletedDatabases", True),
        ("je.erase.extinctRecords", True),
        ("je.erase.abortTimeout", "PT30S"),
        ("cleanup_interval", "PT10M"),
        ("lethe.retention.idempotency", "P7D"),
    ],
)
def test_default_is_the_documents(name: str, default: object) -> None:
    spec = find_parameter(name)
    assert spec is not None
    assert spec.default == default


def test_every_name_and_alias_leads_to_one_parameter() -> None:
    names = [name for spec in REGISTRY for name in (spec.name, *spec.aliases)]
    assert len(names) == len(set(names))
    for spec in REGISTRY:
        for name in (spec.name, *spec.aliases):
            assert find_parameter(name) is spec
    assert find_parameter(EVENTS_3X) is find_parameter("job.purge.max.num.data.events.to.delete.in.tx")
    assert find_parameter("purge.retention.hours") is None


@pytest.mark.parametrize("spec", REGISTRY, ids=lambda spec: spec.name)
def test_default_and_bounds_are_values_of_the_parameter(spec) -> None:
    assert spec.parse(spec.default) == spec.default
    for bound in (spec.minimum, spec.maximum):
        if bound is not None:
            value = spec.parse(bound)
            assert value == bound or as_timedelta(value) == parse_duration(str(bound))
    assert spec.description.endswith(".") or spec.description
    own = spec.name.startswith("lethe.")
    assert (spec.kinds == ()) is own
    assert (ParameterScope.STORE in spec.scopes) is not own


@pytest.mark.parametrize(
    "spec", [s for s in REGISTRY if s.type is ParameterType.INTEGER], ids=lambda s: s.name
)
@pytest.mark.parametrize(
    "value",
    [
        True,
        1.0,
        None,
        "",
        " ",
        "x",
        "1.5",
        "--5",
        "-",
        "²",
        "٣x",
        "1e3",
        "0x10",
        "9" * 25,
        -1,
        10**12,
        [],
        {},
    ],
    ids=repr,
)
def test_what_is_no_whole_number_in_range_is_refused(spec, value: object) -> None:
    # "--5" and "²" passed a check of their characters and broke int(): the answer was 500.
    with pytest.raises(Unprocessable) as refused:
        spec.parse(value)
    assert (refused.value.status, refused.value.code) == (422, "PARAMETER_INVALID")
    assert spec.name in refused.value.detail


@pytest.mark.parametrize(("value", "read"), [(60, 60), ("60", 60), (" 60 ", 60), (0, 0), ("0060", 60)])
def test_whole_number_is_read(value: object, read: int) -> None:
    spec = find_parameter("purge.retention.minutes")
    assert spec is not None
    assert spec.parse(value) == read


@pytest.mark.parametrize(
    ("value", "read"), [(True, True), ("TRUE", True), ("0", False), ("false", False), ("1", True)]
)
def test_truth_is_read(value: object, read: bool) -> None:
    spec = find_parameter("je.env.runEraser")
    assert spec is not None
    assert spec.parse(value) is read
    for wrong in (1, 0, "yes", None, 2.0):
        with pytest.raises(Unprocessable):
            spec.parse(wrong)


@pytest.mark.parametrize(("value", "read"), [("PT90M", "PT1H30M"), ("P1W", "P7D"), ("PT1H", "PT1H")])
def test_duration_is_brought_to_one_form(value: str, read: str) -> None:
    spec = find_parameter("lethe.retention.jobs")
    assert spec is not None
    assert spec.parse(value) == read


@pytest.mark.parametrize(
    "value", [3600, True, None, "", "1h", "-P1D", "PT59M59S", "P3651D", "P" + "9" * 190 + "D", "P1D" * 100]
)
def test_what_is_no_duration_in_range_is_refused(value: object) -> None:
    spec = find_parameter("lethe.retention.jobs")
    assert spec is not None
    with pytest.raises(Unprocessable):
        spec.parse(value)


@given(
    st.sampled_from(REGISTRY),
    st.one_of(st.text(max_size=30), st.integers(), st.booleans(), st.none(), st.floats(), st.just("P1D")),
)
def test_any_value_is_canonical_or_refused(spec, value: object) -> None:
    try:
        read = spec.parse(value)
    except Unprocessable:
        return
    assert spec.parse(read) == read
