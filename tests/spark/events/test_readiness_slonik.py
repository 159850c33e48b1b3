"""Random scripts of the real slonik on a real cluster without slons: READY exactly when slonik goes on.

The test is every slon: it writes the confirmations. A script ends once its wait is over, most with an error:
the command that comes then is about a set that does not exist, so that the cluster stays as it is.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import pytest

from spark.events.catalog import read_catalog
from spark.events.preconditions.judge import judge
from spark.events.preconditions.reading import read_again, read_first
from spark.events.preconditions.records import Command, Question, Verdict, View
from spark.targets.connection import Target, connect
from tests.slony_cluster import SlonyCluster

pytestmark = pytest.mark.postgresql
SEEDS = (0, 1, 2, 5, 6)  # one of each wait that comes often
SEEDS_LONG = [seed for seed in range(110) if seed not in SEEDS]
QUIET_S, PATIENCE_S = 1.2, 60.0
NO_SET = 77
EMPTY_SET = 50


@dataclass
class Script:
    """What slonik is given, what we are asked, and whose confirmations it is about."""

    text: str
    question: Question
    receiver: int
    holds: Callable[[], None] = lambda: None
    """Ends what else holds it than confirmations."""
    is_refusal: bool = False


def views_of(cluster: SlonyCluster, command: Command, *, again: bool = False) -> dict[int, View]:
    views = {}
    for node in cluster.nodes:
        target = Target(cluster.url(node), schema=cluster.schema)
        with connect(target, application_name="lethe-test", read_only=True) as conn:
            read = read_again if again else read_first
            views[node] = read(conn, read_catalog(conn, cluster.name), command)
    return views


@contextmanager
def slonik(cluster: SlonyCluster, text: str) -> Iterator[subprocess.Popen[str]]:
    lines = [f"cluster name = {cluster.name};"]
    lines += [f"node {node} admin conninfo = '{cluster.conninfo(node)}';" for node in cluster.nodes]
    process = subprocess.Popen(
        ["slonik"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdin is not None
    process.stdin.write("\n".join([*lines, text]))
    process.stdin.close()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def newest(cluster: SlonyCluster, origin: int) -> int:
    [(seqno,)] = cluster.run(
        origin,
        "select coalesce(max(ev_seqno), 0) from sl_event where ev_origin = %s and ev_type <> 'SYNC'",
        origin,
    )
    return int(seqno)


def confirm(cluster: SlonyCluster, origin: int, receiver: int, seqno: int | None, at: int) -> None:
    """Set how far a receiver has confirmed an origin, as one node knows it."""
    cluster.run(at, "delete from sl_confirm where con_origin = %s and con_received = %s", origin, receiver)
    if seqno is not None:
        cluster.run(
            at,
            "insert into sl_confirm (con_origin, con_received, con_seqno) values (%s, %s, %s)",
            origin,
            receiver,
            seqno,
        )


def confirm_all(cluster: SlonyCluster) -> None:
    seqnos = {origin: newest(cluster, origin) for origin in cluster.nodes}
    for at in cluster.nodes:
        for origin in cluster.nodes:
            for receiver in set(cluster.nodes) - {origin}:
                confirm(cluster, origin, receiver, seqnos[origin] + 10, at)


def random_script(cluster: SlonyCluster, dice: random.Random, stack: ExitStack) -> Script:
    """A script whose wait has something to wait for, or has not."""
    one, two = dice.sample(cluster.nodes, 2)
    kind = dice.choice(["SUBSCRIBE", "STORE_NODE", "CREATE", "SUBMIT", "MERGE", "LOCK", "FAILOVER"])
    if kind == "STORE_NODE":
        text = f"store node (id={two}, comment='again', event node={one});"
        return Script(text, Question(Command.STORE_NODE, one, other=two, event_node=one), one)
    if kind == "CREATE":
        cluster.run(two, "select createEvent(%s, 'DROP_SET', '999')", cluster.schema)
        text = f"create set (id={dice.randrange(1_000, 10**6)}, origin={one}, comment='new');"
        return Script(text, Question(Command.CREATE_SET, one, event_node=one), one)
    if kind == "SUBMIT":
        text = f"drop set (id={EMPTY_SET + two}, origin={two});"
        text += f"move set (id={NO_SET}, old origin={one}, new origin={two});"
        cluster.slonik(f"create set (id={EMPTY_SET + two}, origin={two}, comment='goes');")
        return Script(text, Question(Command.MOVE_SET, one, event_node=one, previous=two), one)
    if kind == "MERGE":
        cluster.run(
            one, "select createEvent(%s, 'ENABLE_SUBSCRIPTION', '78', '1', %s, 't')", cluster.schema, str(two)
        )
        text = f"merge set (id={NO_SET}, add id=78, origin={one});"
        question = Question(Command.MERGE_SET, one, event_node=one, sets=frozenset({NO_SET, 78}))
        return Script(text, question, two)
    if kind == "LOCK":
        cluster.run(1, "update sl_set set set_locked = null")
        open_one = stack.enter_context(closing(cluster.connect(1, autocommit=False)))
        if dice.random() < 0.7:
            open_one.execute("select txid_current()")
            if dice.random() < 0.7:
                cluster.run(1, "select txid_current()")
        return Script(
            f"lock set (id={EMPTY_SET}, origin=1);", Question(Command.LOCK_SET, 1), 1, open_one.rollback
        )
    if kind == "FAILOVER":
        return Script(
            f"failover (id=1, backup node={two if two != 1 else one});",
            Question(Command.FAILOVER, 1, other=two if two != 1 else one),
            1,
            is_refusal=True,
        )
    text = f"subscribe set (id={NO_SET}, provider={one}, receiver={two}, forward=yes);"
    return Script(text, Question(Command.SUBSCRIBE_SET, one), one)


def throw_confirmations(cluster: SlonyCluster, dice: random.Random, script: Script) -> None:
    for origin in set(cluster.nodes) - {script.receiver}:
        last = newest(cluster, origin)
        reached = dice.choice([last, last + 5, last + 5, last - 1, 0, None])
        for at in cluster.nodes:
            confirm(cluster, origin, script.receiver, reached, at)


def ended_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def agree(cluster: SlonyCluster, seed: int) -> str:
    """Wait with both; what it was: READY at once, LATER, or REFUSED."""
    dice = random.Random(seed)
    confirm_all(cluster)
    with ExitStack() as stack:
        script = random_script(cluster, dice, stack)
        confirm_all(cluster)
        throw_confirmations(cluster, dice, script)
        before = newest(cluster, script.question.previous) if script.question.previous else 0
        first = judge_now(cluster, script)
        with slonik(cluster, script.text) as process:
            if script.is_refusal:
                assert ended_within(process, PATIENCE_S)
                assert process.stdout is not None
                assert "is not a forwarding subscriber" in process.stdout.read()
                assert not first.is_met
                return "REFUSED"
            if script.question.previous:
                first = judged_after(cluster, script, before, process)
            if first.is_met:
                assert ended_within(process, PATIENCE_S), (seed, script)
                return "READY"
            assert not ended_within(process, QUIET_S), (seed, script, first)
            confirm_all(cluster)
            script.holds()
            again = views_of(cluster, script.question.command, again=True)
            assert judge(script.question, again, as_program=True, fixed=first.fixed).is_met
            assert ended_within(process, PATIENCE_S), (seed, script)
            return "LATER"


def judge_now(cluster: SlonyCluster, script: Script) -> Verdict:
    views = views_of(cluster, script.question.command)
    return judge(script.question, views, as_program=True)


def judged_after(
    cluster: SlonyCluster, script: Script, before: int, process: subprocess.Popen[str]
) -> Verdict:
    """The verdict once the first command of a script has made its event."""
    assert script.question.previous is not None
    deadline = time.monotonic() + PATIENCE_S
    while newest(cluster, script.question.previous) == before and process.poll() is None:
        assert time.monotonic() < deadline, script
        time.sleep(0.05)
    return judge_now(cluster, script)


def check(cluster: SlonyCluster, seeds: Sequence[int]) -> None:
    for node in cluster.nodes:
        for other in cluster.nodes:
            cluster.run(
                node,
                "insert into sl_node (no_id, no_active, no_comment, no_failed)"
                " values (%s, true, '', false) on conflict (no_id) do update set no_active = true",
                other,
            )
        cluster.run(
            node,
            "insert into sl_set (set_id, set_origin, set_comment) values (%s, 1, 'empty')"
            " on conflict do nothing",
            EMPTY_SET,
        )
    found = [agree(cluster, seed) for seed in seeds]
    assert {"READY", "LATER"} <= set(found), found


def test_ready_exactly_when_slonik_goes_on(bare_slony: SlonyCluster) -> None:
    check(bare_slony, SEEDS)


@pytest.mark.long
@pytest.mark.timeout(3_600)  # slonik's own pauses: five minutes alone, half an hour on a busy machine
def test_ready_exactly_when_slonik_goes_on_many_times(bare_slony: SlonyCluster) -> None:
    check(bare_slony, SEEDS_LONG)
