"""Lists of hosts, judged by the address that is connected to."""

import pytest

from spark.targets.errors import TargetHostNotAllowed, TargetUnreachable
from spark.targets.hosts import allowed_addresses, check_socket, looked_up, may_connect, parse_entry


class Resolver:
    """Answers with the next list at each look."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.looks = 0

    def __call__(self, _host: str, _port: int) -> list[str]:
        self.looks += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(
    ("listed", "host", "port", "found"),
    [
        ("db.example", "db.example", 5432, ["10.0.0.5"]),
        ("DB.Example.", "db.example", 5432, ["10.0.0.5"]),
        ("db.example:5432", "db.example.", 5432, ["10.0.0.5"]),
        ("10.0.0.0/8", "db.example", 5432, ["10.0.0.5"]),
        ("10.0.0.5/32", "db.example", 5432, ["10.0.0.5"]),
        ("10.0.0.0/8:5432", "db.example", 5432, ["10.0.0.5"]),
        ("10.0.0.5:5432", "10.0.0.5", 5432, []),
        ("::1", "::1", 5432, ["::1"]),
        ("[::1]:5432", "[::1]", 5432, ["::1"]),
        ("127.0.0.1", "::ffff:127.0.0.1", 5432, ["127.0.0.1"]),
        ("localhost", "localhost", 5432, ["127.0.0.1", "::1"]),
    ],
)
def test_host_on_the_list_is_connected_to(listed: str, host: str, port: int, found: list[str]) -> None:
    assert allowed_addresses([(listed,)], host, port, look_up=Resolver(found)) == (found or [host])


@pytest.mark.parametrize(
    ("listed", "host", "port", "found"),
    [
        ("db.example", "other.example", 5432, ["10.0.0.5"]),
        ("db.example:5432", "db.example", 5433, ["10.0.0.5"]),
        ("db.example", "db.example.attacker.net", 5432, ["10.0.0.5"]),
        ("10.0.0.5", "10.0.0.6", 5432, []),
        ("10.0.0.0/8", "db.example", 5432, ["192.0.2.1"]),
        ("10.0.0.5:5432", "10.0.0.5", 22, []),
        ("10.0.0.0/8:5432", "db.example", 22, ["10.0.0.5"]),
        # an address alone is for who writes it so; for names a network is listed
        ("10.0.0.5", "db.example", 5432, ["10.0.0.5"]),
        # a name that is on the list, and leads to this machine or its link: rebinding
        ("db.example", "db.example", 5432, ["127.0.0.1"]),
        ("db.example", "db.example", 5432, ["::1"]),
        ("db.example", "db.example", 5432, ["::ffff:127.0.0.1"]),
        ("db.example", "db.example", 5432, ["169.254.169.254"]),
        ("db.example", "db.example", 5432, ["0.0.0.0"]),
        ("db.example", "db.example", 5432, ["fe80::1"]),
        # other ways to write an address
        ("db.example", "2130706433", 5432, ["127.0.0.1"]),
        ("db.example", "0x7f.1", 5432, ["127.0.0.1"]),
    ],
)
def test_host_off_the_list_is_refused(listed: str, host: str, port: int, found: list[str]) -> None:
    with pytest.raises(TargetHostNotAllowed):
        allowed_addresses([(listed,)], host, port, look_up=Resolver(found))


TRANSLATED = [
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b:1::a9fe:a9fe",
    "::ffff:0:127.0.0.1",  # SIIT
    "::127.0.0.1",
    "2002:7f00:1::1",  # 6to4
    "2002:a9fe:a9fe::",
    "2001:0:102:304:0:1234:80ff:fffe",  # Teredo, of 127.0.0.1
]


@pytest.mark.parametrize("found", TRANSLATED)
def test_name_that_leads_to_this_machine_through_a_translator_is_refused(found: str) -> None:
    with pytest.raises(TargetHostNotAllowed):
        allowed_addresses([("db.example",)], "db.example", 5432, look_up=Resolver([found]))
    assert allowed_addresses([(f"{found}/128",)], "db.example", 5432, look_up=Resolver([found])) == [found]


@pytest.mark.parametrize("found", ["64:ff9b::a00:5", "2002:a00:5::1", "2001:db8::7f00:1", "fd00::1"])
def test_name_that_leads_elsewhere_is_connected_to_as_before(found: str) -> None:
    assert allowed_addresses([("db.example",)], "db.example", 5432, look_up=Resolver([found])) == [found]


def test_every_list_has_to_allow_an_address() -> None:
    find = Resolver(["10.0.0.5", "192.0.2.1"])
    assert allowed_addresses([("10.0.0.0/8",), ("db.example",)], "db.example", 1, look_up=find) == [
        "10.0.0.5"
    ]
    with pytest.raises(TargetHostNotAllowed):
        allowed_addresses([("10.0.0.0/8",), ("192.0.2.0/24",)], "db.example", 1, look_up=find)


def test_name_that_resolves_elsewhere_later_is_refused_then() -> None:
    find = Resolver(["10.0.0.5"], ["127.0.0.1"], ["192.0.2.66"])
    listed = [("10.0.0.0/8",)]
    assert allowed_addresses(listed, "db.example", 5432, look_up=find) == ["10.0.0.5"]
    for _ in range(2):
        with pytest.raises(TargetHostNotAllowed):
            allowed_addresses(listed, "db.example", 5432, look_up=find)
    assert find.looks == 3, "one look for each connection, and nobody looks again behind it"


def test_name_of_this_machine_is_listed_with_its_address() -> None:
    listed = [("db.example", "127.0.1.1")]
    assert allowed_addresses(listed, "db.example", 1, look_up=Resolver(["127.0.1.1"])) == ["127.0.1.1"]


def test_no_list_allows_any_host_and_an_empty_one_none() -> None:
    assert allowed_addresses([], "db.example", 1, look_up=Resolver(["127.0.0.1"])) == ["127.0.0.1"]
    with pytest.raises(TargetHostNotAllowed):
        allowed_addresses([()], "db.example", 1, look_up=Resolver(["10.0.0.1"]))


def test_host_that_cannot_be_looked_up_is_unreachable() -> None:
    with pytest.raises(TargetUnreachable):
        looked_up("no-such-host.invalid", 1)


def test_sockets_are_named_by_their_directory() -> None:
    check_socket([("/run/postgresql",)], "/run/postgresql/")
    check_socket([("socket",)], None)
    for listed, directory in (("/run", "/run/postgresql"), ("localhost", "/run"), ("localhost", None)):
        with pytest.raises(TargetHostNotAllowed):
            check_socket([(listed,)], directory)


def test_urls_are_judged_by_what_could_be_allowed() -> None:
    assert may_connect([("db.example",)], "db.example", 5432)
    assert may_connect([("10.0.0.0/8",)], "db.example", 5432), "its address tells, when it is connected to"
    assert not may_connect([("db.example",)], "other.example", 5432)
    assert not may_connect([("10.0.0.0/8",)], "192.0.2.1", 5432)


@pytest.mark.parametrize(
    "text", ["", "a b", "db.example:0", "db.example:x", "http://db", "db/24", "user@db", ":5"]
)
def test_line_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host|port"):
        parse_entry(text)
