"""What the token of a provider looks like; whoever only asks this loads no cryptography."""


def is_jwt(secret: str) -> bool:
    """Whether a bearer token has the form of a signed JWT; Lethe's own have no dot."""
    return secret.count(".") == 2
