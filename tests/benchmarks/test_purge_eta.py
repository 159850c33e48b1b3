"""The ETA of real purges: a small one is only run, one of a million rows is judged."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.purge_eta import DIALECTS, SHARES, WANTED, main, measure


@pytest.mark.parametrize("dialect", DIALECTS)
def test_small_purge_tells_an_end_that_is_not_before_it(
    dialect: str, postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--dialect", dialect, "--rows", "3000", "--share", "0.85", "--url", postgresql_url])
    assert capsys.readouterr().out.startswith(dialect)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("share", SHARES)
def test_end_of_a_purge_of_a_million_rows_is_told_truthfully(dialect: str, share: float) -> None:
    # A look that is told no end is wrong. The median: a load that comes or goes changes the end itself.
    traces = [measure(dialect, rows=1_000_000, share=share) for _ in range(3)]
    assert median(trace.share() for trace in traces) >= WANTED, [trace.told for trace in traces]
