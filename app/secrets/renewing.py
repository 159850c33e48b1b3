"""A password that may change while somebody works with it: each connection has the one that holds now.

Rules:
- it is read anew for each connection, from where the secret was when the target was made; where it cannot be
  read, the last one that could is used;
- a login that is refused has it read once more, past what was kept; where it is the same, that was all;
- it stays in this process: elsewhere a target has the password that it came with.
"""

from typing import Any

from app.secrets.errors import SecretUnavailable
from app.secrets.reading import forget_reading, read_reference
from app.settings import Settings


class Renewal:
    """Of one secret, for one target.

    Args:
        value: as it was read when the target was made.
    """

    def __init__(self, reference: str, *, name: str, settings: Settings, value: str) -> None:
        self._reference = reference
        self._name = name
        self._settings = settings
        self._last = value

    def now(self) -> str:
        """The password for the next connection."""
        try:
            self._last = read_reference(self._reference, name=self._name, settings=self._settings)
        except SecretUnavailable:
            return self._last
        return self._last

    def after_refusal(self, tried: str | None) -> str | None:
        """Another password than the one that was refused; None: there is none."""
        forget_reading(self._reference, self._settings)
        found = self.now()
        return None if found == tried else found

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Nothing of it travels, nor its name: workers of a cluster have the lower floor only."""
        return type(None), ()
