"""`lethe ds389 topology`: who supplies whom, and how far behind everybody is."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from lethe_client import Ds389Lag

from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service


@on_service
def topology(
    session: Session,
    *,
    suffix: Annotated[str, typer.Option(metavar="DN", help="The replicated suffix.")],
) -> int:
    """Show the servers and the agreements of a suffix, with the lag of each RID.

    Example: lethe ds389 topology --suffix dc=example,dc=com
    """
    found = session.client.ds389.topology(suffix)
    session.out.document(found.raw)
    session.out.table(
        ["server", "RID", "role", "status", "behind in"],
        [
            [each.store, each.rid, each.role or "not asked", each.status, _lags(each.lags)]
            for each in found.servers
        ],
    )
    session.out.table(
        ["agreement", "from", "to", "state", "behind in", "status"],
        [
            [
                each.name,
                each.supplier,
                each.consumer or f"{each.host}:{each.port}",
                "disabled" if not each.enabled else each.state or "none yet",
                _lags(each.lags),
                each.status,
            ]
            for each in found.agreements
        ],
    )
    return ExitCode.OK


def _lags(lags: Sequence[Ds389Lag]) -> str:
    return ", ".join(f"RID {each.rid}: {_span(each)}" for each in lags) or "nothing"


def _span(lag: Ds389Lag) -> str:
    least = _seconds(lag.at_least)
    return f"{least} s or more" if lag.at_most is None else f"{least} to {_seconds(lag.at_most)} s"


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.0f}"
