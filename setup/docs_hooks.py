"""What pages need to become a site: the words behind a fence go, and links that leave docs/ become names.

The project has no public address, so a link to a file of the source has nowhere to lead to on the site. It
becomes the file's path, and a path that is not there is an error.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w+)[^\n`]*$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Change one page before it is rendered."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def named(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        is_page = path.startswith("docs/") and path.endswith((".md", ".png"))
        if is_page and (ROOT / path).is_file():
            return link[0]
        if not (ROOT / path).exists():
            raise PluginError(f"{page.file.src_uri}: there is no {path}")
        return f"{link[1]} (`{path}`)" if path not in link[1] else link[1]

    return LINK.sub(named, FENCE.sub(r"```\1", markdown))
