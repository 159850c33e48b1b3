"""Settings that are lists."""

from ipaddress import ip_network


def split(value: object) -> object:
    """The parts of comma-separated text; anything else as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def networks(values: list[str]) -> list[str]:
    """Addresses and networks, and nothing else.

    Raises: ValueError: one is neither; `*` is not.
    """
    for each in values:
        try:
            ip_network(each)
        except ValueError:
            raise ValueError(f"{each!r} is no address and no network (10.0.0.7, 10.0.0.0/24)") from None
    return values
