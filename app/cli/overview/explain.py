"""`lethe explain`: what a code means and what to do next, without a service."""

from typing import Annotated, Final

import typer

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from app.kit.texts.help import help_of
from app.runbook.page import PASSES, seen_text
from app.runbook.registry import RUNBOOK, nearest, normal
from app.runbook.settings.entry import Setting
from app.runbook.settings.registry import SETTINGS, variable

app = typer.Typer(name="explain", add_completion=False, help="What a code means, and what to do next.")

ALL: Final = "All of them: docs/reference/runbook.md."


@app.command("explain")
def explain(
    code: Annotated[
        str, typer.Argument(help="Of a problem, a job's error, a wait or `lethe status`; or LETHE_...")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Say what a code or a setting means, what to do next, and whether it passes by itself.

    Example: lethe explain TARGET_UNREACHABLE
    Example: lethe explain LETHE_DATA_DIR
    """
    out = Output(json=json)
    if setting := SETTINGS.get(variable(code)):
        return _explain_setting(out, setting)
    entry = RUNBOOK.get(normal(code))
    if entry is None:
        alike = nearest(code)
        advice = f"Nearest: {', '.join(alike)}. {ALL}" if alike else ALL
        return out.complain(Complaint("CODE_UNKNOWN", f"no code is named {code}", ExitCode.USAGE, advice))
    out.document(
        {
            "code": entry.code,
            "meaning": entry.meaning,
            "next": entry.next,
            "passes_by_itself": entry.passes.value,
            "seen": [each.value for each in entry.seen],
            "help": help_of(entry.code),
        }
    )
    out.facts(
        {
            "code": entry.code,
            "meaning": entry.meaning,
            "next": entry.next,
            "by itself": PASSES[entry.passes],
            "seen": seen_text(entry),
            "help": help_of(entry.code),
        }
    )
    return ExitCode.OK


def _explain_setting(out: Output, setting: Setting) -> int:
    facts = {
        "setting": setting.name,
        "meaning": setting.meaning,
        "default": setting.default,
        "when wrong": setting.wrong,
    }
    out.document({name.replace(" ", "_"): text for name, text in facts.items()})
    out.facts(facts)
    return ExitCode.OK
