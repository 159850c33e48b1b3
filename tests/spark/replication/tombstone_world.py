"""The wire model with purges of tombstones in it: no deleted key comes back, and all replicas end alike.

Every replica is a real file; sessions, copies, backups that are put back, clocks and trimming are those of
the wire model. What a replica may show is told from the oracle's log alone: of each key the newest change
that the replica's RUV covers.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from spark.formats.csn import Csn
from spark.formats.replica import buried_table
from spark.replication import agreements
from spark.replication.errors import ReplicaNotWhole
from spark.replication.records import ReplicaStatus, SessionMode
from spark.replication.tombstones.plan import TombstoneRules
from spark.replication.tombstones.units import (
    TombstoneUnit,
    TombstoneWalk,
    run_tombstones,
)
from tests.spark.replication.wire_model import Profile, Told, World, profile_of
from tests.spark.replication.wire_model_session import Link
from tests.spark.replication.wire_model_site import (
    GENERATION,
    Pending,
    Site,
    Violation,
    _check_log,
    fast_folder,
)


class TombstoneWorld(World):
    """One trial with purges of tombstones."""

    def trim(self) -> str:
        """A purge of tombstones, or one of the changelog."""
        return self.bury() if self.random.random() < 0.6 else super().trim()

    def write(self) -> str:
        """A write as ever; or a purge; or everybody meets everybody, so that there is something to purge."""
        chance = self.random.random()
        if chance < 0.3:
            return self.bury()
        if chance < 0.4:
            for link in self.links * 2:
                if link.steps is None and link.record is None:
                    self.finish(link, SessionMode.INCREMENTAL, False)
            return f"MET {self.bury()} {self.bury()}"
        return super().write()

    def _request(self) -> Pending:
        found = super()._request()
        rows = [(key, None if self.random.random() < 0.4 else value) for key, value in found.rows]
        return replace(found, rows=rows)

    def bury(self) -> str:
        """All tombstones of a replica that may go, or some, whatever their age."""
        site = self.random.choice(self.sites)
        rules = TombstoneRules(2**32 - 1)
        walk, rows = TombstoneWalk(rules), 0
        with suppress(ReplicaNotWhole):
            while span := walk.next_span(site.conn, now_s=site.clock_s, rows_max=self.random.randint(1, 3)):
                unit = TombstoneUnit("job", span, rules, 1, "entries", site.clock_s, has_ledger=False)
                rows += run_tombstones(site.conn, unit).rows
                walk.passed(span)
                if self.random.random() < 0.2:
                    break
        self._check(site)
        self.told.happened["PURGED"] += rows
        return f"BURIED {site.name} {rows} {site.state().replica.buried}" if rows else ""

    def _check(self, site: Site) -> None:
        if site.has_changed():
            check_visible(site)
            self._check_refusals(site)

    def _check_refusals(self, site: Site) -> None:
        """Who knows all its peers, none of which was put back, refuses nothing."""
        if self.oracle.lines or self.early:
            return
        letters = site.conn.execute("select csn from replica_dead_letters where code = 'TOMBSTONE_PURGED'")
        if letters and self.are_known:
            raise Violation("REFUSED_NEEDLESSLY", (site.name, letters))

    @property
    def are_known(self) -> bool:
        """Every replica has had an agreement for every other from the beginning."""
        return self._known

    _known = False

    def know_all(self) -> None:
        """Agreements from everybody to everybody, before the first change."""
        self._known = True
        count = len(self.sites)
        there = {(link.supplier.rid, link.consumer.rid) for link in self.links}
        for one in range(count):
            for two in range(count):
                if one != two and (one + 1, two + 1) not in there:
                    self.links.append(self._link(one, two, self.links[0].rules))
        for link in self.links:
            self._meet(link)

    def _meet(self, link: Link) -> None:
        conn, now_s = link.supplier.conn, link.supplier.clock_s
        agreements.register_agreement(conn, link.agreement, now_s=now_s, consumer_rid=link.consumer.rid)

    def _resort(self, outcomes: dict[str, str]) -> bool:
        """A replica id that stands still for an old change is helped by a copy, as an admin does it."""
        if "HALTED" in outcomes.values():
            return self._begin_anew()
        return super()._resort(outcomes)

    def judge(self) -> None:
        """All replicas show the same, and all that was answered is in them or was let go by name."""
        helds = [site.held() for site in self.sites]
        first = helds[0]
        for site, held in zip(self.sites, helds, strict=True):
            check_visible(site)
            if held.tops != first.tops:
                raise Violation("RUVS_DIFFER", (site.name, held.ruv, first.ruv))
            if _live(held.entries) != _live(first.entries):
                raise Violation("ENTRIES_DIFFER", (site.name, held.entries, first.entries))
            for csn in self.oracle.answered - self.oracle.given_up:
                if csn > held.tops.get(csn.rid, ""):
                    raise Violation("ANSWERED_AND_LOST", f"{site.name} {csn}")


def check_visible(site: Site) -> None:
    """A replica shows of every key the newest change that its RUV covers; a deleted one is not there.

    Raises: Violation.
    """
    held = site.held()
    if held.status == ReplicaStatus.INITIALIZING and held.generation is None:
        return  # half a copy promises nothing
    _check_log(site, held)
    buried = bound_of(site)
    newest: dict[bytes, Csn] = {}
    for csn in site.oracle.promised:
        if csn <= held.ruv.get(csn.rid, ("", None))[0]:
            key, _ = site.oracle.written[csn]
            newest[key] = max(csn, newest.get(key, csn))
    for key, csn in newest.items():
        entry, is_delete = held.entries.get(key), site.oracle.written[csn][1] is None
        if entry is None:
            if not is_delete:
                raise Violation("ENTRY_LOST", f"{site.name}: {key!r} lacks {csn}")
            if csn > (buried or ""):
                raise Violation("BOUND_TOO_LOW", f"{site.name}: {key!r} lacks {csn}, the bound is {buried}")
        elif is_delete and entry[2] and csn <= (buried or ""):
            continue  # an older delete that came after the purge
        elif entry[0] < csn:
            kind = "CAME_BACK" if is_delete and not entry[2] else "ENTRY_LOST"
            raise Violation(kind, f"{site.name}: {key!r} is {entry}, not {csn}")
    for key, (text, value, is_gone) in held.entries.items():
        wanted = site.oracle.written.get(Csn(text))
        if (wanted is not None and wanted != (key, value)) or is_gone is not (value is None):
            raise Violation("ENTRY_WRONG", f"{site.name}: {key!r} {text}")


def bound_of(site: Site) -> str | None:
    """The bound as it stands in the file."""
    names = site.conn.execute("select name from sqlite_schema where name = 'replica_buried'")
    rows = site.conn.execute(f"select csn from {buried_table(site.conn)}") if names else []
    return rows[0][0] if rows else None


def _live(entries: dict[bytes, tuple[str, bytes | None, bool]]) -> dict[bytes, tuple[str, bytes | None]]:
    return {key: (csn, value) for key, (csn, value, is_gone) in entries.items() if not is_gone}


def run_tombstone_trial(seed: int, *, profile: Profile | None = None, known: bool | None = None) -> Told:
    """One trial; what it went through.

    Args:
        known: whether all replicas know one another from the beginning; None: as the seed says.
    Raises: Violation, with the trail in its notes.
    """
    folder = Path(tempfile.mkdtemp(prefix="tombs-", dir=fast_folder()))
    world = None
    try:
        world = TombstoneWorld(seed, folder, profile=profile, rules=None)
        world.profile = replace(profile or profile_of(world.random), trims=True, steps=110)
        world.put_backs = world.profile.put_backs
        if known or (known is None and world.random.random() < 0.5):
            world.know_all()
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


class MeetingWorld(TombstoneWorld):
    """Three replicas and few troubles: writes, deletes, purges, clocks that go back, and meetings.

    `late`: the third is unknown to the others, writes all the time, and comes when they have purged.
    `mute`: the second brings nothing until the end, and takes what the others bring.
    """

    late = False
    mute = False

    def _generation(self, rid: int) -> str | None:
        return GENERATION

    def run(self) -> None:
        """Both parts.

        Raises: Violation.
        """
        if self.late:
            for link in self.links:
                if self._is_late(link):
                    link.supplier.conn.execute(
                        "delete from replica_agreements where id = :id", {"id": link.agreement}
                    )
        for _ in range(self.profile.steps):
            self.note(self.random.choices((self.one, self.meet, self.bury, self.turn), (8, 6, 3, 1))[0]())
            for site in self.sites:
                site.clock_s += self.random.choice((0, 1))
        self.heal()
        if self.settle():
            self.judge()

    def one(self) -> str:
        """One write."""
        site = self.random.choice(self.sites)
        outcome = site.write(self._request(), dies=False)
        self._check(site)
        return f"{outcome} {site.name}"

    def meet(self) -> str:
        """One session, or all until everybody knows of everybody."""
        able = [link for link in self.links if not (self.late and self._is_late(link))]
        able = [link for link in able if not (self.mute and link.supplier.rid == 2)]
        met = able * 2 if self.random.random() < 0.2 else [self.random.choice(able)]
        for link in met:
            self.finish(link, SessionMode.INCREMENTAL, False)
        return f"MET {[link.agreement for link in met]} {self.bury() if len(met) > 1 else ''}"

    def turn(self) -> str:
        """A clock goes back by seconds."""
        site = self.random.choice(self.sites)
        site.clock_s -= self.random.randint(1, 20)
        return f"CLOCK {site.name}"

    def _is_late(self, link: Link) -> bool:
        return 3 in (link.supplier.rid, link.consumer.rid)


MEETING = Profile(steps=40, deaths=0.0, loss=0.0, faults=0.0, sites=3)


def run_meeting(seed: int, *, late: bool) -> Told:
    """One trial of a MeetingWorld; what it went through.

    Raises: Violation, with the trail in its notes.
    """
    folder = Path(tempfile.mkdtemp(prefix="meet-", dir=fast_folder()))
    world = None
    try:
        world = MeetingWorld(seed, folder, profile=MEETING, rules=None)
        world.late, world.mute = late, not late and seed % 2 == 1
        if not late:
            world.know_all()
        world.run()
        world.told.happened["REFUSED"] = sum(
            len(site.conn.execute("select 1 from replica_dead_letters where code = 'TOMBSTONE_PURGED'"))
            for site in world.sites
        )
    except BaseException as error:
        if world is not None:
            error.add_note(f"seed {seed}\n" + "\n".join(world.told.trail[-40:]))
        raise
    finally:
        if world is not None:
            for site in world.sites:
                site.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return world.told
