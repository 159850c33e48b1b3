"""Readers of /v1/events whose last number is of a time that restored metadata does not have."""

from __future__ import annotations

from pathlib import Path

import httpx

from app.keeping.backup import back_up
from app.keeping.restore import restore
from app.settings import Settings
from tests.journeys.service import Service, serving


def _begin(service: Service, after: str | None = None) -> tuple[str, int]:
    """The first event of a stream, and its number."""
    headers = {"Authorization": f"Bearer {service.token}"} | ({"Last-Event-ID": after} if after else {})
    with httpx.stream("GET", f"{service.url}/v1/events", headers=headers, timeout=30) as answer:
        assert answer.status_code == 200
        found: dict[str, str] = {}
        for line in answer.iter_lines():
            if not line:
                break
            name, _, value = line.partition(": ")
            found[name] = value
    return found["event"], int(found["id"])


def _change(service: Service, *stores: str) -> None:
    for store in stores:
        service.client.stores.create(store, f"sqlite:////nowhere/{store}.db", kind="SYMMETRICDS")


def test_reader_from_before_a_restore_begins_anew(tmp_path: Path) -> None:
    backup, data_dir, numbers = tmp_path / "backup", tmp_path / "first", []
    with serving(data_dir) as service:
        _change(service, "kept")
        back_up(Settings(data_dir=data_dir), backup, print)
        _change(service, "lost-1", "lost-2")
        numbers.append(_begin(service)[1])
    for life in ("second", "third"):
        restored = tmp_path / life
        restore(Settings(data_dir=restored), backup, print)
        with serving(restored) as service:
            _change(service, *(f"{life}-{turn}" for turn in range(6)))
            _, last = _begin(service)
            for number in numbers:
                assert _begin(service, str(number)) == ("reset", last), (
                    "it has missed what is below its number"
                )
            assert _begin(service, str(last)) == ("ready", last)
            numbers.append(last - 1)
            service.stop()
        with serving(restored) as service:
            assert _begin(service, str(last))[0] == "ready", (
                "a start that is none after a restore changes nothing"
            )
