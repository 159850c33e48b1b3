"""Errors of parameters."""

from app.errors import NotFound, Unprocessable


class ParameterNotFound(NotFound):
    """The registry has no such name."""


class ParameterScopeInvalid(Unprocessable):
    """The parameter is not set at this scope, or not for this kind of store."""
