"""The wire model: replicas, sessions and a bad network under one scheduler that is drawn from a seed.

A trial has a wild part, in which anything may come next, and a quiet part, in which sessions run without
faults until nothing is missing, with an admin who starts total initialisations where a session says that one
is needed, and who lets go only what no replica can give back. At the end every answered change is in every
replica, or was let go by name.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from spark.formats.csn import Csn
from spark.replication import agreements
from spark.replication.consumer import apply
from spark.replication.errors import ReplicaNotWhole
from spark.replication.records import ReplicaStatus, SessionMode
from spark.replication.replica import appending, local_write, replica, restored
from spark.replication.sessions import session
from spark.replication.supplier.decide import Strategy
from spark.replication.trimming import units as trim
from spark.targets.errors import TargetUnreachable
from tests.spark.replication.broken_rule import broken_rule
from tests.spark.replication.wire_model_session import (
    Ended,
    Flight,
    InjectedFault,
    Link,
    Record,
    Rules,
    attempt,
)
from tests.spark.replication.wire_model_site import (
    GENERATION,
    START_S,
    Oracle,
    Pending,
    Site,
    Violation,
    check,
    fast_folder,
)

KEYS = [b"k%d" % number for number in range(6)]
QUIET_ROUNDS = 40
QUIET_STEPS = 1_500
FAULT_POINTS = (
    (apply, "put_entries"),
    (apply, "advance_ruv"),
    (apply, "save_session"),
    (session, "save_session"),
    (appending, "save_generator"),
)


@dataclass(frozen=True)
class Profile:
    """What may happen in a trial."""

    steps: int = 80
    put_backs: int = 0
    clocks: bool = False
    leaps: bool = False
    totals: bool = False
    discards: bool = False
    trims: bool = True
    classic: float = 0.3
    loss: float = 0.05
    faults: float = 0.04
    deaths: float = 1.0
    sites: int | None = None


def profile_of(random: Random) -> Profile:
    """A mixture: most trials have a few troubles, some have all."""
    return Profile(
        put_backs=random.choice((0, 0, 0, 1, 2)),
        clocks=random.random() < 0.4,
        leaps=random.random() < 0.1,
        totals=random.random() < 0.4,
        discards=random.random() < 0.1,
        trims=random.random() < 0.7,
    )


@dataclass
class Told:
    """What a trial went through, to see that the model reaches it."""

    happened: Counter[str] = field(default_factory=Counter)
    trail: list[str] = field(default_factory=list)


class World:
    """One trial.

    Args:
        seed: decides everything.
        alter: makes the rules of a naive supplier.
    """

    def __init__(self, seed: int, folder: Path, *, profile: Profile | None, rules: Rules | None) -> None:
        self.random = Random(seed)
        self.profile = profile or profile_of(self.random)
        self.oracle = Oracle()
        self.told = Told()
        self.armed: tuple[Any, str] | None = None
        self.put_backs = self.profile.put_backs
        self.sessions = 0
        count = self.profile.sites or self.random.choice((2, 2, 3, 3, 4))
        self.sites = [
            Site(rid, folder / f"{rid}.db", self.oracle, self._generation(rid)) for rid in range(1, count + 1)
        ]
        for site in self.sites:
            site.create()
        self.links = [self._link(*pair, rules or Rules()) for pair in self._pairs(count)]
        self.ring = self.links[:count]
        self.early: set[tuple[str, int, str]] = set()
        """Purge points of a changelog that was trimmed before it knew an agreement."""
        for link in self.links:
            if self.random.random() < 0.85:
                agreements.register_agreement(link.supplier.conn, link.agreement, now_s=START_S)
        self.recovered: set[int] = set()
        self.pending: dict[int, list[Pending]] = {site.rid: [] for site in self.sites}
        self.requests = 0

    def _generation(self, rid: int) -> str | None:
        return GENERATION if rid == 1 or self.random.random() < 0.8 else None

    def _pairs(self, count: int) -> list[tuple[int, int]]:
        """A ring, so that everything reaches everybody, and some more."""
        ring = [(at, (at + 1) % count) for at in range(count)]
        others = [(one, two) for one in range(count) for two in range(count) if one != two]
        more = [pair for pair in others if pair not in ring and self.random.random() < 0.4]
        return ring + more

    def _link(self, one: int, two: int, rules: Rules) -> Link:
        name = f"agr_{one + 1}_{two + 1}"
        return Link(name, self.sites[one], self.sites[two], self.random, rules, loss=self.profile.loss)

    # -- the wild part

    def run(self) -> None:
        """Both parts.

        Raises: Violation.
        """
        acts: list[tuple[float, Callable[[], str]]] = [
            (7, self.write),
            (14, self.work),
            (16, self.network),
            (2 if self.profile.trims else 0, self.trim),
            (0.8 * self.profile.deaths, self.restart),
            (0.5 * self.profile.deaths, self.die),
            (0.6, self.expire),
            (0.7 if self.put_backs else 0, self.back_up),
            (0.6 if self.put_backs else 0, self.put_back),
            (0.8 if self.profile.clocks else 0, self.turn_clock),
        ]
        weights = [weight for weight, _ in acts]
        with self._faults():
            for _ in range(self.profile.steps):
                [(_, act)] = self.random.choices(acts, weights)
                self.note(act())
                if self.random.random() < 0.5:
                    for site in self.sites:
                        site.clock_s += 1
            self.heal()
            is_settled = self.settle()
        if is_settled:
            self.judge()

    def note(self, what: str) -> None:
        if what:
            self.told.happened[what.split(" ")[0]] += 1
            self.told.trail.append(what)

    def write(self) -> str:
        """A writer begins, or one that waits is answered, or not."""
        site = self.random.choice(self.sites)
        if site.state().replica.generation is None:
            return ""  # two generations would never become one
        waiting = self.pending[site.rid]
        if waiting and self.random.random() < 0.6:
            request = waiting.pop(self.random.randrange(len(waiting)))
        else:
            request = self._request()
            if self.random.random() < 0.25:
                request.expected = site.remember()
                waiting.append(request)
                return f"WAITS {site.name}"
        dies = self.random.random() < 0.1
        with self._maybe_armed(FAULT_POINTS[4:]):
            outcome = site.write(request, dies=dies)
        if outcome == "UNANSWERED" or self.random.random() < 0.05:
            waiting.append(Pending(request.rows, request.key))
        self._check(site)
        return f"{outcome} {site.name} {site.memory}"

    def _request(self) -> Pending:
        self.requests += 1
        rows = []
        for number in range(self.random.choice((1, 1, 1, 2, 3))):
            is_delete = self.random.random() < 0.2
            rows.append((self.random.choice(KEYS), None if is_delete else b"%d/%d" % (self.requests, number)))
        return Pending(rows, local_write.RequestKey(f"key{self.requests}", str(rows)))

    def work(self) -> str:
        """One step of a supplier."""
        link = self.random.choice(self.links)
        if link.steps is None:
            self._begin(link)
        outcome = ""
        with self._maybe_armed(FAULT_POINTS[3:4]):
            for _ in range(self.random.choice((1, 1, 2, 4))):
                outcome = outcome or self.step(link)
                if link.steps is None:
                    break
        self._check(link.supplier)
        self._check(link.consumer)
        return outcome

    def _begin(self, link: Link) -> None:
        record = link.record
        if record is None:
            is_total = self.profile.totals and self.random.random() < 0.25
            mode = SessionMode.TOTAL if is_total else SessionMode.INCREMENTAL
            discard = self.profile.discards and self.random.random() < 0.3
            link.record = self.record(mode, discard=discard)
        link.steps = attempt(link)

    def record(self, mode: SessionMode, *, discard: bool = False) -> Record:
        """A new session."""
        self.sessions += 1
        is_classic = self.random.random() < self.profile.classic
        strategy = Strategy.CLASSIC if is_classic else Strategy.WINDOW
        return Record(f"rps_{self.sessions:04d}", mode, strategy, discard)

    def step(self, link: Link) -> str:
        """Go on with a session; how it ended, if it did."""
        assert link.steps is not None
        try:
            next(link.steps)
        except Ended as ended:
            link.steps = None
            if ended.outcome not in ("UNANSWERED", "BUSY") or self.random.random() < 0.3:
                link.record = None
            return f"{ended} {link.agreement}"
        except TargetUnreachable:  # its target was put back under it
            link.drop()
            return f"CUT_OFF {link.agreement}"
        return ""

    def network(self) -> str:
        """A batch arrives, or its answer does not, or it arrives once more, or a late one does."""
        link = self.random.choice(self.links)
        ghosts = link.ghosts
        if ghosts and self.random.random() < 0.2:
            flight = ghosts.pop(self.random.randrange(len(ghosts)))
            link.deliver(Flight(flight.ticket, flight.batch))
            self._check(link.consumer)
            return f"GHOST {link.agreement} {flight.ticket}"
        waiting = [flight for flight in link.flights if flight.is_open]
        if not waiting:
            return ""
        flight = self.random.choice(waiting[:1] * 3 + waiting)
        return self._arrives(link, flight)

    def _arrives(self, link: Link, flight: Flight) -> str:
        chance = self.random.random()
        if chance < link.loss:
            flight.attempts += 1
            return f"LOST_REQUEST {link.agreement}"
        with self._maybe_armed(FAULT_POINTS[:3]):
            link.deliver(flight)
        self._check(link.consumer)
        if chance < 2 * link.loss:
            flight.answer = None
            return f"LOST_REPLY {link.agreement} {flight.ticket}"
        if chance < 3 * link.loss:
            link.ghosts.append(Flight(flight.ticket, flight.batch))
            return f"TWICE {link.agreement} {flight.ticket}"
        return f"BATCH {link.agreement} {flight.ticket} {flight.trouble or flight.answer}"

    def trim(self) -> str:
        """A purge CHANGELOG: everything that may go by age, or some by count."""
        site = self.random.choice(self.sites)
        by_count = self.random.random() < 0.5
        rules = trim.TrimRules(None, self.random.randint(1, 5)) if by_count else trim.TrimRules(2**40)
        walk, rows = trim.TrimWalk(rules), 0
        with suppress(ReplicaNotWhole):
            while spans := walk.next_spans(site.conn, now_s=site.clock_s, rows_max=self.random.randint(1, 4)):
                for span in spans:
                    unit = trim.TrimUnit("job", span, 1, "changelog", has_ledger=False)
                    done = trim.run_trim(site.conn, unit)
                    walk.note(span, done.rows)
                    rows += done.rows
                self._check_floors(site)
                if self.random.random() < 0.3:
                    break
        self._check(site)
        return f"TRIMMED {site.name} {rows}" if rows else ""

    def _check_floors(self, site: Site) -> None:
        """Nothing went that a consumer of this replica has never acknowledged."""
        purged = replica.read_vectors(site.conn).purged
        if self.oracle.lines:
            return
        known = {each.agreement_id for each in agreements.read_agreements(site.conn)}
        for link in self.links:
            if link.supplier is not site:
                continue
            for rid, csn in purged.items():
                # A replica that was copied has never logged what came before.
                if csn <= link.told.get(rid, "") or csn <= site.copied.get(rid, ""):
                    continue
                if link.agreement in known and (link.agreement, rid, csn) not in self.early:
                    raise Violation("TRIMMED_TOO_FAR", f"{site.name} {rid} {csn} {link.agreement}")
                self.early.add((link.agreement, rid, csn))

    def restart(self) -> str:
        """A service ends and comes up again."""
        site = self.random.choice(self.sites)
        self._end_sessions_of(site)
        site.stop()
        site.start()
        self._check(site)
        return f"RESTART {site.name}"

    def _end_sessions_of(self, site: Site) -> None:
        for link in self.links:
            if link.supplier is site:
                link.drop()

    def die(self) -> str:
        """A supplier's process ends; another one goes on with its session."""
        link = self.random.choice(self.links)
        was_at_work = link.steps is not None
        link.drop()
        return f"DIED {link.agreement}" if was_at_work else ""

    def expire(self) -> str:
        """A lease runs out."""
        site = self.random.choice(self.sites)
        held = site.conn.execute_count(
            "update replica_session set expires_at_s = 1 where session_id is not null"
        )
        return f"EXPIRED {site.name}" if held else ""

    def back_up(self) -> str:
        site = self.random.choice(self.sites)
        site.back_up()
        return f"BACKUP {site.name}"

    def put_back(self) -> str:
        """A target is put back from an older copy."""
        able = [site for site in self.sites if site.backups]
        if not able or not self.put_backs:
            return ""
        self.put_backs -= 1
        site = self.random.choice(able)
        if self.random.random() < 0.8:
            self._end_sessions_of(site)
        site.put_back(self.random.choice(site.backups))
        self._check(site)
        return f"PUT_BACK {site.name} {site.state().replica}"

    def turn_clock(self) -> str:
        site = self.random.choice(self.sites)
        far = 2 * 86_400 if self.profile.leaps and self.random.random() < 0.3 else 7_200
        site.clock_s += self.random.randint(-far, far)
        site.clock_s = max(site.clock_s, START_S - 80_000)
        return f"CLOCK {site.name}"

    # -- the quiet part

    def heal(self) -> None:
        """Clocks are right, services are up, no request is under way; time has passed over every leap."""
        self.note("QUIET")
        now_s = max(
            [START_S + 1_000]
            + [site.clock_s for site in self.sites]
            + [site.state().generator.timestamp for site in self.sites]
            + [Csn(csn).timestamp for csn in self.oracle.written]
        )
        for link in self.links:
            link.drop()
            link.loss = 0.0
        for site in self.sites:
            site.clock_s = now_s + 10
            site.stop()
            site.start()
            site.conn.execute("update replica_session set expires_at_s = 1 where session_id is not null")
            site.conn.execute("update replica_session set supplies = null")
        for link in self.links:
            for flight in link.ghosts:
                link.deliver(flight)
                self._check(link.consumer)
            link.ghosts = []

    def settle(self) -> bool:
        """Sessions until every one says that nothing is missing; False: no replica is whole any more.

        Raises: Violation: it never ends.
        """
        wanted: dict[str, tuple[SessionMode, bool]] = {}
        stills = 0
        for _ in range(QUIET_ROUNDS):
            before = [site.held() for site in self.sites]
            outcomes = {
                link.agreement: self.finish(link, *wanted.pop(link.agreement, _PLAIN)) for link in self.links
            }
            self.note(f"ROUND {outcomes}")
            after = [site.held() for site in self.sites]
            is_still = after == before
            is_level = all(held.status == ReplicaStatus.ONLINE for held in after) and (
                is_still or all(held.tops == after[0].tops for held in after)
            )
            if is_level and set(outcomes.values()) == {"UP_TO_DATE"}:
                return True
            for name, outcome in outcomes.items():
                if outcome == "NEEDS_TOTAL":
                    wanted[name] = (SessionMode.TOTAL, False)
            stills = stills + 1 if is_still else 0
            if stills >= (2 if wanted else 1) and not self._resort(outcomes):
                if self.oracle.lines and all(held.status != ReplicaStatus.ONLINE for held in after):
                    self.note("REFUSED_BY_ALL")
                    return False
                raise Violation("NEVER_ENDS", outcomes)
        raise Violation("NEVER_ENDS", "too many rounds")

    def finish(self, link: Link, mode: SessionMode, discard: bool) -> str:
        """One session to its end."""
        link.record = self.record(mode, discard=discard)
        link.steps = attempt(link)
        for _ in range(QUIET_STEPS):
            try:
                next(link.steps)
            except Ended as ended:
                link.steps, link.record = None, None
                self._check(link.consumer)
                self.note(f"END {link.agreement} {ended}")
                return ended.outcome
            waiting = [flight for flight in link.flights if flight.is_open]
            if waiting:
                self.note(self._arrives(link, self.random.choice(waiting)))
        raise Violation("NEVER_ENDS", f"a session of {link.agreement}")

    def _resort(self, outcomes: dict[str, str]) -> bool:
        """What an admin does when sessions alone bring nothing more: recover, then discard; one at a time."""
        for site in self.sites:
            is_restored = site.state().replica.status is ReplicaStatus.RESTORED
            if is_restored and site.rid not in self.recovered:
                self.recovered.add(site.rid)
                self._recover(site)
                return True
        has_lost = self.oracle.lines or self.early or any(site.copied for site in self.sites)
        if has_lost and "CONSUMER_AHEAD" in outcomes.values():
            return self._begin_anew()
        return "NEEDS_TOTAL" in outcomes.values()

    def _begin_anew(self) -> bool:
        """One replica becomes the truth, and all others are made from it, whatever they hold."""
        able = [
            at for at, site in enumerate(self.sites) if site.state().replica.status is ReplicaStatus.ONLINE
        ]
        if not able or 0 in self.recovered:
            return False
        self.recovered = {0}
        for link in (self.ring * 2)[able[0] : able[0] + len(self.sites) - 1]:
            if link.supplier.state().replica.status is ReplicaStatus.RESTORED:
                self._recover(link.supplier)
            self.finish(link, SessionMode.TOTAL, True)
        return True

    def _recover(self, site: Site) -> None:
        """Accept a loss, which nobody who is heard could make good."""
        has = site.state().vectors.ruv
        own = has.get(site.rid, "")
        for link in self.links:
            seen = link.supplier.state()
            is_able = seen.replica.status is ReplicaStatus.ONLINE and link.consumer is site
            is_whole = all(csn <= has.get(rid, "") for rid, csn in seen.vectors.purged.items())
            if is_able and is_whole and seen.vectors.ruv.get(site.rid, "") > own:
                raise Violation("RESTORED_NEVER_ENDS", f"{site.name}: {link.supplier.name} has what it lacks")
        given = restored.accept_loss(site.conn, incarnation=site.new_incarnation(), now_s=site.clock_s)
        assert given is not None
        after, upto = given.after or "", given.upto or ""
        self.oracle.give_up({csn for csn in self.oracle.shown if csn.rid == site.rid and after < csn <= upto})
        row = site.state()
        site.adopt(row.replica.incarnation, row.vectors.ruv.get(site.rid))
        self.note(f"RECOVERED {site.name} {given}")

    # -- the end

    def judge(self) -> None:
        """All replicas are equal, and every answered change is in them or was let go by name."""
        helds = [site.held() for site in self.sites]
        first = helds[0]
        for site, held in zip(self.sites, helds, strict=True):
            check(site)
            tops = held.tops
            if tops != first.tops:
                raise Violation("RUVS_DIFFER", (site.name, held.ruv, first.ruv))
            if held.entries != first.entries:
                raise Violation("ENTRIES_DIFFER", (site.name, held.entries, first.entries))
            for csn in self.oracle.answered - self.oracle.given_up:
                if csn > tops.get(csn.rid, ""):
                    raise Violation("ANSWERED_AND_LOST", f"{site.name} {csn}")

    # -- faults

    def _check(self, site: Site) -> None:
        if not site.has_changed():
            return
        check(site)

    @contextmanager
    def _maybe_armed(self, points: tuple[tuple[Any, str], ...]) -> Iterator[None]:
        if self.random.random() < self.profile.faults:
            self.armed = self.random.choice(points)
        try:
            yield
        finally:
            self.armed = None

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Functions that break inside their transaction when they are armed."""
        with ExitStack() as stack:
            for module, name in FAULT_POINTS:
                stack.enter_context(broken_rule(module, name, self._breakable(module, name)))
            yield

    def _breakable(self, module: Any, name: str) -> Callable[..., Any]:
        real = getattr(module, name)

        def breakable(*args: Any, **kwargs: Any) -> Any:
            if self.armed == (module, name):
                self.armed = None
                self.told.happened["FAULT"] += 1
                raise InjectedFault(name)
            return real(*args, **kwargs)

        return breakable


_PLAIN = (SessionMode.INCREMENTAL, False)


def run_trial(seed: int, *, profile: Profile | None = None, rules: Rules | None = None) -> Told:
    """One trial; what it went through.

    Raises: Violation, with the trail in its notes.
    """
    folder = Path(tempfile.mkdtemp(prefix="wire-", dir=fast_folder()))
    world = None
    try:
        world = World(seed, folder, profile=profile, rules=rules)
        world.run()
    except BaseException as error:
        if world is not None:
            error.add_note(f"seed {seed}, {world.profile}\n" + "\n".join(world.told.trail[-40:]))
        raise
    finally:
        if world is not None:
            for site in world.sites:
                site.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return world.told
