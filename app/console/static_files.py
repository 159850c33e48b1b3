"""Files that pages load: read once, each under a name that has its hash, so that a browser may keep it."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from app.errors import NotFound
from app.kit.http.routing import new_router

FOLDER: Final = Path(__file__).with_name("static")
PREFIX: Final = "/console/static/"
KEPT: Final = "public, max-age=31536000, immutable"
TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
router = new_router(include_in_schema=False)


@cache
def _files() -> tuple[dict[str, str], dict[str, tuple[bytes, str]]]:
    """The address of each file, and each address's bytes and type."""
    addresses, contents = {}, {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix not in TYPES:
            continue
        body = path.read_bytes()
        hashed = f"{path.stem}.{hashlib.sha256(body).hexdigest()[:16]}{path.suffix}"
        addresses[path.name] = PREFIX + hashed
        contents[hashed] = (body, TYPES[path.suffix])
    return addresses, contents


def static_url(name: str) -> str:
    """Where a browser finds a file of the folder."""
    return _files()[0][name]


@router.get(PREFIX + "{name}")
def get_static(name: str) -> Response:
    """One file; its name changes with its bytes, so it never changes."""
    found = _files()[1].get(name)
    if found is None:
        raise NotFound("there is no such file")
    body, media_type = found
    headers = {"Cache-Control": KEPT, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return Response(body, media_type=media_type, headers=headers)
