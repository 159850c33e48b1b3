"""The program's rule as slonik itself says it: what it waits for, in its own words, on a real cluster."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark.events.catalog import read_catalog
from spark.events.node_views import read_view
from spark.events.preconditions.judge import judge
from spark.events.preconditions.records import Command, Question, View
from spark.targets.connection import Target, connect
from tests.slony_cluster import SlonyCluster

pytestmark = [pytest.mark.postgresql, pytest.mark.long]
SPEAKS_AFTER_S = 10
PATIENCE_S = 3 * SPEAKS_AFTER_S
BEHIND = re.compile(r"\((\d+),(\d+)\) only at \(\d+,(\d+)\)")
Behind = set[tuple[int, int, int]]


def views_of(cluster: SlonyCluster) -> dict[int, View]:
    views = {}
    for node in cluster.nodes:
        target = Target(cluster.url(node), schema=cluster.schema)
        with connect(target, application_name="lethe-test", read_only=True) as conn:
            views[node] = read_view(conn, read_catalog(conn, cluster.name))
    return views


def slonik_waits_for(cluster: SlonyCluster, provider: int) -> Behind:
    """(origin, seqno, confirmed) that slonik names before a SUBSCRIBE SET; it is ended once it has spoken."""
    receiver = min(set(cluster.nodes) - {provider})
    lines = [f"cluster name = {cluster.name};"]
    lines += [f"node {node} admin conninfo = '{cluster.conninfo(node)}';" for node in cluster.nodes]
    lines += [f"subscribe set (id=1, provider={provider}, receiver={receiver}, forward=yes);"]
    process = subprocess.Popen(
        ["timeout", str(PATIENCE_S), "slonik"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("\n".join(lines))
        process.stdin.close()
        said = process.stdout.readline()
        process.terminate()
    assert f"to be confirmed on node {provider}" in said, said
    return {(int(o), int(s), int(c)) for o, s, c in BEHIND.findall(said)}


def ours(cluster: SlonyCluster, provider: int) -> Behind:
    verdict = judge(Question(Command.SUBSCRIBE_SET, provider), views_of(cluster), as_program=True)
    assert {each.node for each in verdict.missing} == {provider}
    return {
        (each.origin, each.event.seqno, each.confirmed_seqno or 0)
        for each in verdict.missing
        if each.event is not None
    }


def compared(cluster: SlonyCluster) -> dict[int, tuple[Behind, Behind]]:
    with ThreadPoolExecutor(len(cluster.nodes)) as threads:
        theirs = threads.map(lambda node: slonik_waits_for(cluster, node), cluster.nodes)
        return {node: (ours(cluster, node), said) for node, said in zip(cluster.nodes, theirs, strict=True)}


def test_slonik_waits_for_the_same_events(bare_slony: SlonyCluster) -> None:
    found = compared(bare_slony)
    assert {node: mine for node, (mine, _) in found.items()} == {
        node: said for node, (_, said) in found.items()
    }
    assert {origin for origin, _, _ in found[2][0]} == {1}  # node 3 is inactive there


def test_slonik_waits_for_a_node_that_the_provider_does_not_know(bare_slony: SlonyCluster) -> None:
    for table, columns in (
        ("sl_listen", "li_origin, li_provider, li_receiver"),
        ("sl_path", "pa_server, pa_client"),
        ("sl_node", "no_id"),
    ):
        bare_slony.run(2, f"delete from {table} where 3 in ({columns})")
    said = slonik_waits_for(bare_slony, 2)
    assert {origin for origin, _, _ in said} == {1, 3}
    assert ours(bare_slony, 2) == said
