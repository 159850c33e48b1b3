"""`/v1/audit-chain`: where the chain of audit rows begins and ends, its rows by place, and its check."""

from typing import Annotated

from fastapi import Depends, Query, Request
from lethe_client.audit_chain import FIRST, Link

from app.audit.heads import signed_head
from app.audit.models import ChainProblem, ChainRead, ChainRows, ChainVerification, LinkRead
from app.audit.reading import chain_of, check_chain, rows_after
from app.audit.witness import fault_of, seen_by
from app.auth.access import DatabaseDep, SettingsDep, instance_id_of, requires_unlimited
from app.auth.models import AuditEventRead
from app.auth.rows import AuditChain
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import InvalidRequest
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, PageSize
from app.kit.problems import problems

router = new_router(tags=["tokens and audit"])
Auditor = Annotated[Caller, Depends(requires_unlimited(Scope.AUDIT_READ))]
ROWS_MAX = 20_000
SEQ_MAX = 2**62
AfterSeq = Annotated[int, Query(ge=0, le=SEQ_MAX, description="The place before the first row; 0: all.")]
AfterHash = Annotated[
    str | None, Query(pattern="^[0-9a-f]{64}$", description="The hash of the row at `after_seq`.")
]
RowsMax = Annotated[int, Query(ge=1, le=ROWS_MAX, description="So many rows are looked at.")]


def _read(link: Link) -> LinkRead:
    return LinkRead(seq=link.seq, hash=link.hash)


@router.get(
    "/v1/audit-chain",
    response_model=ChainRead,
    summary="Get the head of the audit chain, signed",
    operation_id="get_audit_chain",
    responses=problems(),
)
def get_chain(request: Request, caller: Auditor, database: DatabaseDep, settings: SettingsDep) -> ChainRead:
    """Keep it elsewhere: a chain that is written anew later does not hold it."""
    begin, head = chain_of(database)
    with database.reading() as db:
        chain = db.get(AuditChain, 1)
    instance_id = instance_id_of(request)
    signed = signed_head(begin, head, settings=settings, database=database, instance_id=instance_id)
    adopted = 0 if chain is None else chain.adopted_seq
    return ChainRead(anchor=_read(begin), head=_read(head), adopted_seq=adopted, signed=signed)


@router.get(
    "/v1/audit-chain/rows",
    response_model=ChainRows,
    summary="List audit rows by their places in the chain",
    operation_id="list_audit_chain_rows",
    responses=problems(),
)
def get_rows(
    caller: Auditor, database: DatabaseDep, after_seq: AfterSeq = 0, page_size: PageSize = PAGE_SIZE_DEFAULT
) -> ChainRows:
    """The oldest first, as an export has them."""
    with database.reading() as db:
        rows = rows_after(db, after_seq, limit=page_size)
    return ChainRows(items=[AuditEventRead.model_validate(row) for row in rows])


@router.get(
    "/v1/audit-chain/verification",
    response_model=ChainVerification,
    summary="Check the audit chain",
    operation_id="verify_audit_chain",
    responses=problems(),
)
def get_verification(
    caller: Auditor,
    database: DatabaseDep,
    settings: SettingsDep,
    after_seq: AfterSeq = 0,
    after_hash: AfterHash = None,
    rows_max: RowsMax = ROWS_MAX,
) -> ChainVerification:
    """Whether rows were changed, removed, inserted or moved, and whether this instance has seen others.

    A long chain is checked in several requests: the next one has `after_seq` and `after_hash` of `through`.
    """
    if (after_seq == 0) != (after_hash is None):
        raise InvalidRequest("after_seq and after_hash belong together: give both, or none")
    after = None if after_hash is None else Link(after_seq, after_hash)
    found = check_chain(database, after=after, rows_max=rows_max)
    seen = seen_by(settings.data_dir) if found.is_whole else None
    if seen is not None and seen.link != FIRST:
        with database.reading() as db:
            fault = fault_of(db, seen, now=database.now(db))
        if fault is not None:
            found.check.blame(fault.code, fault.seq, fault.detail)
    check = found.check
    return ChainVerification(
        ok=not check.faults,
        is_whole=found.is_whole,
        checked=check.checked,
        anchor=_read(found.anchor),
        head=_read(found.head),
        through=_read(check.link),
        problems=[ChainProblem(code=each.code, seq=each.seq, detail=each.detail) for each in check.faults],
        more_problems=check.more_faults,
    )
