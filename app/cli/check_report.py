"""What a check has found, and what a registration warns of, for people."""

from lethe_client import CheckReport, Store

from app.cli.shell.output import Output


def show_check(out: Output, report: CheckReport) -> None:
    """Print what was found; a conflict that is a finding too is said there alone."""
    said = {finding.detail for finding in report.findings}
    out.facts(
        {
            "reachable": report.reachable,
            "server": None if report.server_version is None else str(report.server_version),
            "layout": report.layout,
            "identity": report.identity,
            "clock difference (s)": report.clock_difference_s,
            "ledger": report.ledger,
            "permissions missing": report.permissions_missing,
            "conflicts": [each for each in report.conflicts if each not in said],
            "can": report.can,
        }
    )
    if report.sizes:
        rows = [[size.table, size.rows_estimate, size.bytes] for size in report.sizes]
        out.table(["table", "rows (estimate)", "bytes"], rows)
    if report.findings:
        found = [[finding.severity, finding.code, finding.detail] for finding in report.findings]
        out.table(["severity", "code", "detail"], found)


def show_warnings(out: Output, store: Store) -> None:
    """Say beside the result what to know of a store that was registered or changed just now."""
    for each in store.warnings:
        out.note(f"warning: {each.code}: {each.detail}")
        out.note(f"  What it means: lethe explain {each.code}")
