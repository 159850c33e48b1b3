"""Look for known vulnerabilities in the locked packages that are shipped: `make audit`, in `make check`.

pip-audit asks PyPI. Where its vulnerability service is not reached that is said in as many words, and nothing
counts as checked; it is no failure, for a machine without that network could check nothing. Exit code 1:
a vulnerability that setup/audit-ignore.toml does not name, or a line there whose date has passed.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
IGNORED = ROOT / "setup" / "audit-ignore.toml"
TIMEOUT_S = 300


def ignored(file: Path, today: datetime.date) -> dict[str, str]:
    """Ids that are ignored, and why; exits where a date has passed."""
    found = tomllib.loads(file.read_text())
    for name, entry in found.items():
        if entry["until"] < today:
            raise SystemExit(
                f"audit: {file.name}: {name} was ignored until {entry['until']}: look at it again"
            )
    return {name: entry["reason"] for name, entry in found.items()}


def audit(programs: Path, uv: str) -> tuple[list[dict[str, object]], str]:
    """What pip-audit says of each locked package, and what it had to complain about."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        export = [
            uv,
            "export",
            "--quiet",
            "--frozen",
            "--no-dev",
            "--all-extras",
            "--no-emit-workspace",
            "--no-hashes",
        ]
        subprocess.run(  # noqa: S603
            [*export, "--output-file", str(requirements)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        command = [
            str(programs / "pip-audit"),
            "--requirement",
            str(requirements),
            "--no-deps",
            "--disable-pip",
        ]
        ran = subprocess.run(  # noqa: S603
            [*command, "--format=json", "--progress-spinner=off", "--timeout=10"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=os.environ | {"NO_COLOR": "1"},
        )
    try:
        return json.loads(ran.stdout)["dependencies"], ran.stderr
    except (ValueError, KeyError):
        return [], ran.stderr


def main() -> int:
    """Audit, and say what was audited."""
    file = Path(sys.argv[3]) if len(sys.argv) > 3 else IGNORED
    known = ignored(file, datetime.datetime.now(datetime.UTC).date())
    packages, said = audit(Path(sys.argv[1]), sys.argv[2])
    audited = [each for each in packages if "skip_reason" not in each]
    skipped = len(packages) - len(audited)
    found = [
        (f"{each['name']} {each['version']}", vulnerability["id"], vulnerability.get("fix_versions"))
        for each in audited
        for vulnerability in each.get("vulns", ())  # type: ignore[attr-defined]
    ]
    fresh = [each for each in found if each[1] not in known]
    for package, name, fixed in fresh:
        print(f"audit: {package}: {name}, fixed in {', '.join(fixed or ['no version yet'])}", file=sys.stderr)
    if not audited:
        last = (said.strip().splitlines() or ["no answer"])[-1]
        print(f"audit: NOT CHECKED: the vulnerability service was not reached ({skipped} packages skipped)")
        print(f"audit: it said: {last[:200]}")
        return 0
    rest = f", {skipped} not known there: NOT CHECKED" if skipped else ""
    ignored_count = len(found) - len(fresh)
    print(
        f"audit: {len(audited)} packages checked{rest}; {len(found)} found, {ignored_count} of them ignored"
    )
    return 1 if fresh else 0


if __name__ == "__main__":
    sys.exit(main())
