"""The benchmark of event cleanups itself, on so few events that its times say nothing."""

from __future__ import annotations

import json

import pytest

from benchmarks.slony import main
from tests.conftest import need_slony

pytestmark = pytest.mark.slony


@pytest.mark.long
def test_few_events_leave_by_both_ways_and_the_same_stays(capsys: pytest.CaptureFixture[str]) -> None:
    need_slony()
    assert main(["--quick"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["single"]["differing"] == 0
    assert found["machine"] > 0
    assert [(fleet["via"], len(fleet["alone_s"])) for fleet in found["fleets"]] == [
        ("NATIVE", 2),
        ("BUILTIN", 2),
    ]
