"""docs/design.md and docs/design: short sentences that name what they speak of, and few words."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "design.md", *sorted((DOCS / "design").glob("*.md"))]
SENTENCE_WORDS_MAX = 40
WORDS_MAX = 5_800
"""Of all pages: what code or operations.md says is not said here again."""
NAMELESS = re.compile(r"\bthe (document|program)\b", re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r"\n(?=- |\d+\. )")
_END = re.compile(r"(?:(?<=[.?!:;])|(?<=\.\*\*)|(?<=\.\)))\s+(?=[\[(*`\"']*[A-Z0-9`])")


def sentences(text: str) -> list[str]:
    """The sentences of a page; a heading, an item and a cell of a table end one."""
    found: list[str] = []
    for block in _FENCE.sub("", text).split("\n\n"):
        if block.startswith(("#", "|")):
            cells = block.replace("\n", "|").split("|")
            found += [part for cell in cells if cell.strip(" #-") for part in _END.split(cell)]
            continue
        for item in _ITEM.split(block):
            found += [part for part in _END.split(" ".join(item.split())) if part]
    return found


def test_sentences_are_told_apart() -> None:
    page = (
        "# Head\n\nOne two. `Three` four\nfive.\n- **Six.** Seven (a.b) 0.5 eight.\n- Nine\n\n```\nno\n```\n"
    )
    assert sentences(page) == [
        "# Head",
        "One two.",
        "`Three` four five.",
        "- **Six.**",
        "Seven (a.b) 0.5 eight.",
        "- Nine",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_longer_than_forty_words(page: Path) -> None:
    long = [each for each in sentences(page.read_text()) if len(each.split()) > SENTENCE_WORDS_MAX]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_spoken_of_has_a_name(page: Path) -> None:
    assert NAMELESS.findall(page.read_text()) == []


def test_all_pages_together_are_short() -> None:
    words = {page.name: len(page.read_text().split()) for page in PAGES}
    assert sum(words.values()) <= WORDS_MAX, words


@pytest.mark.parametrize("floor", ["app", "spark"])
def test_the_map_names_every_folder_and_module_of_a_floor(floor: str) -> None:
    drawn = (DOCS / "design.md").read_text().partition("```text")[2].partition("```")[0]
    named = {
        word
        for line in drawn.splitlines()
        if line.startswith((f"{floor}/", " "))
        for word in re.findall(r"[a-z_]+", line)
    }
    there = {
        path.stem
        for path in (DOCS.parent / floor).iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.name.startswith("__")
    }
    assert there - named == set()
