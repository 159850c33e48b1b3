"""The end of a plan: the command that runs exactly it, or that nothing would go and where to look then."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lethe_client import CleanupPlan, ErasurePlan, ExtinctionPlan, Plan

from app.cli.shell.hints import command
from app.cli.shell.output import Output, cell

Look = str | None
LooksOf = Callable[[Plan], Iterable[Look]]


def end_of_plan(out: Output, run: str, *, looks: Iterable[Look] | None) -> None:
    """Say what to do with a plan.

    Args:
        run: the line that says how to execute it.
        looks: None: the plan removes something; else what to look at where it removes nothing.
    """
    if looks is None:
        out.note(run)
        return
    out.note("There is nothing to remove, and so nothing to run. What to look at instead:")
    for each in looks:
        if each:
            out.note(f"  {each}")


def looks_of_purge(made: Plan, of_kind: LooksOf | None = None) -> list[Look] | None:
    """What to look at where a purge would remove and mark nothing; None: it would.

    Args:
        of_kind: what there is to look at; None: as the plan's kind has it.
    """
    stranded = made.stranded
    gives_up = stranded.mode == "MARK" and bool(stranded.nodes or stranded.batches)
    if gives_up or any(_rows_to_remove(made)):
        return None
    looks = of_kind or LOOKS.get(made.kind, _of_symmetricds)
    return [*looks(made), _warnings(made.warnings)]


def _rows_to_remove(made: Plan) -> Iterable[int]:
    yield from (table.rows_to_remove for table in made.tables)
    yield from (rid.rows_to_remove for rid in made.rids)


def look_at_cutoff(made: Plan, options: str) -> Look:
    """Where the cut-off comes from, and which options move it."""
    if made.cutoff is None:
        return None
    named = made.retention_source in (None, "REQUEST")
    source = "" if named else f" (retention from {made.retention_source})"
    return f"the cut-off {cell(made.cutoff)}{source}: {options} reaches younger rows"


def _warnings(warnings: Sequence[object]) -> Look:
    return "the warnings above: what is unusual in the data, and what of it stays" if warnings else None


def _of_symmetricds(made: Plan) -> Iterable[Look]:
    kept = {each.table: each.rows for each in made.tables if each.rows}
    yield look_at_cutoff(made, "a later --cutoff or fewer --retention-minutes")
    if kept:
        yield f"what stays, younger than that or still needed: {cell(kept)}"
    else:
        yield "the tables above: they are empty"
    if made.stranded.nodes:
        batches = sum(each.batches for each in made.stranded.nodes)
        yield f"{batches:,} batches of the nodes above keep their rows; --stranded mark gives them up"
    yield f"the oldest row of each table: {command('purge', 'stats', made.store)}"


def _of_changelog(made: Plan) -> Iterable[Look]:
    held = sum(each.rows_held for each in made.rids)
    by = ", ".join(sorted({name for each in made.rids for name in each.held_by}))
    yield look_at_cutoff(made, "a later --cutoff, fewer --retention-minutes or --max-entries")
    yield f"{made.rows or 0:,} records stay; {held:,} of them are old enough and held"
    if by:
        yield f"who has not acknowledged them ({by}): {command('replication', 'topology')}"


def _of_tombstones(made: Plan) -> Iterable[Look]:
    held = sum(each.rows_held for each in made.rids)
    yield look_at_cutoff(made, "a later --cutoff or fewer --retention-minutes")
    yield f"{made.rows or 0:,} tombstones stay; {held:,} of them are old enough and held"
    if made.held_by:
        yield f"who holds them ({', '.join(made.held_by)}): {command('replication', 'topology')}"


LOOKS: Mapping[str, LooksOf] = {
    "CHANGELOG": _of_changelog,
    "TOMBSTONES": _of_tombstones,
}
"""By the kind of purge, of those that one command plans; all others of it are of SymmetricDS."""


def looks_of_erasure(made: ErasurePlan) -> list[Look] | None:
    """What to look at where a cycle would erase nothing; None: it would."""
    if any(each.entries for each in made.erase) or any(each.deleted for each in made.files):
        return None
    kept = {each.code: each.entries for each in made.keep}
    return [
        f"the cut-off {cell(made.cutoff)}: a shorter --min-file-age or --period reaches younger files",
        "the files above, and why each is not erased" if made.files else "the directory: it has no file",
        f"the entries that are kept, by cause: {cell(kept)}" if kept else None,
    ]


def looks_of_cleanup(made: CleanupPlan) -> list[Look] | None:
    """What to look at where a cleanup would remove nothing and leave the log as it is; None: it would not."""
    step = made.log_switch.get("step")
    if made.rows_to_remove or any(made.tables.values()) or step in ("START", "FINISH", "HEAL"):
        return None
    return [
        f"confirmations after {cell(made.confirmed_before)} do not count: a shorter --interval or a later"
        " --confirmed-before counts more",
        "the nodes that hold events of each origin, above" if made.origins else None,
        "the log switch, above: it waits for rows that are still needed" if step == "BLOCKED" else None,
        _warnings(made.warnings),
    ]


def note_of_extinction(made: ExtinctionPlan) -> Look:
    """What is to be known of a range without records; a discard speaks of the keys, not of the records."""
    if made.records:
        return None
    return (
        "There is nothing to remove: no record lies in the range (--start-key, --end-key, --filter). A"
        " discard still says of all its keys that they are never used again."
    )


def is_beyond_plans(made: Plan) -> bool:
    """Whether a plan has more rows than it can name: it cannot be run by its id."""
    executable: Any = made.raw.get("is_executable", True)
    return executable is False
