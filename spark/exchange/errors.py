"""What ends a lease of the exchange.

ExchangeError
├── TaskBroken   a unit raised what is no error of a target, or could not be sent: the same at every try
└── UnitsLost    the jobs of Spark that carried a unit ended badly, again and again
"""


class ExchangeError(Exception):
    """A fact about a lease's units."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class TaskBroken(ExchangeError):
    """A mistake in a program or in an installation."""


class UnitsLost(ExchangeError):
    """Spark does not bring a unit to its end."""
