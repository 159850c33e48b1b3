"""Generated ids: prefixed, 26 characters, sortable by time, unique over threads."""

import re

from app.kit.ids import new_id
from tests.app.jobs.workbench import in_threads


def test_ids_have_the_form_that_paths_accept() -> None:
    assert re.fullmatch(r"job_[0-9a-z]{26}", new_id("job"))


def test_ids_of_one_process_grow_and_never_repeat() -> None:
    results = in_threads(8, lambda _: [new_id("job") for _ in range(500)])
    for mine in results:
        assert mine == sorted(mine)
    everything = [one for mine in results for one in mine]
    assert len(set(everything)) == len(everything)
