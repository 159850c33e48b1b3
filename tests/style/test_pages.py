"""Pages that people read: short sentences, and words that say what they mean."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.style.source_files import ROOT
from tests.style.test_design_docs import SENTENCE_WORDS_MAX, sentences

DOCS: Final = ROOT / "docs"
PAGES: Final = [
    path
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "client/README.md")),
        *sorted(DOCS.rglob("*.md")),
    )
    if path.parent.name != "decisions"
]
GENERATED: Final = {"api.md", "commands.md", "runbook.md", "settings.md"}
WRITTEN: Final = [page for page in PAGES if page.name not in GENERATED]
VAGUE: Final = re.compile(
    r"\b(told|minds|minded|put back|the hands|starves|in moments|its slons|stands first)\b", re.IGNORECASE
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_words_say_what_they_mean(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if VAGUE.search(line)]
    assert lines == [] or page.name == "runbook.md"  # tests/style/test_runbook.py looks at its entries


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_no_sentence_of_a_written_page_is_longer_than_forty_words(page: Path) -> None:
    long = [each for each in sentences(page.read_text()) if len(each.split()) > SENTENCE_WORDS_MAX]
    assert long == []


def test_no_line_of_the_changelog_stands_twice() -> None:
    """A merge had left two."""
    lines = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]
    assert len(lines) > 100
    assert [line for line in set(lines) if lines.count(line) > 1] == []
