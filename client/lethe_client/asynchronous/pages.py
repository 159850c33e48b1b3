"""Made by `make client` from lethe_client/pages.py: change that, not this."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.errors import UnexpectedAnswer
from lethe_client.pages import PAGE_SIZE, PAGES_MAX, T
from lethe_client.transport import Call


async def items(
    transport: AsyncTransport,
    path: str,
    kind: type[T],
    *,
    params: Mapping[str, Any] | None = None,
    page_size: int | None = PAGE_SIZE,
) -> AsyncIterator[T]:
    """Yield every item of a list, fetching a page when it is needed.

    Args:
        page_size: None: the list is one page, and takes no words on pages.
    Raises: UnexpectedAnswer: a page token that comes back unchanged, which would go on for ever.
    """
    token = ""
    for _ in range(PAGES_MAX):
        query = {**(params or {}), "page_size": page_size, "page_token": token or None}
        body = (await transport.request(Call(method="GET", path=path, params=query, repeatable=True))).body
        if not isinstance(body, dict) or not isinstance(body.get("items"), list):
            raise UnexpectedAnswer(f"{path} did not answer a page")
        for item in body["items"]:
            yield decode(kind, item)
        following = body.get("next_page_token") or ""
        if not following:
            return
        if following == token:
            raise UnexpectedAnswer(f"{path} answered the same page token twice")
        token = following
    raise UnexpectedAnswer(f"{path} has more than {PAGES_MAX} pages")
