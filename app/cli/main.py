"""The `lethe` command. Every way out of here is an exit code of exits.py, and none is a traceback."""

import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import typer
from typer.main import get_command

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.lazy import LazyGroup, Noun
from app.cli.shell.output import Output
from app.cli.shell.streams import OutputLost, Words, open_missing
from app.kit.texts.distribution import installed_version


class Root(LazyGroup):
    """All nouns, in the order in which help lists them."""

    nouns: ClassVar[Mapping[str, Noun]] = {
        "serve": Noun("app.cli.service.serve", "Run the service: API, runner, metadata."),
        "worker": Noun("app.cli.service.worker", "Run a runner alone, on the same PostgreSQL metadata."),
        "migrate": Noun("app.cli.service.migrate", "Bring the metadata database to this version."),
        "metadata": Noun("app.cli.service.metadata", "Back up, restore, check Lethe's own metadata."),
        "demo": Noun("app.cli.demo.commands", "See a purge, an erasure and replicas, on samples."),
        "status": Noun("app.cli.overview.status", "All stores at one look, what needs somebody first."),
        "events": Noun("app.cli.overview.events", "What happens to jobs, backups, sessions, live."),
        "explain": Noun("app.cli.overview.explain", "What a code means, and what to do next."),
        "login": Noun("app.cli.profile.login", "Keep a service's address and token under a name."),
        "profile": Noun("app.cli.profile.commands", "Services by name: list, use, remove."),
        "whoami": Noun("app.cli.overview.whoami", "What this token is and may do."),
        "store": Noun("app.cli.store", "Register targets, look at them, check them."),
        "secret": Noun("app.cli.secret", "Where passwords and tokens lie, and who may use them."),
        "purge": Noun("app.cli.purge", "Plan and run purges."),
        "erasure": Noun("app.cli.erasure.commands", "Erase obsolete data from the logs of JE environments."),
        "extinction": Noun("app.cli.extinction", "Discard records whose keys will never be used again."),
        "fleet": Noun("app.cli.fleet", "One purge over many stores, by their labels."),
        "job": Noun("app.cli.job", "Watch and control what is running."),
        "schedule": Noun("app.cli.schedule", "Jobs that come by themselves."),
        "window": Noun("app.cli.window", "When destructive jobs may work."),
        "backup": Noun("app.cli.backup.commands", "Back up a JE environment; no eraser disturbs it."),
        "protection": Noun("app.cli.protection", "Files that no eraser may touch."),
        "certificate": Noun("app.cli.erasure.certificate", "What an erasure did, signed: fetch and check."),
        "archive": Noun("app.cli.archive", "What purges kept: list, verify, restore."),
        "changes": Noun("app.cli.replication.changes", "Write changes to a replica; list its changelog."),
        "entries": Noun("app.cli.replication.entries", "What a replica holds, by key."),
        "replica": Noun("app.cli.replication.replica", "Export a replica into a file; import it."),
        "replication": Noun(
            "app.cli.replication.commands", "Bring changes to other replicas, and compare them."
        ),
        "slony": Noun("app.cli.slony.commands", "Slony-I nodes: status, wait, cleanup, log switch."),
        "symmetricds": Noun(
            "app.cli.symmetricds.commands", "SymmetricDS: what waits, what holds a purge back."
        ),
        "ds389": Noun("app.cli.ds389.commands", "389 Directory Server: health, topology, lost changes."),
        "je": Noun("app.cli.erasure.je", "Look into the log of a Berkeley DB JE environment."),
        "parameter": Noun("app.cli.parameter", "Parameters, such as purge.retention.minutes."),
        "webhook": Noun("app.cli.webhook", "Alerts: which receivers get which events."),
        "token": Noun("app.cli.token", "Who may do what."),
        "audit": Noun("app.cli.service.audit", "Who has done what: list, export, verify."),
        "instance": Noun("app.cli.service.instances", "The processes that run jobs."),
        "signing-key": Noun("app.cli.erasure.signing_keys", "Keys that certificates are signed with."),
        "spark-pool": Noun("app.cli.spark_pool.commands", "The pooled Spark: look, drain, calibrate."),
        "recover": Noun("app.cli.recover", "Take a store back after the metadata was restored."),
    }


app = typer.Typer(
    name="lethe",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make replicated data go away, and move it first, without losing what is still needed.",
    epilog=(
        "Exit codes: 0 done, 1 failed, 64 usage, 70 bug, 75 try again, 77 not allowed, 78 configuration,"
        " 130 Ctrl-C."
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lethe {installed_version()}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Options of the root itself."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    open_missing()
    arguments = list(sys.argv[1:] if args is None else args)
    out = Output(json="--json" in arguments)
    try:
        code = _run(arguments, out)
        Words(sys.stdout).flush()
    except OutputLost as error:
        detail = f"standard output: {error}"
        return out.complain(Complaint("FILE_UNWRITABLE", detail, ExitCode.FAILED, error.advice))
    return code


def _run(arguments: list[str], out: Output) -> int:
    try:
        code = get_command(app).main(args=arguments, prog_name="lethe", standalone_mode=False)
    except typer.TyperException as error:
        return _usage(error, out)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit as end:
        # `lethe events --follow | head`: the reader has seen enough. Typer and rich make a 1 of it.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return ExitCode.OK
    except OutputLost:
        raise
    except UnicodeEncodeError:
        if all(map(_is_text, arguments)):
            return _bug(out)
        detail = "an argument has bytes that are not UTF-8; give it as text"
        return out.complain(Complaint("USAGE", detail, ExitCode.USAGE))
    except Exception:  # noqa: BLE001 -- the last frame of the command: the user gets a file, not a traceback
        return _bug(out)
    return ExitCode.OK if code is None else int(code)


def _is_text(argument: str) -> bool:
    """Whether the shell gave it as UTF-8: other bytes are half of a pair of UTF-16 in Python."""
    return not any("\udc80" <= each <= "\udcff" for each in argument)


def _usage(error: typer.TyperException, out: Output) -> int:
    # No arguments at all: the help has been printed already, as typer's own handler knows by this name too.
    if type(error).__name__ == "NoArgsIsHelpError":
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    advice = f"See: {context.command_path} --help" if context is not None else "See: lethe --help"
    if context is not None and context.parent is None and type(error).__name__ == "NoSuchOption":
        advice = f"Options stand behind the command, as in `lethe store list --json`. {advice}"
    detail = error.format_message().replace(": Value error, ", ": ", 1)  # pydantic's words
    return out.complain(Complaint("USAGE", detail, ExitCode.USAGE, advice))


def _bug(out: Output) -> int:
    kind = sys.exc_info()[0]
    detail = f"the command failed in a way that it should not ({kind.__name__ if kind else 'unknown'})"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="lethe-bug-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
    except OSError as error:
        advice = f"Its traceback could not be kept ({error.strerror}): make room, and do it again"
    else:
        advice = f"Please report it with the file {file.name}"
    return out.complain(Complaint("BUG", detail, ExitCode.BUG, advice))


if __name__ == "__main__":
    sys.exit(main())
