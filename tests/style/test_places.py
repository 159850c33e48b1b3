"""Where things lie: folders that one finds one's way in, tables in rows.py, HTTP bodies in models.py."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from app.tables import metadata
from tests.style.source_files import ROOT, SourceFile, shipped_files, source_files

MODULES_MAX = 20
# What a job takes and gives has a schema as well: its parameters are in models.py, its result in results.py.
BODIES = {"models.py", "rows.py", "results.py"}
# Modules with models elsewhere. `kit` has what no domain owns, a file's form and a group of settings too;
# `settings` reads the environment.
BODIES_ELSEWHERE = {
    "app/kit/model.py",
    "app/kit/pagination.py",
    "app/kit/problems.py",
    "app/kit/spark/calibration.py",
    "app/kit/spark/settings.py",
    "app/settings.py",
}
# Who catches whatever comes, how often: where a thread, a process or a foreign format ends and nobody above
# would hear of it. All others catch what they can name; ExitStack or `finally` undo what must be undone.
BROAD_EXCEPTS = {
    "app/cli/main.py": 1,  # the last frame of the command: a bug becomes a file to report
    "app/events/preconditions/turns.py": 1,  # a look in a thread of its own: whoever waits for it gets it
    "app/hooks/deliverer.py": 1,  # an attempt: its delivery would stay under its lease, and come again
    "app/jobs/running/runner.py": 3,  # a round of a loop, an attempt, a task
    "app/replication/replica/grouping.py": 1,  # the thread that writes for all requests lives on
    "app/replication/supplier/pipeline.py": 3,  # carried from the threads to `run`, which raises it
    "app/replication/snapshots/files.py": 1,  # a draft is removed, and whatever was raised goes on
    "app/schedules/firing.py": 1,  # a schedule that breaks says so, and comes again at its next time
    "spark/exchange/board.py": 1,  # pyspark's thread: a result that pickle cannot read
    "spark/exchange/dispatch.py": 1,  # a dispatcher lives on: whoever waits for it has no other
    "spark/targets/ldap/connection.py": 2,  # what a lying server makes of ldap3 is of any kind
    "spark/targets/task.py": 2,  # a worker's process: Spark would repeat a task that fails
}
FRAME = "app/sweeps/frame.py"
# Steps of a sweep, and who takes them beside the frame. A cleanup opens its archive when it is known that the
# cluster's own function does not do it; counts of the ledger are those of the kind where it notes no windows.
STEPS_OF_A_SWEEP = {
    "end_archive": {FRAME},
    "trim_old_ledgers": {FRAME},
    "open_archive": {FRAME, "app/events/cleanup/task.py"},
    "ledger_counts": {
        FRAME,
        "app/events/cleanup/result.py",
        "app/replication/purges/attempt.py",
        "app/sweeps/counts.py",
    },
}


def classes(file: SourceFile) -> list[ast.ClassDef]:
    return [node for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)]


def is_table(node: ast.ClassDef) -> bool:
    return any(word.arg == "table" for word in node.keywords)


def test_no_folder_is_a_corridor() -> None:
    files = [PurePosixPath(file.name) for file in source_files("app", "spark")]
    sizes = Counter(str(path.parent) for path in files if path.name != "__init__.py")
    assert {name: size for name, size in sizes.items() if size > MODULES_MAX} == {}


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
        if {ast.unparse(parent).split("[")[0] for parent in node.bases} & {"BaseModel", "Model", "SQLModel"}
        and PurePosixPath(file.name).name not in BODIES
    }
    assert sorted(found - BODIES_ELSEWHERE) == []
    assert sorted(BODIES_ELSEWHERE - found) == []


def test_one_role_has_one_file_name() -> None:
    names = [PurePosixPath(file.name) for file in source_files("app", "spark")]
    assert [str(name) for name in names if name.stem == "wire" or name.stem.endswith("_models")] == []


def broad_excepts(file: SourceFile) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(kind is None or ast.unparse(kind) in {"Exception", "BaseException"} for kind in kinds):
                yield node


def test_few_catch_whatever_comes_and_each_is_named() -> None:
    found = {file.name: len(list(broad_excepts(file))) for file in shipped_files()}
    assert {name: count for name, count in found.items() if count} == BROAD_EXCEPTS


def test_programs_that_scripts_and_pages_name_are_there() -> None:
    # A module that moved left the set-up without its class data archive, and nobody was told.
    places = [ROOT / "Makefile", ROOT / "README.md", ROOT / ".ci/run", ROOT / "Dockerfile"]
    places += [*filter(Path.is_file, (ROOT / "setup").iterdir()), *(ROOT / "docs").rglob("*.md")]
    named = {
        (place.name, module)
        for place in places
        for module in re.findall(r"-m ((?:app|spark|lethe_samples)\.[\w.]*\w)", place.read_text())
    }
    assert named
    missing = [(place, name) for place, name in named if not (ROOT / f"{name.replace('.', '/')}.py").exists()]
    assert missing == []


def test_the_steps_of_a_sweep_are_taken_by_its_frame() -> None:
    called = re.compile(rf"(?<!def )\b({'|'.join(STEPS_OF_A_SWEEP)})\(")
    found: dict[str, set[str]] = {step: set() for step in STEPS_OF_A_SWEEP}
    for file in source_files("app"):
        for step in called.findall(file.text):
            found[step].add(file.name)
    assert found == STEPS_OF_A_SWEEP


def test_nothing_is_in_the_product_for_tests_alone() -> None:
    # A name that is written once, where it is defined, is nobody's but a test's. What has a decorator is
    # called by whoever decorates.
    files = source_files("app", "spark", "client", "migrations", "lethe_samples", "benchmarks", "setup")
    written = Counter(word for file in files for word in re.findall(r"\w+", file.text))
    found = [
        f"{file.name}: {node.name}"
        for file in source_files("app", "spark")
        for node in file.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.decorator_list
        and written[node.name] == 1
    ]
    assert found == []
