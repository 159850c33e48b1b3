"""Every `list` of the command, as help shows it: none asks the service for what it does not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.main import get_command

from app.cli.main import Root, main
from app.cli.shell.lazy import load
from tests.http.service_process import ServiceProcess

Found = tuple[int, str, str]
MISUSED = (64, 70)
OF_STORE = "store"


def lists(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The words of each `list`, and what it cannot do without."""
    for name, child in getattr(command, "commands", {}).items():
        yield from lists(child, (*words, name))
    if words[-1] == "list":
        needed = [str(param.name) for param in command.params if param.required]
        yield words, needed


def every_list() -> list[tuple[tuple[str, ...], list[str]]]:
    found = []
    for noun, at in Root.nouns.items():
        found += lists(get_command(load(at.module)), (noun,))
    return [(words, needed) for words, needed in found if set(needed) <= {OF_STORE}]


LISTS = every_list()


@pytest.fixture
def command(
    sqlite_service: ServiceProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Callable[..., Found]:
    monkeypatch.setenv("LETHE_URL", sqlite_service.url)
    monkeypatch.setenv("LETHE_TOKEN", sqlite_service.token)

    def run(*arguments: str) -> Found:
        capsysbinary.readouterr()
        code = main(arguments)
        said = capsysbinary.readouterr()
        return code, said.out.decode(), said.err.decode()

    return run


def test_the_lists_that_people_ask_for_most_are_among_them() -> None:
    names = {" ".join(words) for words, _ in LISTS}
    assert {"store list", "job list", "parameter list", "window list", "archive list"} <= names
    assert len(names) >= 15


@pytest.mark.parametrize(("words", "needed"), LISTS, ids=[" ".join(words) for words, _ in LISTS])
def test_a_list_asks_for_what_its_operation_knows(
    words: tuple[str, ...], needed: list[str], command: Callable[..., Found]
) -> None:
    code, _, error = command(*words, *("no-such-store" for _ in needed))
    assert code not in MISUSED, error
    if not needed:
        assert code == 0, error
        code, text, error = command(*words, "--json")
        assert code == 0, error
        assert isinstance(json.loads(text), dict)
    else:
        assert "STORE_NOT_FOUND" in error, error


def test_parameters_of_a_store_are_listed_with_their_values(command: Callable[..., Found]) -> None:
    _, all_of_them, _ = command("parameter", "list", "--json")
    names = {each["name"] for each in json.loads(all_of_them)["items"]}
    assert "purge.retention.minutes" in names
