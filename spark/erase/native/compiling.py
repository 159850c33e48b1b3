"""Compiling a loop, and keeping the machine code where that is possible."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

HERE: Final = Path(__file__).parent
# numba makes its attributes at run time.
CONFIG: Final[Any] = numba.config


def _digest() -> str:
    """Name the code that is compiled: numba looks only at the file of a function, not at what it calls."""
    native = [each for each in files("spark.erase.native").iterdir() if each.name.endswith(".py")]
    formats = [files("spark.formats.je") / name for name in ("log.py", "items.py")]
    sources = sorted([*native, *formats], key=lambda source: source.name)
    return sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


def _keep_machine_code() -> bool:
    """Choose where machine code is kept: NUMBA_CACHE_DIR, beside the source, or below the home directory.

    A directory that others may write to is never tried: what lies there would be run. A read-only image
    without a home keeps nothing and compiles in each process, which takes some seconds.
    """
    given = CONFIG.CACHE_DIR
    roots = [Path(given)] if given else [HERE / "__pycache__"]
    # Not every user has a home directory.
    with suppress(RuntimeError):
        roots.append(Path.home() / ".cache" / "lethe")
    for root in roots:
        directory = root / f"native-{_digest()}"
        if _writable(directory):
            CONFIG.CACHE_DIR = str(directory)
            return True
    return False


KEPT: Final = _keep_machine_code()


# Without its runtime (`_nrt`) numba counts no references: every call of a small function counted those of all
# its arrays up and down, which took most of the walk's time. What is compiled so cannot allocate.
OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "cache": KEPT, "_nrt": False}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call. It allocates nothing: arrays come from its caller."""
    result: Callable[P, R] = numba.njit(**OPTIONS)(function)
    return result


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a small function into each of its compiled callers."""
    result: Callable[P, R] = numba.njit(**OPTIONS, forceinline=True)(function)
    return result
