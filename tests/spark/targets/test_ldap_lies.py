"""A directory server that answers anything: the reader gets a value or a TargetError, in bounded time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from spark.replication.ds389.reading import read_replica
from spark.replication.ds389.records import Reading
from spark.replication.ds389.topology import edges_of
from spark.targets.errors import TargetCertificateInvalid, TargetError, TargetUnreachable
from spark.targets.ldap import connection
from spark.targets.ldap.connection import LdapTarget, opened_directory

pytest.importorskip("ldap3")
Entry = dict[bytes, list[bytes]]
Answer = Callable[[bytes, int, bytes], Iterator[bytes]]
BIND, SEARCH, EXTENDED = 0x60, 0x63, 0x77
RESULTS = {BIND: 1, SEARCH: 5, EXTENDED: 24}
CSN = b"6b07346c000100040000"
REPLICA: Entry = {
    b"nsDS5ReplicaId": [b"1"],
    b"nsDS5ReplicaType": [b"3"],
    b"nsDS5ReplicaName": [b"x"],
    b"nsds50ruv": [b"{replicageneration} 6b073467000000010000"],
}
AGREEMENT: Entry = {b"cn": [b"a"], b"nsDS5ReplicaHost": [b"elsewhere"], b"nsDS5ReplicaPort": [b"389"]}


def tlv(tag: int, body: bytes) -> bytes:
    count = len(body)
    if count < 128:
        return bytes([tag, count]) + body
    digits = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + body


def result(operation: int, code: int = 0) -> bytes:
    return tlv(0x60 | RESULTS[operation], tlv(10, bytes([code])) + tlv(4, b"") + tlv(4, b""))


def entry(found: Entry) -> bytes:
    pairs = (
        tlv(0x30, tlv(4, name) + tlv(0x31, b"".join(tlv(4, value) for value in values)))
        for name, values in found.items()
    )
    return tlv(0x64, tlv(4, b"cn=x") + tlv(0x30, b"".join(pairs)))


def honest(replica: Entry | None = None, agreement: Entry | None = None, age: bytes = b"7d") -> Answer:
    """Answers all five searches."""

    def answer(number: bytes, operation: int, asked: bytes) -> Iterator[bytes]:
        if operation == SEARCH:
            found: Entry = {}
            if b"nsds5replicationagreement" in asked:
                found = AGREEMENT | (agreement or {})
            elif b"nsds5replica" in asked:
                found = REPLICA | (replica or {})
            elif b"nsBackendInstance" in asked:
                found = {b"cn": [b"userroot"]}
            elif b"cn=changelog" in asked:
                found = {b"nsslapd-changelogmaxage": [age]}
            yield tlv(0x30, number + entry(found))
        yield tlv(0x30, number + result(operation))

    return answer


def raw(text: bytes, *, of: int = SEARCH) -> Answer:
    """Answers one kind of request with some bytes; `N` stands for the number of the message."""

    def answer(number: bytes, operation: int, asked: bytes) -> Iterator[bytes]:
        if operation == of:
            yield text.replace(b"N", number)
        else:
            yield tlv(0x30, number + result(operation))

    return answer


def code(number_of_result: int, *, of: int) -> Answer:
    def answer(number: bytes, operation: int, asked: bytes) -> Iterator[bytes]:
        yield tlv(0x30, number + result(operation, number_of_result if operation == of else 0))

    return answer


def endless(number: bytes, operation: int, asked: bytes) -> Iterator[bytes]:
    """Entries that never end, each of them in time."""
    while operation == SEARCH:
        yield tlv(0x30, number + entry(REPLICA))
        time.sleep(0.05)
    yield tlv(0x30, number + result(operation))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no answer is waited for as long as an answer may take."""
    monkeypatch.setattr(connection, "SEARCH_S", 1)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], int]]:
    listeners: list[socket.socket] = []

    def start(answer: Answer) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=_accept, args=(listener, answer), daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.close()


def _accept(listener: socket.socket, answer: Answer) -> None:
    with suppress(OSError):
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=_talk, args=(peer, answer), daemon=True).start()


def _talk(peer: socket.socket, answer: Answer) -> None:
    with suppress(OSError), peer:
        while asked := peer.recv(65_536):
            at = 2 + (asked[1] & 127 if asked[1] >= 128 else 0)
            behind = at + 2 + asked[at + 1]
            if asked[behind] not in RESULTS:
                return
            for piece in answer(asked[at:behind], asked[behind], asked):
                peer.sendall(piece)


def read(port: int, tls: str = "none") -> Reading:
    target = LdapTarget(f"ldap://127.0.0.1:{port}?tls={tls}", "", "dc=x")
    with opened_directory(target, connect_timeout_s=2) as directory:
        return read_replica(directory, "dc=x", now=lambda: datetime.now(UTC))


@pytest.mark.parametrize(
    "answer",
    [
        honest({b"nsDS5ReplicaId": [b"9" * 5000]}),
        honest({b"nsDS5ReplicaId": [b"65536"]}),
        honest({b"nsDS5ReplicaId": [b"-1"]}),
        honest({b"nsds50ruv": [b"x" * 100_000]}),
        raw(b"\x30\x05N\x64\x00"),
        raw(b"\x30\x03abc"),
        raw(b"\x30\x05N\x64\x00", of=BIND),
        raw(b"\x30\x03abc", of=BIND),
        raw(b"\x30\x0aN\x73\x05\x04\x03abc"),
        code(10, of=SEARCH),
        code(14, of=SEARCH),
        code(100, of=SEARCH),
        code(100, of=BIND),
    ],
)
def test_what_is_no_answer_is_a_target_error(serve: Callable[[Answer], int], answer: Answer) -> None:
    with pytest.raises(TargetError):
        read(serve(answer))


@pytest.mark.parametrize(
    ("replica", "agreement", "age"),
    [
        ({b"nsds5ReplicaChangeCount": [b"9" * 5000]}, {}, b"7d"),
        ({}, {b"nsDS5ReplicaPort": [b"9" * 5000]}, b"7d"),
        ({}, {b"nsds5replicaLastUpdateStatusJSON": [b"[" * 200_000]}, b"7d"),
        ({}, {b"nsds5replicaLastUpdateStatusJSON": [b'{"state":"red","message":"\\ud800"}']}, b"7d"),
        ({}, {b"nsds5replicaChangesSentSinceStartup": [b"1:" + b"9" * 5000 + b"/0"]}, b"7d"),
        ({}, {b"nsds5replicaLastUpdateStatus": [b"Error (" + b"9" * 5000 + b")"]}, b"7d"),
        ({}, {}, b"9" * 5000),
        (
            {b"nsds50ruv": [*REPLICA[b"nsds50ruv"], b"{replica 4 ldap://a:99999} " + CSN + b" " + CSN]},
            {},
            b"7d",
        ),
        ({b"nsds50ruv": [*REPLICA[b"nsds50ruv"], b"{replica 4 ldap://[a} " + CSN + b" " + CSN]}, {}, b"7d"),
    ],
)
def test_a_value_that_cannot_be_leaves_the_rest_as_it_is(
    serve: Callable[[Answer], int], replica: Entry, agreement: Entry, age: bytes
) -> None:
    found = read(serve(honest(replica, agreement, age)))
    assert found.rid == 1
    assert [each.name for each in found.agreements] == ["a"]
    found.agreements[0].status.encode()
    assert [edge.consumer for edge in edges_of({"one": found}, {"one": ("127.0.0.1", 389)})] == [None]


@pytest.mark.parametrize("number", [1, 5, 6, 10, 14, 80])
def test_a_start_of_tls_that_is_not_taken_ends_it_before_the_bind(
    serve: Callable[[Answer], int], number: int
) -> None:
    with pytest.raises(TargetCertificateInvalid):
        read(serve(code(number, of=EXTENDED)), "starttls")


def test_a_server_that_never_ends_its_answer_is_cut_off(
    serve: Callable[[Answer], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTION_MAX_S", 0.5)
    began_s = time.monotonic()
    with pytest.raises(TargetUnreachable):
        read(serve(endless))
    assert time.monotonic() - began_s < 5
