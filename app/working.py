"""What `serve` and `worker` share: an instance, its runner, its Spark and its housekeeping."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import structlog
from sqlmodel import col, select

from app.archives.homes import bring_home
from app.audit.witness import Witness
from app.backups.settling import keep_backups
from app.clock import Clock, SystemClock
from app.db import Database, MetadataClock
from app.erase.certificates.certificate import issue_missing
from app.erase.cycle.attempt import Workshop
from app.erase.errors import SigningKeyUnusable
from app.errors import MetadataBusy, MetadataUnavailable
from app.extinction.log_reading import LogReading
from app.extinction.scan.settling import Settling
from app.fleet.checker import Checker
from app.fleet.clock_changes import reckon_anew
from app.handlers import STORE_HOOKS, is_ahead, task_kinds
from app.hooks.deliverer import Deliverer
from app.idle import agreements_rest_s, count_stores, eraser_rest_s, first_due, is_anything_held
from app.jobs.engines.of_process import engines_of, spark_service
from app.jobs.engines.spark_hands import HandsSource
from app.jobs.running.claims import Claimer
from app.jobs.running.instances import InstanceLock, Namesake, heartbeat, register_instance
from app.jobs.running.newer import labels_known
from app.jobs.running.recovery import tell_ahead
from app.jobs.running.runner import Runner, survive
from app.jobs.running.suspension import store_key
from app.jobs.service import wake
from app.kit.ids import new_id
from app.kit.rests import Rest
from app.kit.texts.distribution import installed_version
from app.news.gate import Gate
from app.news.listening import Ear
from app.purge.models import PurgeKind
from app.replication.replica.replicas import is_any_supplied
from app.retention import PASSES, forget_rows, remove_expired_archives
from app.schedules.scheduler import Scheduler
from app.schedules.windows.brake import WindowBrake
from app.schema_watch import SchemaWatch
from app.settings import Settings
from app.stores.models import ExtinctionFilterMode, StoreKind
from app.stores.resting import end_past_suspensions, suspended_stores
from app.stores.rows import Store
from app.stores.service import parallel_limits
from app.verbs.table import obeys_windows, recurrences
from app.verbs.verb import Loop

HEARTBEAT_S = 15.0
STOP_BUDGET_S = 13.5
"""For jobs and Spark together, of the 15 s that a stop may take."""
START_RETRY_S = 1.0
SETTLING_TICK_S = 3.0
LOGS_TICK_S = 2.0
HOUSEKEEPING_EVERY_BEATS = 20
BEATS_PER_HEARTBEAT = 2
"""Half a minute apart: who is silent for the time of a lease is taken for dead."""
EPOCH_STORES_MAX = 200
IS_FILTERED = col(Store.extinction_filter) == ExtinctionFilterMode.INSTALLED
logger = structlog.get_logger("lethe.server")


class Worker:
    """What `serve` and `worker` share: the instance, its runner and its housekeeping."""

    def __init__(
        self, settings: Settings, database: Database, *, role: str, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.database = database
        self.role = role
        self.lock = InstanceLock(settings.data_dir)
        self._stopped = threading.Event()
        self.clock = clock = MetadataClock(database, clock or SystemClock())
        self.changed: Callable[[str], None] = lambda _job_id: None
        self.schema = SchemaWatch(database)
        self._witness = Witness(
            database, settings.data_dir, lambda store: is_ahead(database, store, settings)
        )
        self.spark = spark_service(settings, clock, instance_id=self.lock.id)
        workshop = Workshop(HandsSource(settings, self.spark).take, process=new_id("prc"))
        self.runner = Runner(
            claimer=_claimer(settings, self.lock.id),
            kinds=task_kinds(engines_of(settings, clock, self.spark), workshop),
            database=database,
            settings=settings,
            clock=clock,
            parallel_limits=parallel_limits,
            suspended_stores=lambda db: suspended_stores(db, now=database.now(db)),
            openings=WindowBrake(database, clock, is_held=obeys_windows),
            changed=lambda job_id: self.changed(job_id),
        )
        self.ear = None
        if not database.is_sqlite:
            self.ear = Ear(database.engine, database.heard, monotonic=clock.boottime_s)
        database.told = self.runner.wake
        gate = partial(Gate, database.news, clock.boottime_s)
        self._gates = {loop: gate() for loop in Loop}
        self._beat_gate, self._settling_gate, self._logs_gate = gate(), gate(), gate()
        self._audit_gate = gate()
        self._submitters = [(each.loop, each.make()) for each in recurrences()]
        self._replicas = self._filters = 0
        self._agreements_rest_s: float | None = 0.0
        self._replicas_rest: dict[str, Rest] = {}
        self._keeper = threading.Thread(target=self._keep, name="lethe-housekeeping", daemon=True)
        self._eraser = threading.Thread(target=self._look_at_erasers, name="lethe-eraser", daemon=True)
        self._supplier = threading.Thread(target=self._look_at_agreements, name="lethe-supplier", daemon=True)
        self._settler = threading.Thread(target=self._settle_extinctions, name="lethe-settler", daemon=True)
        self._deliverer = Deliverer(database, settings, instance_id=self.lock.id)
        self._scheduler = Scheduler(database, settings, clock, self._tell, partial(reckon_anew, database))
        self._timer = threading.Thread(target=self._look_at_schedules, name="lethe-schedules", daemon=True)
        self._checker = Checker(database, settings, clock, STORE_HOOKS.checks)
        self._logs_rest: dict[str, Rest] = {}
        self._reader = threading.Thread(target=self._read_logs, name="lethe-logs", daemon=True)

    def start(self) -> None:
        """Register, recover, claim."""
        with self.database.transaction() as db:
            register_instance(
                db,
                self.lock.id,
                role=self.role,
                version=installed_version(),
                labels=self.settings.labels,
                now=self.database.now(db),
            )
        self._witness.begin()
        keep_backups(self.database, self.settings, clock=self.clock)
        bring_home(self.database, self.settings, instance_id=self.lock.id, is_start=True)
        self.runner.start()
        if self.spark is not None:
            self.spark.start()
        if self.ear is not None:
            self.ear.start()
        self._keeper.start()
        self._eraser.start()
        self._supplier.start()
        self._settler.start()
        self._reader.start()
        self._deliverer.start()
        self._checker.start()
        self._timer.start()
        logger.info("started", role=self.role, instance=self.lock.id, labels=self.settings.labels)

    def start_when_possible(self) -> None:
        """Start, waiting for a metadata database that is away, and for the end of a process with our id."""
        namesake = Namesake(self.lock.id)
        while not self._stopped.is_set():
            try:
                if self._must_wait_for(namesake):
                    self._stopped.wait(START_RETRY_S)
                    continue
                self.start()
            except (MetadataUnavailable, MetadataBusy) as error:
                logger.warning("metadata away", error=error.detail)
                self._stopped.wait(START_RETRY_S)
            else:
                return

    def _must_wait_for(self, namesake: Namesake) -> bool:
        """Whether another process may be at work under our id. Metadata in a file are of one machine."""
        if self.database.is_sqlite:
            return False
        with self.database.reading() as db:
            return namesake.may_live(db, now=self.database.now(db))

    def stop(self) -> None:
        """Come to a safe point and give the leases back."""
        begun = time.monotonic()
        stopped = self.runner.stop(self.settings.stop_grace_s)
        if not stopped:
            logger.warning("jobs did not stop in time; their leases will run out")
        if self.spark is not None:
            self.spark.stop(STOP_BUDGET_S - (time.monotonic() - begun))
        self._stopped.set()
        self._deliverer.stop()
        self._checker.stop()
        if self.ear is not None:
            self.ear.stop()
        for thread in (self._keeper, self._eraser, self._supplier, self._settler, self._reader, self._timer):
            if thread.is_alive():
                thread.join(2.0)
        self._deliverer.join(2.0)
        survive(partial(self._beat, stopped=True), "metadata away")
        self.lock.release()

    def _beat(self, *, stopped: bool = False) -> None:
        with self.database.transaction(is_news=stopped) as db:
            heartbeat(db, self.lock.id, now=self.database.now(db), stopped=stopped)

    def _mind_the_clock(self) -> None:
        """What ends by time: rests of stores, leases of backups. Without any of them only news matters."""
        with self.database.reading() as db:
            rests = bool(suspended_stores(db, now=datetime.min.replace(tzinfo=UTC)))
        if rests:
            with self.database.transaction() as db:
                now = self.database.now(db)
                for store in end_past_suspensions(db, now=now):
                    wake(db, store_key(store), now=now)
        keep_backups(self.database, self.settings, clock=self.clock)
        with self.database.reading() as db:
            holds = is_anything_held(db)
        self._beat_gate.rests_for(HEARTBEAT_S / 2 if rests or holds else None)

    def _keep(self) -> None:
        beats = 0
        while not self._stopped.wait(HEARTBEAT_S):
            if beats % BEATS_PER_HEARTBEAT == 0:
                survive(self._beat, "metadata away")
                survive(self.schema.look, "metadata away")
                self._pass(self._audit_gate, self._witness.look)
            self._pass(self._beat_gate, self._mind_the_clock)
            self._pass(self._gates[Loop.BEAT], self._submit_beat)
            if self.spark is not None:
                self.spark.retry_master()
            beats += 1
            survive(partial(self._clean, beats % HOUSEKEEPING_EVERY_BEATS), "housekeeping failed")

    def _pass(self, gate: Gate, look: Callable[[], None]) -> None:
        """Look where the gate opens; a look that fails is made again."""

        def pass_on() -> bool:
            look()
            return True

        if gate.opens() and not survive(pass_on, "metadata away"):
            gate.forget()

    def _submit_beat(self) -> None:
        """What recurs by a time of its own: until the next of them only news matters."""
        self._submit_due(Loop.BEAT)
        with self.database.reading() as db:
            due, now = first_due(db), self.database.now(db)
        if due is not None:
            self._gates[Loop.BEAT].rests_for((due - now).total_seconds())

    def _submit_erasures(self) -> None:
        self._submit_due(Loop.ERASER)
        with self.database.reading() as db:
            self._gates[Loop.ERASER].rests_for(eraser_rest_s(db, now=self.database.now(db)))

    def _submit_sessions(self) -> None:
        gate = self._gates[Loop.SUPPLIER]
        if gate.has_news:
            with self.database.reading() as db:
                self._agreements_rest_s = agreements_rest_s(db)
        self._submit_due(Loop.SUPPLIER)
        gate.rests_for(self._agreements_rest_s)

    def _submit_due(self, loop: Loop) -> None:
        """Submit the jobs of this loop that recur and are due by the metadata's clock, as schedules are."""
        now = self._now()
        submitters = [submit for where, submit in self._submitters if where is loop]
        made = [submit(self.database, self.settings, now=now, changed=self._tell) for submit in submitters]
        if any(made):
            self.runner.wake()

    def _now(self) -> datetime:
        """By the metadata database's clock: instances whose own ones differ agree on what is due."""
        with self.database.reading() as db:
            return self.database.now(db)

    def _look_at_erasers(self) -> None:
        """Every few seconds: which cycles are due, and which parameters of erasers have changed."""
        while not self._stopped.wait(self.settings.erasure_tick_s):
            self._pass(self._gates[Loop.ERASER], self._submit_erasures)

    def _look_at_agreements(self) -> None:
        """Every second or so: which sessions are due; on its own, for targets may be slow to answer."""
        while not self._stopped.wait(self.settings.replication_tick_s):
            self._pass(self._gates[Loop.SUPPLIER], self._submit_sessions)

    def _settle_extinctions(self) -> None:
        """At the start and every few seconds: extinctions that a crash or a peer has left without a job."""
        while True:
            if is_any_supplied():
                self._settling_gate.forget()
            self._pass(self._settling_gate, self._settle_extinctions_once)
            if self._stopped.wait(SETTLING_TICK_S):
                return

    def _settle_extinctions_once(self) -> None:
        now = self._now()
        if Settling(self.database, self.settings, now, self._tell, self._replicas_rest).run():
            self.runner.wake()
        if self._settling_gate.has_news:
            with self.database.reading() as db:
                self._replicas = count_stores(db, StoreKind.REPLICA)
        rested = [rest.until for rest in self._replicas_rest.values()]
        if len(rested) < self._replicas:  # some cannot be reached from here, or rest themselves
            self._settling_gate.rests_for(0.0)
        elif rested:
            self._settling_gate.rests_for((min(rested) - now).total_seconds())

    def _look_at_schedules(self) -> None:
        """Sleep until the next schedule is due, and fire it; seconds at most, for others write them too."""
        while not self._stopped.wait(self._scheduler.rest_s):
            if survive(self._scheduler.look, "metadata away"):
                self.runner.wake()

    def _read_logs(self) -> None:
        """At the start and every few seconds: what JE has discarded; on its own, for logs may be long."""
        while True:
            self._pass(self._logs_gate, self._read_logs_once)
            if self._stopped.wait(LOGS_TICK_S):
                return

    def _read_logs_once(self) -> None:
        LogReading(self.database, self.settings, self._now(), self._logs_rest, self._tell).run()
        if self._logs_gate.has_news:
            with self.database.reading() as db:
                self._filters = count_stores(db, StoreKind.JE, IS_FILTERED)
        self._logs_gate.rests_for(0.0 if self._filters else None)

    def _tell(self, changed: str) -> None:
        self.changed(changed)

    def _clean(self, turn: int) -> None:
        """A piece at each beat, that no minute has all of it; nothing at most beats."""
        pieces: list[Callable[[], object]] = [
            self._certify,
            *(partial(forget_rows, self.database, [name]) for name in PASSES),
            self._end_archives,
        ]
        try:
            if 0 < turn <= len(pieces):
                pieces[turn - 1]()
        except OSError as error:  # trouble with the disk is no bug
            logger.warning("housekeeping failed", error=str(error))

    def _end_archives(self) -> None:
        bring_home(self.database, self.settings, instance_id=self.lock.id, is_start=False)
        remove_expired_archives(self.database, self.settings, instance_id=self.lock.id)

    def _certify(self) -> None:
        """Sign what nobody has asked for yet: the rows of a cycle go before its certificate does."""
        try:
            issue_missing(self.database, self.settings, instance_id=self.lock.id, now=self._now())
        except SigningKeyUnusable as error:
            logger.error("certificates cannot be signed", error=error.detail)

    def every_store_is_ahead(self) -> bool:
        """Whether each registered store has seen a greater epoch than this metadata gave; it is told then."""
        with self.database.reading() as db:
            stores = db.exec(select(Store).limit(EPOCH_STORES_MAX)).all()
        if not stores or not all(is_ahead(self.database, store, self.settings) for store in stores):
            return False
        for store in stores:
            tell_ahead(self.database, store.id)
        return True


def _claimer(settings: Settings, instance_id: str) -> Claimer:
    return Claimer(
        instance_id=instance_id,
        labels=frozenset({*settings.labels, *labels_known(PurgeKind), f"instance/{instance_id}"}),
        lease_ttl_s=settings.lease_ttl_s,
        crash_loop_max=settings.crash_loop_max,
        recovered_at_once=settings.runner_jobs_max,
    )
