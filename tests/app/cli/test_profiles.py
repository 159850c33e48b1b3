"""`lethe login`, `lethe profile`, and which service and token a command takes."""

import json
import stat
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from app.cli.shell.access import URL_DEFAULT, Access, resolve

ME = {"name": "nightly", "token_id": "tok_1", "scopes": ["jobs:read"], "stores": None, "expires_at": None}


@pytest.fixture
def home(lethe, service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of settings of one's own, and an environment that says nothing of a service."""
    for name in ("LETHE_URL", "LETHE_TOKEN", "LETHE_TOKEN_FILE", "LETHE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    service.on("GET /v1/whoami", (200, ME))
    return tmp_path


@pytest.fixture
def logged_in(lethe, service, home: Path, monkeypatch: pytest.MonkeyPatch):
    """Two profiles of the same service: `first` holds its token, `second`, in use, a file."""
    (home / "second.token").write_text("the-second\n")
    monkeypatch.setattr("sys.stdin", StringIO("the-first\n"))
    assert lethe("login", service.url, "--profile", "first", "--token-file", "-").code == 0
    named = ["--profile", "second", "--token-file", str(home / "second.token")]
    assert lethe("login", service.url, *named).code == 0
    service.asked.clear()
    return lethe


def sent(service) -> str | None:
    """The token of the last request."""
    return service.asked[-1][3].get("authorization", "").removeprefix("Bearer ") or None


def file_of(home: Path) -> Path:
    return home / "config" / "lethe" / "profiles.json"


def test_login_keeps_a_token_or_where_it_lies_for_the_owner_alone(logged_in, home: Path, service) -> None:
    file = file_of(home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    kept = json.loads(file.read_text())
    assert kept == {
        "current": "second",
        "profiles": {
            "first": {"url": service.url, "token": "the-first", "token_file": None},
            "second": {"url": service.url, "token": None, "token_file": str(home / "second.token")},
        },
    }
    assert list(file.parent.iterdir()) == [file]
    shown = logged_in("profile", "list")
    assert "the-first" not in shown.out
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ["first", "second"]
    assert "the-first" not in logged_in("profile", "list", "--json").out


def test_a_token_that_the_service_refuses_is_not_kept(lethe, service, home: Path) -> None:
    service.on("GET /v1/whoami", (401, {"code": "TOKEN_INVALID", "detail": "no", "status": 401}))
    (home / "token").write_text("wrong")
    run = lethe("login", service.url, "--token-file", str(home / "token"))
    assert (run.code, "TOKEN_INVALID" in run.err) == (77, True)
    assert not file_of(home).exists()


def test_an_option_goes_before_the_environment_and_that_before_the_profile(
    logged_in, service, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert logged_in("whoami").code == 0
    assert sent(service) == "the-second"
    monkeypatch.setenv("LETHE_PROFILE", "first")
    logged_in("whoami")
    assert sent(service) == "the-first"
    monkeypatch.setenv("LETHE_TOKEN", "of-the-environment")
    logged_in("whoami")
    assert sent(service) == "of-the-environment"
    logged_in("whoami", "--profile", "second")
    assert sent(service) == "the-second"
    (home / "third.token").write_text("the-third")
    logged_in("whoami", "--profile", "second", "--token-file", str(home / "third.token"))
    assert sent(service) == "the-third"


def test_the_file_of_the_environment_is_that_of_the_client_library(
    logged_in, service, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library took LETHE_TOKEN_FILE and the command did not: it sent no token, or a profile's."""
    (home / "named.token").write_text("the-named\n")
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN_FILE", str(home / "named.token"))
    assert logged_in("whoami").code == 0
    assert sent(service) == "the-named"
    assert logged_in("whoami", "--profile", "first").code == 0
    assert sent(service) == "the-first"
    monkeypatch.setenv("LETHE_TOKEN", "the-word")
    assert logged_in("whoami").code == 0
    assert sent(service) == "the-word"
    monkeypatch.delenv("LETHE_TOKEN")
    monkeypatch.setenv("LETHE_TOKEN_FILE", str(home / "none.token"))
    assert logged_in("whoami").code == 78


def test_the_address_follows_the_same_order(logged_in, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "http://127.0.0.1:9"
    assert logged_in("whoami").code == 0
    monkeypatch.setenv("LETHE_URL", nowhere)
    assert logged_in("whoami").code == 75
    assert logged_in("whoami", "--profile", "first").code == 0
    assert logged_in("whoami", "--profile", "first", "--url", nowhere).code == 75


def test_a_token_of_a_profile_goes_to_its_own_address_alone(logged_in, service, home: Path) -> None:
    other = service.url.replace("127.0.0.1", "localhost")
    assert logged_in("whoami", "--url", other).code == 0
    assert sent(service) is None
    assert logged_in("whoami", "--url", other, "--profile", "first").code == 0
    assert sent(service) is None
    (home / "admin.token").write_text("of-this-machine")
    found = resolve(url=None, token_file=None, data_dir=home, profile=None)
    assert found == Access(URL_DEFAULT, "of-this-machine"), "no profile speaks for a data directory"


def test_profiles_are_chosen_and_forgotten(logged_in, service, home: Path) -> None:
    assert logged_in("profile", "use", "first").code == 0
    logged_in("whoami")
    assert sent(service) == "the-first"
    assert logged_in("profile", "remove", "first").code == 0
    kept = json.loads(file_of(home).read_text())
    assert (kept["current"], list(kept["profiles"])) == (None, ["second"])
    for words in (("use", "first"), ("remove", "first")):
        run = logged_in("profile", *words)
        assert (run.code, "no profile is named 'first'" in run.err) == (78, True)
    assert logged_in("whoami", "--profile", "first").code == 78


def test_what_is_said_of_a_damaged_file_helps(logged_in, service, home: Path) -> None:
    # "write them anew by lethe login" it said, and login failed in the same way.
    file = file_of(home)
    file.write_text("{")
    again = ("login", service.url, "--profile", "second", "--token-file", str(home / "second.token"))
    refused = logged_in(*again)
    assert refused.code == 78
    assert f"{file} are damaged: move the file away, then log in again" in refused.err
    file.rename(home / "damaged.json")
    assert logged_in(*again).code == 0
    assert logged_in("profile", "list").code == 0


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        (None, 0o640, "chmod 600"),
        ("{", 0o600, "damaged"),
        ('{"profiles": {"a": {"url": 7, "token": "SECRET"}}}', 0o600, "damaged"),
        ('{"profiles": {"a": {"url": "http://a", "token": "SECRET", "token_file": "f"}}}', 0o600, "damaged"),
        ('{"current": "b", "profiles": {}}', 0o600, "damaged"),
        ('{"profiles": {"a": {"url": "http://a", "token": "SECRET", "more": 1}}}', 0o600, "damaged"),
    ],
)
def test_a_file_that_others_read_or_that_is_damaged_is_not_used(
    logged_in, service, home: Path, content: str | None, mode: int, expected: str
) -> None:
    file = file_of(home)
    if content is not None:
        file.write_text(content)
    file.chmod(mode)
    for words in (("whoami",), ("profile", "list")):
        run = logged_in(*words)
        assert (run.code, expected in run.err) == (78, True)
        assert "SECRET" not in run.err
    assert service.asked == []


def test_a_command_that_names_all_does_not_need_the_file(
    logged_in, service, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of(home).write_text("{")
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", "t")
    assert logged_in("whoami").code == 0


def completed(*words: str, home: Path) -> list[str]:
    """What bash offers after these words, by the command's own program."""
    environment = {
        "_LETHE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("lethe", *words)),
        "COMP_CWORD": str(len(words)),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PATH": "/usr/bin:/bin",
    }
    program = Path(sys.executable).with_name("lethe")
    run = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=True)
    return run.stdout.split()


def test_a_shell_completes_nouns_verbs_options_and_profiles(logged_in, home: Path) -> None:
    assert completed("st", home=home) == ["status", "store"]
    assert completed("store", "a", home=home) == ["add", "add-environment"]
    assert completed("store", "add", "--ti", home=home) == ["--time-zone"]
    assert completed("whoami", "--profile", "s", home=home) == ["second"]


def test_the_script_of_a_shell_is_printed() -> None:
    program = Path(sys.executable).with_name("lethe")
    environment = {"_LETHE_COMPLETE": "source_bash", "PATH": "/usr/bin:/bin"}
    run = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "complete -o default -F _lethe_completion lethe" in run.stdout
