"""Files of the documentation that messages, pages and units name are there, under their present names."""

import re
from typing import Final

from tests.style.source_files import ROOT

PLACES: Final = ("app", "spark", "client", "deploy", "docs", "setup", "migrations")
SINGLE: Final = (
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "compose.yaml",
    "Dockerfile",
    "pyproject.toml",
)
ENDINGS: Final = {".py", ".md", ".yaml", ".yml", ".toml", ".service", ".env", ".sh", ".tpl", ".html", ".js"}
NAMED: Final = re.compile(r"(?<![\w./-])docs/(?:[\w-]+/)*[\w-]+\.(?:md|yml|json)")
NOT_SERVED: Final = re.compile(r"`/docs`")
FOREIGN: Final = re.compile(r"(?<![\w-])lethe\[\w+\]")


def _texts() -> dict[str, str]:
    files = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in ENDINGS]
    files += [ROOT / name for name in SINGLE]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def test_files_of_the_documentation_that_a_text_names_are_there() -> None:
    missing = {
        f"{file}: {named}"
        for file, text in _texts().items()
        for named in NAMED.findall(text)
        if not (ROOT / named).exists()
    }
    assert missing == set()


def test_no_text_sends_anybody_to_a_page_that_is_off_or_to_a_package_of_others() -> None:
    found = {
        f"{file}: {match}"
        for file, text in _texts().items()
        for match in (*NOT_SERVED.findall(text), *FOREIGN.findall(text))
    }
    assert found == set()
