"""`lethe ds389 health`: a plugin of Nagios and its like; exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

from collections.abc import Iterator
from typing import Annotated

import typer
from lethe_client import Ds389Finding, Ds389Health

from app.cli.shell.plugin import exit_code, line, require_one, summed_up, tell, unknown
from app.cli.shell.session import Session, on_service


def _health(
    session: Session,
    store: Annotated[str | None, typer.Argument(metavar="[STORE]", help="What concerns one server.")] = None,
    *,
    suffix: Annotated[
        str | None, typer.Option(metavar="DN", help="All registered servers of this suffix instead.")
    ] = None,
) -> int:
    """Tell a monitor whether replication is well. Exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    Example: lethe ds389 health --suffix dc=example,dc=com
    """
    require_one(store, suffix, name="suffix")
    if suffix is not None:
        found = session.client.ds389.suffix_health(suffix)
    else:
        assert store is not None, "one of them was given"
        found = session.client.ds389.health(store)
    tell(session.out, "DS389", found, first=_summary(found), figures=_figures(found))
    for each in found.findings:
        session.out.say(line(_finding(each)))
    return exit_code(found.status)


health = on_service(_health, refused=unknown("DS389"))


def _summary(found: Ds389Health) -> str:
    servers = f"{found.suffix}, {len(found.servers)} server(s) asked"
    return summed_up(servers, [each.detail for each in found.findings])


def _finding(each: Ds389Finding) -> str:
    return f"{each.severity} {each.code} ({', '.join(each.servers)}): {each.detail}. {each.advice}"


def _figures(found: Ds389Health) -> Iterator[str]:
    yield f"findings={len(found.findings)};;;0"
    for server in found.servers:
        for lag in server.lags:
            yield f"{server.store}_rid{lag.rid}_lag={lag.at_least.total_seconds():.1f}s;;;0"
