"""`lethe ds389 health`: a plugin of Nagios and its like; exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

from collections.abc import Iterator
from typing import Annotated

import typer
from lethe_client import Ds389Finding, Ds389Health

from app.cli.shell.plugin import exit_code, line, status_line, unknown
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
    if (store is None) == (suffix is None):
        raise typer.BadParameter("name a store or a suffix, and one of them", param_hint="STORE / --suffix")
    if suffix is not None:
        found = session.client.ds389.suffix_health(suffix)
    else:
        assert store is not None, "one of them was given"
        found = session.client.ds389.health(store)
    session.out.document(found.raw)
    session.out.say(status_line("DS389", found.status, _summary(found), _figures(found)))
    for each in found.findings:
        session.out.say(line(_finding(each)))
    return exit_code(found.status)


health = on_service(_health, refused=unknown("DS389"))


def _summary(found: Ds389Health) -> str:
    servers = f"{found.suffix}, {len(found.servers)} server(s) asked"
    if not found.findings:
        return f"{servers}, nothing is wrong"
    first, more = found.findings[0], len(found.findings) - 1
    return f"{servers}: {first.detail}" + (f" (and {more} more)" if more else "")


def _finding(each: Ds389Finding) -> str:
    return f"{each.severity} {each.code} ({', '.join(each.servers)}): {each.detail}. {each.advice}"


def _figures(found: Ds389Health) -> Iterator[str]:
    yield f"findings={len(found.findings)};;;0"
    for server in found.servers:
        for lag in server.lags:
            yield f"{server.store}_rid{lag.rid}_lag={lag.at_least.total_seconds():.1f}s;;;0"
