"""URLs of HTTP that a request names, and that are called as they stand."""

from urllib.parse import SplitResult, urlsplit


def split_web_url(text: str, *, form: str) -> SplitResult:
    """The parts of a URL of http or https with a host, and nothing that no URL has.

    Args:
        form: what is said to whoever names another scheme, or no host.
    Raises: ValueError.
    """
    try:
        parts = urlsplit(text)
        port_is_odd = parts.port == 0
    except ValueError as error:
        raise ValueError("no URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(form)
    if port_is_odd or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("characters or a port that no URL has")
    return parts
