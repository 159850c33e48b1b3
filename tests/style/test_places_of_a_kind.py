"""Where a kind of store with a purge of its own is named: the files of docs/contributing.md and no others.

Asked of the kind SQL and its purge ROWS, which was added last. A module names them when it imports something
of theirs, or says the name itself. Prose (docstrings, sentences for operators) does not count.
"""

import ast
import re

from tests.style.source_files import ROOT, SHIPPED, SourceFile, source_files

OWN_FOLDERS = ("app/rows/", "spark/rows/")
OWN_FILES = {
    "app/cli/kinds/sql.py",
    "app/cli/purge_rows.py",
    "app/kinds/sql.py",
    "app/verbs/stores/sql.py",
    "client/lethe_client/rows.py",
}
MADE = {"client/lethe_client/literals.py"}
"""By `make client`, from the OpenAPI document."""
OTHER_WORDS = {
    "app/description.py",
    "app/events/health/models.py",
    "app/jobs/engines/choice.py",
    "app/jobs/engines/spark_hands.py",
    "app/jobs/models.py",
    "app/kit/spark/thresholds.py",
    "app/runbook/entries/answers/engines.py",
    "spark/events/health/judge.py",
    "spark/events/health/records.py",
}
"""Their ROWS is a unit of measure, or why an engine was chosen."""
WALKERS = {
    "app/purge/kinds/upkeep.py",
    "spark/upkeep/parts.py",
    "spark/upkeep/plan.py",
    "spark/upkeep/recapture/acts.py",
    "spark/upkeep/recapture/judging.py",
    "spark/upkeep/recapture/tables.py",
    "spark/upkeep/unit.py",
    "spark/upkeep/walk.py",
}
"""The smaller purges of SymmetricDS walk as ROWS does, with its pieces."""
CLOSED = {"app/jobs/running/newer.py"}
"""Names the kinds of purges from before each had a label of its own; none comes to them."""
FILES_MAX = 8
NAMES = {"SQL", "ROWS"}
ENUMS = {"StoreKind", "PurgeKind"}
RECIPE = "docs/contributing.md"


def is_own(name: str) -> bool:
    return name.startswith(OWN_FOLDERS) or name in OWN_FILES


def module_of(name: str) -> str:
    return name.removeprefix("client/").removesuffix(".py").replace("/", ".").strip(".")


OWN_MODULES = tuple(module_of(name) for name in (*OWN_FOLDERS, *OWN_FILES))


MAY_NAME = re.compile(r"""["'.](SQL|ROWS)\b|\b(purge_rows|rows|sql)\b""")


def names_the_kind(file: SourceFile) -> bool:
    if not MAY_NAME.search(file.text):
        return False
    if any(f"{name}.".startswith(f"{own}.") for _, name in file.imported for own in OWN_MODULES):
        return True
    return any(
        (isinstance(node, ast.Constant) and node.value in NAMES)
        or (
            isinstance(node, ast.Attribute)
            and node.attr in NAMES
            and isinstance(node.value, ast.Name)
            and node.value.id in ENUMS
        )
        for node in ast.walk(file.tree)
    )


def listed() -> list[str]:
    """The files that the recipe names, a row of its table each."""
    section = (ROOT / RECIPE).read_text().split("## A new kind of store\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([a-z_/]+\.py)` \|", section, flags=re.MULTILINE)


def test_the_recipe_names_all_files_that_name_a_kind_of_store() -> None:
    files = {file.name: file for file in source_files(*SHIPPED) if not is_own(file.name)}
    naming = {name for name, file in files.items() if names_the_kind(file)}
    left_out = MADE | OTHER_WORDS | WALKERS | CLOSED
    assert naming >= left_out, "what is left out does not name the kind any more"
    assert sorted(naming - left_out) == sorted(listed())
    assert len(listed()) <= FILES_MAX


def test_the_modules_of_the_kind_are_there() -> None:
    there = {file.name for file in source_files(*SHIPPED)}
    assert there >= OWN_FILES
    assert all(any(name.startswith(folder) for name in there) for folder in OWN_FOLDERS)
