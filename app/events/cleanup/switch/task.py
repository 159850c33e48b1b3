"""The task of a log switch: heal, start, wait for confirmations, empty the old table; resumable.

Invariants:
- while it waits it holds nothing, no connection, no lock, no claim: a cleanup of the node is able to run;
- it waits for receivers, never for a cleanup: any SYNC that all have confirmed proves what was replicated;
- the intent to start is noted before the start: an attempt after a kill knows whether it had happened;
- every step is one short transaction of the lower floor under the cluster's lock, that reads the status anew;
- the time runs from the first attempt, pauses included.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from app.events.cleanup.models import EventOverlap
from app.events.cleanup.node_claims import claim_node, give_back
from app.events.cleanup.service import target_fields
from app.events.cleanup.switch.models import SwitchAction, SwitchParams
from app.events.cleanup.switch.report import blocked_result, healed_warning, locked_by, undrained, waiting_on
from app.events.cleanup.switch.service import switch_resource
from app.events.nodes import refuse_copy
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import claim
from app.stores.rows import Store
from app.sweeps.frame import asked
from spark.events.catalog import read_catalog
from spark.events.cleaning.errors import ClusterLocked
from spark.events.cleaning.log_switch import heal_status, read_log_status, start_switch, try_finish
from spark.events.cleaning.log_tables import confirmed_bounds
from spark.events.cleaning.records import Blocked, Finished
from spark.events.records import Catalog
from spark.formats.slony import LogStatus
from spark.targets.connection import Connection

CHECKPOINT: Final = "switch"
WAIT_LEAST_S: Final = 1.0
WAIT_MOST_S: Final = 10.0
WAIT_SHARE: Final = 6.0
"""It looks again after a sixth of the time that it has waited: each second at first, then each ten."""
HEAL_TRIES_MAX: Final = 3
logger = structlog.get_logger("lethe.events")


@dataclass(slots=True)
class SwitchState:
    """Where a switch stands; kept as a checkpoint.

    Attributes:
        began_at, ends_at: of the first attempt, and when its patience ends.
        before: the status that this job found; noted before it starts a switch.
        started: whether the switch that it waits for is under way by this job.
        found_switching: the switch was under way already.
        is_patient: it has come as far as to write or to wait: other jobs are waited for from then on.
        warnings: as the result has them.
    """

    began_at: datetime
    ends_at: datetime
    before: int | None = None
    started: bool = False
    found_switching: bool = False
    is_patient: bool = False
    warnings: list[dict[str, str]] = field(default_factory=list)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "began_at": self.began_at.isoformat(),
            "ends_at": self.ends_at.isoformat(),
            "before": self.before,
            "started": self.started,
            "found_switching": self.found_switching,
            "is_patient": self.is_patient,
            "warnings": self.warnings,
        }

    @classmethod
    def load(cls, value: Mapping[str, Any]) -> "SwitchState":
        """From JSON."""
        times = {name: datetime.fromisoformat(value[name]) for name in ("began_at", "ends_at")}
        return cls(**{**value, **times})


def run_switch(context: JobContext) -> Mapping[str, Any]:
    """Switch the log tables, and return the result that clients see.

    Raises: JobSignal.
    """
    with asked(context, SwitchParams, target_fields=target_fields) as (conn, store, params):
        assert store.cluster is not None, "a store of kind SLONY names its cluster"
        return _Switch(context, conn, store, params, read_catalog(conn, store.cluster)).run()


class _Switch:
    """One attempt."""

    def __init__(
        self, context: JobContext, conn: Connection, store: Store, params: SwitchParams, catalog: Catalog
    ) -> None:
        self._context = context
        self._conn = conn
        self._store = store
        self._params = params
        self._catalog = catalog
        self._writes = False
        self._state = self._loaded()

    def run(self) -> dict[str, Any]:
        """Do what is left to do.

        Raises: JobWaiting, JobFailed, TargetError.
        """
        try:
            self._heal()
            if self._params.action is not SwitchAction.FINISH and not self._state.started:
                self._start()
            if self._params.action is SwitchAction.START:
                return self._result(self._read_status(), outcome=self._start_outcome())
            return self._finish()
        except ClusterLocked as error:
            raise self._wait(locked_by(self._conn, self._catalog)) from error

    # -- steps

    def _heal(self) -> None:
        """Repair a status that somebody's rollback left; before anything else."""
        if not read_log_status(self._conn, self._catalog).needs_healing:
            return
        with self._writing():
            healed = heal_status(self._conn, self._catalog)
        if healed is not None:
            logger.warning(
                "log status healed", store=self._store.id, before=int(healed.before), after=int(healed.after)
            )
            self._state.warnings.append(healed_warning(healed))
            self._save()

    def _start(self) -> None:
        """Start the switch, unless one is under way, or an attempt that was killed has started it."""
        status = self._read_status()
        known = self._state.before
        if known is not None and not LogStatus(known).is_switching:
            before = LogStatus(known)
            if status in (before.started, before.started.finished):
                self._note_started()
                return
        if status.is_switching:
            self._state.before, self._state.found_switching = int(status), True
            self._note_started()
            return
        self._state.before = int(status)
        self._save()
        with self._writing():
            for _ in range(HEAL_TRIES_MAX):
                self._context.check()
                started = start_switch(self._conn, self._catalog)
                if started.outcome != "NOT_CLEAN":
                    break
                self._heal()
            else:
                raise JobFailed(
                    "LOG_NOT_CLEAN",
                    f"{status.other} gets rows although the status calls it empty",
                    retryable=True,
                )
        if started.outcome == "ALREADY_SWITCHING" and started.before != LogStatus(self._state.before).started:
            self._state.found_switching = True
        logger.info(
            "log switch started", store=self._store.id, before=int(started.before), after=int(started.after)
        )
        self._note_started()

    def _note_started(self) -> None:
        self._state.started = True
        self._save()
        self._context.progress(unit="steps", done=1, total=self._steps, force=True)

    def _finish(self) -> dict[str, Any]:
        """Empty the old table, or wait for what keeps it."""
        bounds = confirmed_bounds(self._conn, self._catalog)
        look = read_log_status(self._conn, self._catalog, bounds=bounds)
        if not look.status.is_switching:
            idle = self._params.action is SwitchAction.FINISH and self._state.before is None
            return self._result(look.status, outcome="NOTHING_TO_FINISH" if idle else "FINISHED_ELSEWHERE")
        if self._state.before is None:
            self._state.before = int(look.status)
            self._save()
        held = undrained(look.other.name, look.origins)
        if held:  # no claim is needed to see that
            raise self._wait(held, blocked={"why": "NOT_DRAINED", "table": look.other.name})
        with self._writing():
            self._context.check()
            done = try_finish(self._conn, self._catalog, bounds=bounds)
        if isinstance(done, Blocked):
            raise self._wait(waiting_on(done), blocked=blocked_result(done))
        return self._finished(done)

    def _finished(self, done: Finished) -> dict[str, Any]:
        outcome = "FINISHED" if done.outcome == "FINISHED" else "FINISHED_ELSEWHERE"
        if done.index_problem is not None:
            self._state.warnings.append({"code": "PARTIAL_INDICES", "detail": done.index_problem})
        logger.info("log switch ended", store=self._store.id, outcome=outcome, emptied=done.table)
        return self._result(done.after, outcome=outcome, table=done.table)

    # -- claims and waits

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The claims of the target and of the node, for a step that writes; they stay for the next one.

        Another job's claim is waited for as a lock is, or refused.
        """
        if not self._writes:
            refuse_copy(
                self._context.database, self._context.settings, self._store, self._conn, self._catalog
            )
            queue = self._state.is_patient or self._params.overlap is EventOverlap.QUEUE
            claimed = claim(self._context, self._conn, resource=switch_resource(self._store), queue=queue)
            claim_node(self._context, self._catalog, identity=claimed.identity, queue=queue)
            self._writes = True
            self._note_patience()
        yield

    def _wait(self, reasons: Sequence[WaitingOn], *, blocked: Mapping[str, Any] | None = None) -> Exception:
        """Wait without holding anything, or give up when the time is over."""
        now, state = self._context.clock.now(), self._state
        self._note_patience()
        if self._writes:
            give_back(self._context)
        if now >= state.ends_at:
            words = "; ".join(item.ref for item in reasons)
            status = self._read_status()
            result = self._result(status, outcome="TIMED_OUT") | {"blocked": blocked}
            raise JobFailed("LOG_SWITCH_TIMEOUT", f"not done in time: {words}", retryable=True, result=result)
        waited_s = (now - state.began_at).total_seconds()
        pause_s = min(WAIT_MOST_S, max(WAIT_LEAST_S, waited_s / WAIT_SHARE))
        until = min(state.ends_at, now + timedelta(seconds=pause_s))
        shown = [item.model_copy(update={"until": state.ends_at}) for item in reasons]
        return JobWaiting(shown, not_before=until, detail="; ".join(item.ref for item in reasons))

    def _note_patience(self) -> None:
        if not self._state.is_patient:
            self._state.is_patient = True
            self._save()

    # -- state and result

    @property
    def _steps(self) -> int:
        return 2 if self._params.action is SwitchAction.FULL else 1

    def _loaded(self) -> SwitchState:
        known = self._context.checkpoint(CHECKPOINT)
        if known is not None:
            return SwitchState.load(known)
        now = self._context.clock.now()
        state = SwitchState(began_at=now, ends_at=now + self._params.timeout)
        self._context.save_checkpoint(CHECKPOINT, state.dump())
        return state

    def _save(self) -> None:
        self._context.save_checkpoint(CHECKPOINT, self._state.dump())

    def _read_status(self) -> LogStatus:
        return read_log_status(self._conn, self._catalog).status

    def _start_outcome(self) -> str:
        return "ALREADY_SWITCHING" if self._state.found_switching else "STARTED"

    def _result(self, status: LogStatus, *, outcome: str, table: str | None = None) -> dict[str, Any]:
        if outcome != "TIMED_OUT":
            self._context.progress(unit="steps", done=self._steps, total=self._steps, force=True)
        waited_s = round((self._context.clock.now() - self._state.began_at).total_seconds())
        return {
            "action": self._params.action,
            "outcome": outcome,
            "started": self._state.started and not self._state.found_switching,
            "status_before": self._state.before if self._state.before is not None else int(status),
            "status": int(status),
            "active": status.active,
            "emptied": table,
            "waited_for": f"PT{waited_s}S",
            "warnings": self._state.warnings,
        }
