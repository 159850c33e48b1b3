"""Models that are compiled when they are first needed: by many threads at once, and as strict as ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model

from app.kit.model import Model

THREADS = 8


def made(number: int) -> type[Model]:
    """A model with one inside, neither of which has been compiled."""
    inner = create_model(f"Inner{number}", __base__=Model, rows=(int, ...))
    outer: type[Model] = create_model(
        f"Outer{number}", __base__=Model, inner=(inner, ...), names=(list[str], ...)
    )
    assert not outer.__pydantic_complete__
    return outer


@pytest.mark.parametrize("number", range(20))
def test_the_first_values_of_many_threads_are_whole(number: int) -> None:
    outer, barrier = made(number), threading.Barrier(THREADS)
    found: list[Any] = []

    def first(at: int) -> None:
        barrier.wait()
        given = {"inner": {"rows": at if at % 2 else "many"}, "names": ["a"]}
        try:
            found.append(outer.model_validate(given).model_dump_json())
        except ValidationError as error:
            found.append(error.errors()[0]["loc"])

    threads = [threading.Thread(target=first, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    right = [f'{{"inner":{{"rows":{at}}},"names":["a"]}}' for at in range(1, THREADS, 2)]
    assert sorted(map(str, found)) == sorted([*right, *["('inner', 'rows')"] * (THREADS // 2)])


def test_a_model_keeps_its_own_rules() -> None:
    class Strict(Model):
        model_config = ConfigDict(extra="forbid")

        rows: int

    assert Strict.model_config == {"extra": "forbid"}
    with pytest.raises(ValidationError):
        Strict.model_validate({"rows": 1, "row": 1})
    with pytest.raises(ValidationError):
        TypeAdapter(list[Strict]).validate_python([{"rows": "many"}])
    assert Strict.model_json_schema()["additionalProperties"] is False
