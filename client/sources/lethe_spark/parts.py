"""What a task of Spark reads: neighbours together as far as they are small, as a task costs by itself."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

FILES_MAX: Final = 500
File = TypeVar("File")


def in_parts(
    files: Iterable[File], size_of: Callable[[File], int], *, bytes_most: int
) -> list[tuple[File, ...]]:
    """Files in their order, cut so that several in one part have at most so many bytes."""
    parts: list[list[File]] = []
    room = 0
    for file in files:
        if not parts or room < size_of(file) or len(parts[-1]) >= FILES_MAX:
            parts.append([])
            room = bytes_most
        parts[-1].append(file)
        room -= size_of(file)
    return [tuple(part) for part in parts]
