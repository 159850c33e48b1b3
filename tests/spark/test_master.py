from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from spark.pool.errors import SparkStartFailed
from spark.pool.master import (
    addresses_of,
    answers,
    await_master,
    check_master,
    is_on_loopback,
    own_address_towards,
)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        yield made


def never() -> bool:
    return False


@pytest.mark.parametrize(
    "text",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[2,4]",
        "spark://127.0.0.1:7077",
        "spark://a.example:7077,b.example:7077",
        "spark://[::1]:7077",
        "k8s://https://10.0.0.1:6443",
        "yarn",
    ],
)
def test_masters_that_spark_knows_are_taken(text: str) -> None:
    assert check_master(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense://here",
        "local[0]",
        "local-cluster[2,1,1024]",
        "spark://",
        "spark://host",
        "spark://host:",
        "spark://host:0",
        "spark://host:70000",
        "spark://user:secret@host:7077",
        "spark://host:7077,",
        "spark://host:7077/",
        "spark://ho st:7077",
        "k8s://",
        "http://host:7077",
    ],
)
def test_text_that_is_no_master_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|a master is"):
        check_master(text)


def test_addresses_of_several_masters() -> None:
    assert addresses_of("spark://a:1,[::1]:65535") == [("a", 1), ("::1", 65535)]
    assert addresses_of("local[2]") == addresses_of("k8s://https://h:1") == []


@pytest.mark.parametrize(
    ("master", "is_there"),
    [
        ("spark://127.0.0.1:7077", True),
        ("spark://127.8.8.8:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://localhost:7077", True),
        ("spark://localhost:7077,10.0.0.1:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("spark://somewhere:7077", False),
        ("local[2]", False),
        ("k8s://https://127.0.0.1:6443", False),
    ],
)
def test_loopback_is_told_from_everything_else(master: str, is_there: bool) -> None:
    assert is_on_loopback(master) is is_there


def test_executors_beside_a_master_on_loopback_find_us_there() -> None:
    assert own_address_towards("spark://127.0.0.1:7077") == "127.0.0.1"
    assert own_address_towards("spark://no-such-host.invalid:7077") is None
    assert own_address_towards("local[2]") is None


def test_master_that_listens_late_is_awaited(listener: socket.socket) -> None:
    master = f"spark://127.0.0.1:{listener.getsockname()[1]}"
    assert not answers(master)
    threading.Timer(0.7, listener.listen).start()
    began = time.monotonic()
    await_master(master, patience_s=20, should_stop=never)
    assert 0.5 < time.monotonic() - began < 10
    assert answers(f"spark://127.0.0.1:1,{master.removeprefix('spark://')}")


def test_master_that_nobody_is_is_away_after_the_patience_and_not_later() -> None:
    began = time.monotonic()
    with pytest.raises(SparkStartFailed, match=r"nobody listens at spark://127\.0\.0\.1:1") as failed:
        await_master("spark://127.0.0.1:1", patience_s=0.6, should_stop=never)
    assert failed.value.reason == "MASTER_AWAY"
    assert time.monotonic() - began < 5


def test_wait_for_a_master_ends_with_the_pool_and_local_ones_are_not_asked() -> None:
    with pytest.raises(SparkStartFailed) as failed:
        await_master("spark://127.0.0.1:1", patience_s=60, should_stop=lambda: True)
    assert failed.value.reason == "STOPPED"
    await_master("local[2]", patience_s=0, should_stop=never)
    await_master("k8s://https://127.0.0.1:1", patience_s=0, should_stop=never)


def test_master_without_a_port_is_bad_at_once() -> None:
    with pytest.raises(SparkStartFailed) as failed:
        await_master("spark://host", patience_s=60, should_stop=never)
    assert failed.value.reason == "BAD_MASTER"
