"""Pages that a newcomer reads: short sentences, and words that say what they mean."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.style.source_files import ROOT
from tests.style.test_design_docs import SENTENCE_WORDS_MAX, sentences

DOCS: Final = ROOT / "docs"
PAGES: Final = [
    path
    for path in (ROOT / "README.md", ROOT / "client" / "README.md", *sorted(DOCS.rglob("*.md")))
    if path.parent.name != "decisions"
]
NEWCOMERS: Final = [
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "concepts" / "promises.md",
    *(DOCS / "how-to" / f"{name}.md" for name in ("install", "recipes", "slony")),
    *sorted((DOCS / "how-to").glob("run-*.md")),
    *sorted((DOCS / "tutorial").glob("*.md")),
]
VAGUE: Final = re.compile(
    r"\b(told|minds|minded|put back|the hands|starves|in moments|its slons|stands first)\b", re.IGNORECASE
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_words_say_what_they_mean(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if VAGUE.search(line)]
    generated = page.name == "runbook.md"  # tests/style/test_runbook.py looks at its entries
    assert lines == [] or generated


@pytest.mark.parametrize("page", NEWCOMERS, ids=lambda page: page.name)
def test_no_sentence_of_a_page_for_newcomers_is_longer_than_forty_words(page: Path) -> None:
    long = [each for each in sentences(page.read_text()) if len(each.split()) > SENTENCE_WORDS_MAX]
    assert long == []
