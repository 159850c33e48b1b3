"""`make client`: write client/lethe_client/literals.py, states and kinds as types, from OpenAPI."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = ROOT / "openapi" / "openapi.json"
TARGET: Final = ROOT / "client" / "lethe_client" / "literals.py"
HEAD: Final = '''"""States and kinds as types, with the values that this version of the service knows.

A newer service may answer others, and they are handed on as they come: a type checker knows these. Each alias
has the name of its schema in the OpenAPI document. Made by `make client` from openapi/openapi.json: a name
more or less is one of setup/client_literals.py.
"""

from typing import Literal
'''
ALIASES: Final = {
    "AgreementState": "",
    "AttentionCode": "",
    "BackupMode": "",
    "BackupState": "",
    "ConfirmationState": "",
    "CycleState": "",
    "DeliveryState": "",
    "EraseKind": "",
    "ExtinctionOrigin": "",
    "ExtinctionState": "",
    "ExtinctionStatus": "",
    "FileState": "",
    "FindingSeverity": "",
    "GrantState": "",
    "HealthState": "",
    "JobKind": "JobRead/discriminator/mapping",
    "JobState": "",
    "PoolState": "SparkPoolRead/properties/state",
    "ProtectionKind": "",
    "ProtectionState": "",
    "PurgeKind": "",
    "SessionOutcome": "",
    "SessionState": "",
    "Severity": "",
    "SlotState": "SparkSlot/properties/state",
    "StoreKind": "",
    "StoreMode": "",
    "StrandedMode": "",
    "WindowKind": "",
}
"""Each alias, and where its values lie among the schemas; empty: under its own name."""


def values_of(schemas: dict[str, Any], name: str, place: str) -> list[str]:
    """The values of an alias, in the order of its schema.

    Raises: KeyError: there is no such schema.
    """
    node: Any = schemas
    for part in (place or name).split("/"):
        node = node[part]
    return list(node.get("enum") or node.get("x-extensible-enum") or node)


def text() -> str:
    """The module, as it is formatted."""
    schemas = json.loads(DOCUMENT.read_text())["components"]["schemas"]
    lines = [HEAD]
    for name, place in ALIASES.items():
        lines.append(f"{name} = Literal[{', '.join(map(json.dumps, values_of(schemas, name, place)))}]")
    ruff = Path(sys.executable).with_name("ruff")
    formatted = subprocess.run(  # noqa: S603 -- this environment's own ruff
        [str(ruff), "format", "--stdin-filename", str(TARGET), "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        check=True,
        text=True,
    )
    return formatted.stdout


if __name__ == "__main__":
    TARGET.write_text(text())
