"""Names and sizes: a module reads in one sitting, a function does one thing."""

import ast
import re
import subprocess
from pathlib import PurePosixPath

from tests.style.source_files import ROOT, shipped_files, source_files

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
EMPTY_NAMES = {"utils", "helpers", "common", "misc", "manager", "base"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
BARE_IGNORE = re.compile(r"#\s*(type: ignore(?!\[)|noqa(?!:))")


def test_module_names_say_a_concept() -> None:
    names = {file.name: set(re.split(r"[/.]", file.name)) for file in source_files(".ci", "tests", "setup")}
    names |= {file.name: set(re.split(r"[/.]", file.name)) for file in shipped_files()}
    assert [name for name, parts in names.items() if parts & EMPTY_NAMES] == []


def test_files_are_read_in_one_sitting() -> None:
    long = [f"{file.name}: {len(file.text.splitlines())}" for file in shipped_files()]
    long = [row for row in long if int(row.split(": ")[1]) > FILE_LINES_MAX]
    assert long == []


def test_functions_are_short() -> None:
    long = []
    for file in shipped_files():
        for function in file.functions:
            assert function.end_lineno is not None
            lines = function.end_lineno - function.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                long.append(f"{file.name}:{function.lineno} {function.name}: {lines} lines")
    assert long == []


def test_nothing_shipped_is_unfinished() -> None:
    found = [
        f"{file.name}:{number} {line.strip()}"
        for file in shipped_files()
        for number, line in enumerate(file.text.splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_silenced_checks_name_what_they_silence() -> None:
    found = [
        f"{file.name}:{number} {line.strip()}"
        for file in (*shipped_files(), *source_files("tests", "setup", "migrations", "benchmarks"))
        for number, line in enumerate(file.text.splitlines(), start=1)
        if BARE_IGNORE.search(line)
    ]
    assert found == []


def test_tests_use_fakes_not_patches_of_code() -> None:
    # monkeypatch of the environment is fine; replacing functions by name ties a test to how code is written.
    found = [
        f"{file.name}:{line} {name}"
        for file in source_files("tests")
        for line, name in file.imported
        if name.startswith(("unittest.mock", "mock."))
    ]
    assert found == []


def test_test_names_tell_situation_and_outcome() -> None:
    short = [
        f"{file.name}:{node.lineno} {node.name}"
        for file in source_files("tests")
        for node in file.functions
        if node.name.startswith("test_") and node.name.count("_") < 2
    ]
    assert short == []


def test_clock_is_asked_only_by_the_clock() -> None:
    # "Throttles, cycles, leases and schedules never ask the OS for the time"; the lower floor knows no clock.
    # The command is a program of its own beside the service and has none of these.
    forbidden = {("datetime", "now"), ("datetime", "utcnow"), ("date", "today"), ("time", "time")}
    found = []
    for file in source_files("app", "spark"):
        if file.name == "app/clock.py" or file.name.startswith("app/cli/"):
            continue
        found += [
            f"{file.name}:{node.lineno} {ast.unparse(node)}"
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Attribute) and (ast.unparse(node.value), node.attr) in forbidden
        ]
    assert found == []


def test_metadata_is_committed_in_one_place() -> None:
    # docs/decisions/0005: the answer follows the commit, since nothing but Database.transaction() commits.
    found = [
        f"{file.name}:{node.lineno}"
        for file in source_files("app")
        if file.name != "app/db.py"
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    ]
    assert found == []


def test_environment_is_read_only_by_settings() -> None:
    # A secret may lie in a variable LETHE_SECRET_*: reading it is what app/secrets/reading.py is for.
    # libpq reads PGSERVICE by itself: postgresql_connect takes it away, app/db.py keeps it for the metadata.
    # The JVM inherits the environment, with a few names changed: spark/pool/jvm.py hands it on.
    allowed = {
        "app/db.py",
        "app/secrets/reading.py",
        "app/settings.py",
        "spark/pool/jvm.py",
        "spark/targets/dialects/postgresql_connect.py",
    }
    found = [
        f"{file.name}:{node.lineno}"
        for file in source_files("app", "spark")
        if file.name not in allowed and not file.name.startswith("app/cli/")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}
    ]
    assert found == []


# What a newcomer looks for, and what its own tools look for, by these names and at this place.
ROOT_FILES = {
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"),
    *("Dockerfile", "Makefile", "compose.yaml", "mkdocs.yml", "pyproject.toml", "uv.lock"),
    *(".dockerignore", ".gitignore"),
}
ROOT_FOLDERS = {
    *("app", "spark", "client", "migrations", "lethe_samples"),
    *("benchmarks", "deploy", "docs", "openapi", "setup", "tests", ".ci"),
}


def test_root_holds_what_a_newcomer_looks_for_and_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [PurePosixPath(name) for name in listed.splitlines()]
    assert {path.name for path in paths if len(path.parts) == 1} == ROOT_FILES
    assert {path.parts[0] for path in paths if len(path.parts) > 1} == ROOT_FOLDERS
    for folder in ("client", "client/sources"):
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
