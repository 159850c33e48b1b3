"""`/v1/replication:decide`: the decision core on given vectors, to test, to explain, to debug."""

from typing import Annotated

from fastapi import Body, Depends

from app.auth.access import requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.decide.models import REQUEST_EXAMPLES, AnchorRead, DecideRequest, DecisionRead
from app.replication.decide.question import read_question
from spark.replication.supplier.decide import Decision, Strategy, decide

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]


def _shown(decision: Decision) -> DecisionRead:
    anchor = decision.anchor
    return DecisionRead(
        outcome=decision.outcome.value,
        need=list(decision.need),
        blocked_rids=list(decision.blocked_rids),
        reason=None if decision.reason is None else decision.reason.value,
        anchor=None if anchor is None else AnchorRead(csn=anchor.csn, inclusive=anchor.inclusive),
        windows={str(rid): (window.after, window.upto) for rid, window in decision.windows.items()},
    )


@router.post(
    "/v1/replication:decide",
    response_model=DecisionRead,
    summary="Decide what a consumer needs",
    operation_id="decide_replication",
    responses=problems(),
)
def post_decide(
    body: Annotated[DecideRequest, Body(openapi_examples=REQUEST_EXAMPLES)], caller: Reader
) -> DecisionRead:
    """Compute on the vectors of the body alone; no store is asked and nothing is changed.

    WINDOW tells which changes of each replica are sent. CLASSIC tells, as 389 Directory Server does, where
    reading of the changelog begins. NEEDS_TOTAL holds for both.
    """
    question = read_question(body)
    decision = decide(
        question.supplier, question.consumer, strategy=Strategy(body.strategy), previous=question.previous
    )
    return _shown(decision)
