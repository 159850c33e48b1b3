"""A plan as the answer that crosses processes: counts, causes and packed entries instead of columns."""

from collections.abc import Mapping
from typing import Final

from spark.erase.calls.calls import Costs, Mode, PlanAnswer, PlannedFile, Refusal
from spark.erase.entry_tables import pack
from spark.erase.plan.plan import FilePlan, Plan
from spark.erase.rule.vlsn import VlsnIndex

VETOED_MAX: Final = 1_000


def of_plan(plan: Plan, *, mode: Mode = Mode.CLOSED, refusal: Refusal | None = None) -> PlanAnswer:
    """Make the answer of a plan; nothing of it may be done where something refuses it."""
    if refusal is not None:
        return PlanAnswer(mode=mode, refusal=refusal)
    vetoed = tuple((lsn, reason.name) for lsn, reason in plan.vetoed[:VETOED_MAX])
    return PlanAnswer(
        files=tuple(
            planned_file(each, barren=each.columns.number in plan.barren)
            for each in plan.files
            if each.columns.number not in plan.vanished
        ),
        first_active=plan.checkpoint.first_active,
        checkpoint_lsn=plan.checkpoint.lsn,
        vetoed=vetoed,
        vetoed_count=len(plan.vetoed),
        missing_count=len(plan.missing),
        vlsn=vlsn_document(plan.vlsn_index),
        torn_at=plan.torn_at,
        nodes_wait=plan.nodes_wait,
        log_extinctions=plan.log_extinctions,
        mode=mode,
        costs=Costs(reads=plan.reads.count, read_bytes=plan.reads.byte_count),
    )


def planned_file(file: FilePlan, *, barren: bool) -> PlannedFile:
    """Make the part of one file."""
    columns = file.columns
    return PlannedFile(
        number=columns.number,
        identity=columns.identity,
        created_ms=None if columns.header is None else columns.header.created_ms,
        causes={cause.value: file.detail[cause] for cause in file.causes},
        entries=pack(file.erase),
        entry_count=file.erase.num_rows,
        erased={reason.name: (amount.entries, amount.item_bytes) for reason, amount in file.erased.items()},
        kept={cause.value: (amount.entries, amount.item_bytes) for cause, amount in file.kept.items()},
        reserved=file.reserved,
        after_checkpoint=(file.after_checkpoint.entries, file.after_checkpoint.item_bytes),
        barren=barren,
        extinct={name: (amount.entries, amount.item_bytes) for name, amount in file.extinct.items()},
        in_use=file.in_use,
    )


def vlsn_document(index: VlsnIndex | None) -> Mapping[str, int | None] | None:
    """Show the index of VLSNs; None where the environment is not replicated."""
    if index is None:
        return None
    covered, truncation = index.range, index.truncation
    return {
        "first": None if covered is None else covered.first,
        "last": None if covered is None else covered.last,
        "last_sync": None if covered is None else covered.last_sync,
        "first_file": index.first_file,
        "truncate_to_vlsn": None if truncation is None else truncation.last_vlsn,
        "truncate_to_file": None if truncation is None else truncation.file,
        "truncate_possible": None if truncation is None else int(truncation.possible),
        "left_min": index.left_min,
    }
