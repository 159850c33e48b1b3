"""The table of verbs: everything that the service knows of a kind of job, and nothing beside it.

Invariants, asserted by `check_table` before a process starts:
- every kind of job has one row for each act, and no act has two;
- every row has a scope, a request, parameters, a result, a task, a proof of silence and a limits policy.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from app.jobs.batches.results import BatchParams, BatchResult
from app.jobs.batches.service import JOB_BATCH, Submitters, prove_children_silent, run_batch
from app.jobs.errors import JobFailed, JobKindUnknown, JobWaiting
from app.jobs.plans.away import ending
from app.jobs.plans.plans import JOB_PLAN
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import AN_HOUR
from app.jobs.running.sql_target import prove_silence
from app.jobs.running.tasks import TaskKind, TaskKinds
from app.kit.texts.distribution import installed_version
from app.stores.models import StoreKind
from app.sweeps.purging import JOB_PURGE
from app.verbs import archives, erasures, events, extinctions, feeds, purges, replications
from app.verbs.installation import require_installation
from app.verbs.verb import Carrier, Params, Plan, Recurrence, Scopes, Task, Tools, Verb

VERBS: Final = (
    *purges.VERBS,
    *erasures.VERBS,
    extinctions.EXTINCTION,
    replications.SESSION,
    replications.AUDIT,
    replications.EXPORT,
    replications.IMPORT,
    *events.VERBS,
    feeds.FEED,
    *archives.VERBS,
)
COLUMNS: Final = {
    "stores": "the kinds of stores that are asked for it",
    "scope": "the scope that a token needs to start it",
    "request": "the body of its POST",
    "params": "the model of its parameters",
    "result": "the model of its result",
    "task": "the function that runs it",
    "proof": "the proof that nothing of it writes any more",
    "limits": "what holds it to the limits of a store",
    "throttled_at": "the kinds of stores at which a throttle acts on it",
}
"""What no verb may lack, and what it is."""


class VerbIncomplete(Exception):
    """The table of verbs lacks something: a fault of this version."""


def check_table(verbs: Iterable[Verb]) -> None:
    """Return when every verb has all that it needs.

    Raises: VerbIncomplete: naming the verb and the column.
    """
    seen: dict[str, list[frozenset[str]]] = {}
    for verb in verbs:
        for column, what in COLUMNS.items():
            if getattr(verb, column) is None:
                raise VerbIncomplete(f"job kind {verb.name} lacks `{column}` in app/verbs: {what}")
        others = seen.setdefault(verb.kind, [])
        if any(not verb.acts or not acts or verb.acts & acts for acts in others):
            raise VerbIncomplete(f"job kind {verb.name} has two rows in app/verbs: leave one")
        others.append(verb.acts)


# -- which row


def verb_of(kind: str, params: Params, verbs: Iterable[Verb] = VERBS) -> Verb:
    """The verb of a job.

    Raises: JobKindUnknown: a kind, or an act of it, that this version does not do.
    """
    for verb in verbs:
        if verb.kind == kind and (not verb.acts or params.get("kind") in verb.acts):
            return verb
    raise JobKindUnknown(f"this version does not know what a job of kind {kind} needs to be started")


def _planned(params: Params) -> tuple[str, Params]:
    """By what a PLAN job plans; a purge's parameters do not say."""
    kind = str(params.get("plan") or JOB_PURGE)
    if verb_of(kind, params).plan is None:
        raise JobKindUnknown(f"this version does not plan jobs of kind {kind}")
    return kind, params


def _batched(params: Params) -> tuple[str, Params]:
    kind = str(params.get("kind", ""))
    if kind not in SUBMITTERS:
        raise JobKindUnknown(f"this version does not submit jobs of kind {kind} for many stores")
    return kind, params.get("params", {})


def scopes_of(kind: str, params: Params) -> Scopes:
    """What a token needs to start a job again: what the request that made it needed.

    Raises: JobKindUnknown: a kind that this version does not start.
    """
    carrier = CARRIERS.get(kind)
    if carrier is not None:
        return scopes_of(*carrier.carried(params))
    verb = verb_of(kind, params)
    return frozenset({verb.scope}) | verb.more_scopes(params)


def bounds_of(kind: str, params: Params, store: StoreKind | None) -> frozenset[str]:
    """Which bounds of `PATCH throttle` act on a job; none: it takes no throttle.

    Args:
        store: of the job; None: of a batch, whose children have stores.
    Raises: JobKindUnknown: a kind that this version does not start.
    """
    if kind == JOB_PLAN:
        return frozenset()
    carrier = CARRIERS.get(kind)
    if carrier is not None:
        return bounds_of(*carrier.carried(params), store)
    verb = verb_of(kind, params)
    acts = bool(verb.throttled_at) if store is None else store in verb.throttled_at
    return verb.bounds if acts else frozenset()


def obeys_windows(kind: str, params: Params) -> bool:
    """Whether windows hold a job: no plan, no parent of many (its children are held), nothing unknown."""
    if kind in CARRIERS:
        return False
    try:
        return verb_of(kind, params).obeys_windows
    except JobKindUnknown:
        return False


def removes(kind: str, params: Params) -> bool:
    """Whether a job removes something, by itself or by its children; no plan, nothing unknown."""
    carrier = None if kind == JOB_PLAN else CARRIERS.get(kind)
    with suppress(JobKindUnknown):
        return obeys_windows(*((kind, params) if carrier is None else carrier.carried(params)))
    return False


# -- what runs


def _plan_task(tools: Tools) -> Task:
    def run(context: JobContext) -> Mapping[str, Any]:
        try:
            plan = verb_of(*_planned(context.job.params)).plan
        except JobKindUnknown as error:
            detail = "this version does not know what the job is to plan"
            raise JobFailed(error.code, detail) from error
        assert plan is not None, "looked at by _planned"
        require_installation(context)
        return ending(plan.task(tools), context)

    return run


def _task_of(kind: str, tools: Tools) -> TaskKind:
    """The task of all acts of a kind: the row is looked up when a job runs."""

    def run(context: JobContext) -> Mapping[str, Any]:
        try:
            verb = verb_of(kind, context.job.params)
        except JobKindUnknown as error:
            raise JobFailed(error.code, error.detail) from error
        require_installation(context)
        return verb.task(tools)(context)

    def prove(context: JobContext) -> None:
        try:
            verb = verb_of(kind, context.job.params)
        except JobKindUnknown as error:  # of a later version: what it writes is not known here
            raise JobWaiting([], not_before=None, detail=error.detail) from error
        verb.proof(context)

    of_kind = {verb.wait_max for verb in VERBS if verb.kind == kind}
    assert len(of_kind) == 1, "all acts of a kind wait as long"
    return TaskKind(run=run, prove_silence=prove, wait_max=of_kind.pop())


def task_kinds(tools: Tools) -> TaskKinds:
    """Job kind to its task."""
    installed_version()  # while it is surely that of this process
    kinds = {verb.kind: _task_of(verb.kind, tools) for verb in VERBS}
    carriers = {
        carrier.kind: TaskKind(
            run=carrier.task(tools), prove_silence=carrier.proof, wait_max=carrier.wait_max
        )
        for carrier in CARRIERS.values()
    }
    return kinds | carriers


def recurrences(verbs: Iterable[Verb] = VERBS) -> list[Recurrence]:
    """What the service submits by itself."""
    return [verb.recurrence for verb in verbs if verb.recurrence is not None]


SUBMITTERS: Submitters = {verb.kind: (verb.scope, verb.batch) for verb in VERBS if verb.batch is not None}
SCHEDULED: Submitters = {
    **SUBMITTERS,
    **{verb.kind: (verb.scope, verb.scheduled) for verb in VERBS if verb.scheduled is not None},
}
"""What may come by a schedule; over labels only what a batch is made of."""
PLANS: Final[tuple[Plan, ...]] = tuple(verb.plan for verb in VERBS if verb.plan is not None)
CARRIERS: Final = {
    carrier.kind: carrier
    for carrier in (
        Carrier(
            kind=JOB_PLAN,
            carried=_planned,
            params=[plan.params for plan in PLANS],
            result=[plan.result for plan in PLANS],
            task=_plan_task,
            proof=prove_silence,
            wait_max=AN_HOUR,
        ),
        Carrier(
            kind=JOB_BATCH,
            carried=_batched,
            params=[BatchParams],
            result=[BatchResult],
            task=lambda _tools: partial(run_batch, submitters=SUBMITTERS),
            proof=prove_children_silent,
        ),
    )
}
