"""The command, run in the process of a test."""

from collections.abc import Callable

Command = Callable[..., tuple[int, str, str]]
"""Takes the words of a command line; its exit code, output and notes."""
