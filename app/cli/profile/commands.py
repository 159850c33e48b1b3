"""`lethe profile`: which services `lethe login` has kept, and which one is used."""

from dataclasses import replace
from typing import Annotated

import typer
from lethe_client import LetheError

from app.cli.shell.complaints import complaint
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import Output
from app.cli.shell.profiles import (
    complete_profile,
    find_profile,
    load_profiles,
    profiles_path,
    save_profiles,
)
from app.cli.shell.session import Json

app = typer.Typer(
    name="profile",
    no_args_is_help=True,
    add_completion=False,
    help="Services by name: see `lethe login`.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the profile.", autocompletion=complete_profile)]


@app.command("list")
def list_profiles(json: Json = False) -> int:
    """List the profiles, without their tokens.

    Example: lethe profile list
    """
    out = Output(json=json)
    try:
        known = load_profiles()
    except LetheError as error:
        return out.complain(complaint(error))
    rows = [
        {"profile": name, "url": each.url, "token_file": each.token_file, "current": name == known.current}
        for name, each in known.profiles.items()
    ]
    out.document({"items": rows, "file": str(profiles_path())})
    out.table(["profile", "url", "token file", "in use"], [list(row.values()) for row in rows])
    return ExitCode.OK


@app.command("use")
def use(name: Name, json: Json = False) -> int:
    """Use a profile where no option and no variable names another.

    Example: lethe profile use production
    """
    out = Output(json=json)
    try:
        url = find_profile(name).url
        save_profiles(replace(load_profiles(), current=name))
    except LetheError as error:
        return out.complain(complaint(error))
    out.document({"profile": name, "url": url, "current": True})
    out.say(f"{name} is in use: {url}.")
    return ExitCode.OK


@app.command("remove")
def remove(name: Name, json: Json = False) -> int:
    """Forget a profile. Its token stays valid: see `lethe token revoke`.

    Example: lethe profile remove production
    """
    out = Output(json=json)
    try:
        find_profile(name)
        known = load_profiles()
        kept = {each: profile for each, profile in known.profiles.items() if each != name}
        save_profiles(replace(known, current=None if known.current == name else known.current, profiles=kept))
    except LetheError as error:
        return out.complain(complaint(error))
    out.document({"profile": name, "removed": True})
    out.say(f"{name} is forgotten.")
    return ExitCode.OK
