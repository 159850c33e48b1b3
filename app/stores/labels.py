"""Labels as a query names them."""

from collections.abc import Sequence

from app.errors import Unprocessable


def parse_labels(labels: Sequence[str]) -> dict[str, str]:
    """Labels of a query, NAME=VALUE each.

    Raises: Unprocessable: one has no =.
    """
    pairs = [label.partition("=") for label in labels]
    if any(not separator for _, separator, _ in pairs):
        raise Unprocessable("label=NAME=VALUE", code="INVALID_REQUEST")
    return {name: value for name, _, value in pairs}
