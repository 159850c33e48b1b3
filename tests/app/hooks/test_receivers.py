"""Where a webhook may lead, however its URL is written."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from app.db import Database
from app.hooks.errors import WebhookRefused
from app.hooks.models import ReceiverUrl
from app.hooks.service import LOOPBACK, check_receiver, hosts_of, is_on_loopback
from app.settings import Settings
from tests.app.hooks.outboxes import make_hook

URL: TypeAdapter[str] = TypeAdapter(ReceiverUrl)
SPELLINGS = ("HTTP://", "hTTp://", "Http://", "http://")


@pytest.mark.parametrize("scheme", SPELLINGS)
def test_clear_text_is_known_however_its_scheme_is_written(
    scheme: str, sqlite_database: Database, settings: Settings
) -> None:
    far = f"{scheme}10.0.0.5:8080/x"
    assert URL.validate_python(far) == "http://10.0.0.5:8080/x"
    for word in (False, True):  # a row from before, too
        hook = make_hook(sqlite_database, far, clear_text_on_loopback=word)
        with pytest.raises(WebhookRefused, match="http only to this machine"):
            check_receiver(hook, settings=settings)
    near = make_hook(sqlite_database, f"{scheme}127.0.0.1:8080/x", clear_text_on_loopback=False)
    with pytest.raises(WebhookRefused):
        check_receiver(near, settings=settings)
    assert hosts_of(far, settings) == (LOOPBACK,)


def test_a_url_keeps_all_but_the_case_of_its_scheme() -> None:
    assert URL.validate_python("HTTPS://Alerts.Example/A?b=C") == "https://Alerts.Example/A?b=C"
    for wrong in ("FTP://alerts.example/", "HTTP:/alerts.example", " http://alerts.example/x"):
        with pytest.raises(ValidationError):
            URL.validate_python(wrong)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::ffff:0:a9fe:a9fe",
    ],
)
def test_a_links_address_is_no_receiver_however_it_is_written(
    host: str, sqlite_database: Database, settings: Settings
) -> None:
    shown = f"[{host}]" if ":" in host else host
    hook = make_hook(sqlite_database, f"https://{shown}/latest")
    with pytest.raises(WebhookRefused) as refused:
        check_receiver(hook, settings=settings)
    assert refused.value.code == "HOST_NOT_ALLOWED"


@pytest.mark.parametrize(
    "host", ["[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::7f00:1]"]
)
def test_this_machine_is_known_however_it_is_written(host: str) -> None:
    assert is_on_loopback(f"https://{host}/x")
