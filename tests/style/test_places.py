"""Where things lie: folders that one finds one's way in, tables in rows.py, HTTP bodies in models.py."""

import ast
from collections import Counter
from pathlib import PurePosixPath

from app.tables import metadata
from tests.style.source_files import ROOT, SourceFile, source_files

MODULES_MAX = 20
# Folders that are larger today, with their number of modules; a folder that shrinks leaves this list.
LARGER = {"app/purge": 26}
BODIES = {"models.py", "rows.py"}
# Modules with models elsewhere. `kit` has what no domain owns, `settings` reads the environment,
# `waits/task.py` a checkpoint that no client sees. The last two go with the sweep of all destructive kinds.
BODIES_ELSEWHERE = {
    "app/kit/pagination.py",
    "app/kit/problems.py",
    "app/settings.py",
    "app/events/waits/task.py",
    "app/jobs/trimming.py",
    "app/extinction/scan/plan_task.py",
}


def classes(file: SourceFile) -> list[ast.ClassDef]:
    return [node for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)]


def is_table(node: ast.ClassDef) -> bool:
    return any(word.arg == "table" for word in node.keywords)


def test_no_folder_is_a_corridor() -> None:
    files = [PurePosixPath(file.name) for file in source_files("app", "spark")]
    sizes = Counter(str(path.parent) for path in files if path.name != "__init__.py")
    assert {name: size for name, size in sizes.items() if size > LARGER.get(name, MODULES_MAX)} == {}
    fitting = [name for name in LARGER if sizes[name] <= MODULES_MAX]
    assert fitting == [], "these fit now: take them off the list"


def test_tables_are_in_rows_and_migrations_see_them_all() -> None:
    tables = [file.name for file in source_files("app", "spark") if any(map(is_table, classes(file)))]
    assert [name for name in tables if PurePosixPath(name).name != "rows.py"] == []
    named = {
        f"{module.replace('.', '/')}.py"
        for file in source_files("app")
        if file.name == "app/tables.py"
        for _, module in file.imported
        if module.startswith("app.")
    }
    assert named == {str(path.relative_to(ROOT)) for path in (ROOT / "app").rglob("rows.py")}
    assert len(metadata.tables) == sum(
        sum(map(is_table, classes(file))) for file in source_files("app") if file.name in named
    )


def test_bodies_are_in_models() -> None:
    found = {
        file.name
        for file in source_files("app")
        for node in classes(file)
        if {ast.unparse(parent).split("[")[0] for parent in node.bases} & {"BaseModel", "SQLModel"}
        and PurePosixPath(file.name).name not in BODIES
    }
    assert found == BODIES_ELSEWHERE


def test_one_role_has_one_file_name() -> None:
    names = [PurePosixPath(file.name) for file in source_files("app", "spark")]
    assert [str(name) for name in names if name.stem == "wire" or name.stem.endswith("_models")] == []
