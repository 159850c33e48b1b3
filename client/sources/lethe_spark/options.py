"""Options of a source: each is known, checked where the frame is made, and blamed by its name.

Spark hands options on as texts, and their names in lower case. What is wrong is said before anything is read.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NoReturn

TRUE: Final = frozenset({"true", "yes", "1"})
FALSE: Final = frozenset({"false", "no", "0"})
LIST_MAX: Final = 10_000
JOB: Final = re.compile(r"job_[0-9a-z]{26}")


class OptionInvalid(ValueError):
    """An option is missing, unknown or not of its form; the message says which, and what to give."""


class Options:
    """The options of one source; `only` refuses what it does not know.

    Args:
        source: name of the source, for messages.
        given: as Spark hands them on.
    """

    def __init__(self, source: str, given: Mapping[str, str]) -> None:
        self._source = source
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def only(self, known: Iterable[str]) -> None:
        """Refuse options that the source does not have. Raises: OptionInvalid."""
        names = sorted(known)
        unknown = sorted(set(self._given) - set(names))
        if unknown:
            self._refuse(f"there is no option {unknown[0]!r}; give {', '.join(names)}")

    def text(self, name: str) -> str | None:
        """A text; None where it is not given. Raises: OptionInvalid: it is empty."""
        value = self._given.get(name)
        if value is not None and not value.strip():
            self._refuse(f"the option {name!r} is empty; leave it out or give a value")
        return value

    def required(self, name: str, what: str) -> str:
        """A text that must be there. Raises: OptionInvalid."""
        value = self.text(name)
        if value is None:
            self._refuse(f"the option {name!r} is missing: {what}")
        return value

    def path(self, name: str, what: str) -> Path:
        """An absolute path. Raises: OptionInvalid."""
        value = self.required(name, what).removeprefix("file://")
        if not value.startswith("/"):
            self._refuse(f"{name}={value!r} is no absolute path; give one that begins with /")
        return Path(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false. Raises: OptionInvalid."""
        value = self.text(name)
        if value is None:
            return default
        word = value.strip().lower()
        if word not in TRUE | FALSE:
            self._refuse(f"{name}={value!r} is neither true nor false")
        return word in TRUE

    def choice(self, name: str, among: Collection[str], *, default: str) -> str:
        """One word of several. Raises: OptionInvalid."""
        value = self.text(name) or default
        if value not in among:
            self._refuse(f"{name}={value!r} is unknown; give one of {', '.join(sorted(among))}")
        return value

    def number(self, name: str, *, default: int, least: int, most: int) -> int:
        """A whole number within limits. Raises: OptionInvalid."""
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or not least <= int(value) <= most:
            self._refuse(f"{name}={value!r} is no number from {least} to {most}")
        return int(value)

    def words(self, name: str, *, among: Collection[str] | None = None) -> tuple[str, ...] | None:
        """Words between commas, each once, in their order; None where it is not given.

        Args:
            among: what may be given; None: anything.
        Raises: OptionInvalid.
        """
        value = self.text(name)
        if value is None:
            return None
        found = tuple(dict.fromkeys(each.strip() for each in value.split(",")))
        if "" in found or len(found) > LIST_MAX:
            self._refuse(f"{name}={value[:80]!r} is no list of words between commas")
        unknown = [] if among is None else [each for each in found if each not in among]
        if unknown:
            self._refuse(f"{name} names {unknown[0]!r}; give one or more of {', '.join(among or ())}")
        return found

    def numbers(self, name: str, *, least: int, most: int) -> tuple[int, ...] | None:
        """Whole numbers between commas; None where it is not given. Raises: OptionInvalid."""
        found = self.words(name)
        if found is None:
            return None
        for each in found:
            if not re.fullmatch(r"-?[0-9]{1,18}", each) or not least <= int(each) <= most:
                self._refuse(f"{name} names {each!r}, which is no number from {least} to {most}")
        return tuple(map(int, found))

    def jobs(self) -> tuple[str, ...] | None:
        """Ids of jobs between commas; None where it is not given. Raises: OptionInvalid."""
        found = self.words("jobs")
        for each in found or ():
            if not JOB.fullmatch(each):
                self._refuse(f"jobs names {each[:80]!r}, which is no id of a job; lethe job list shows them")
        return found

    def refuse(self, detail: str) -> OptionInvalid:
        """What to raise where options do not go together."""
        return OptionInvalid(f"{self._source}: {detail}")

    def _refuse(self, detail: str) -> NoReturn:
        raise self.refuse(detail)
