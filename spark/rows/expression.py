"""A small language that names rows: `status = 'done' and (total < 10.5 or not kind in ('a', 'b'))`.

    expression := term { OR term }          term := factor { AND factor }
    factor     := NOT factor | '(' expression ')' | test
    test       := column ( = | <> | != | < | <= | > | >= ) literal
                | column [NOT] IN '(' literal { ',' literal } ')'
                | column [NOT] BETWEEN literal AND literal
                | column IS [NOT] NULL
    column     := name | "any name, with "" for a quote"
    literal    := 'text, with '' for a quote' | number | TRUE | FALSE

It is never SQL: it becomes a tree here, and SQL with bound values in `condition.py`. As in SQL a comparison
with NULL is unknown, and only rows of which the whole is true are named.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from spark.targets.errors import TargetError

EXPRESSION_MAX_CHARS = 4_000
DEPTH_MAX = 32
TESTS_MAX = 200
DIGITS_MAX = 60
Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Value = str | bool | int | Decimal
_OPERATORS: dict[str, Operator] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "between", "true", "false"})
_TOKEN = re.compile(
    r"""\s*(?: (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")+")
             | (?P<number>[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?![\w.])) | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
             | (?P<sign><=|>=|<>|!=|[=<>(),]) | (?P<end>$) )""",
    re.VERBOSE,
)


class ExpressionInvalid(TargetError):
    """The text is no expression, or it compares what does not compare; says where and why."""

    code = "EXPRESSION_INVALID"


@dataclass(frozen=True, slots=True)
class Compare:
    """A column beside a value."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Among:
    """A column that is one of some values."""

    column: str
    values: tuple[Value, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Between:
    """A column from one value to another, both included."""

    column: str
    least: Value
    greatest: Value
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column without a value."""

    column: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """What is not so; unknown stays unknown."""

    part: "Expression"


@dataclass(frozen=True, slots=True)
class Both:
    """AND (`is_and`) or OR of at least two parts."""

    parts: tuple["Expression", ...]
    is_and: bool


Expression = Compare | Among | Between | IsNull | Not | Both


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Expression:
    """Read an expression.

    Raises: ExpressionInvalid: with the place, counted from 1.
    """
    if len(text) > EXPRESSION_MAX_CHARS:
        raise ExpressionInvalid(f"longer than {EXPRESSION_MAX_CHARS} characters")
    if "\0" in text:
        raise ExpressionInvalid("a NUL character is no part of an expression")
    reader = _Reader(_tokens(text))
    found = reader.expression(0)
    reader.expect_end()
    return found


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            place = len(text) - len(text[at:].lstrip()) + 1
            raise ExpressionInvalid(f"at character {place}: neither a column, a value nor a sign")
        kind = str(match.lastgroup)
        word = match.group(kind)
        if kind == "word" and word.lower() in _WORDS:
            kind, word = "keyword", word.lower()
        found.append(_Token(kind, word, match.start(match.lastgroup or "end") + 1))
        if kind == "end":
            return found
        at = match.end()


class _Reader:
    """Recursive descent; how deep and how many are bounded."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._tests = 0

    def expression(self, depth: int) -> Expression:
        return self._joined(depth, "or", lambda: self._joined(depth, "and", lambda: self._factor(depth)))

    def expect_end(self) -> None:
        if self._now.kind != "end":
            raise self._fault("AND, OR or the end")

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _fault(self, wanted: str) -> ExpressionInvalid:
        token = self._now
        found = "the end" if token.kind == "end" else token.text[:40]
        return ExpressionInvalid(f"at character {token.at}: {wanted} must stand here, not {found}")

    def _take(self, kind: str, text: str | None = None) -> str | None:
        token = self._now
        if token.kind != kind or (text is not None and token.text != text):
            return None
        self._at += 1
        return token.text

    def _need(self, kind: str, text: str) -> None:
        if self._take(kind, text) is None:
            raise self._fault(text.upper())

    def _joined(self, depth: int, word: str, part: Callable[[], Expression]) -> Expression:
        if depth > DEPTH_MAX:
            raise ExpressionInvalid(f"nested deeper than {DEPTH_MAX}")
        parts = [part()]
        while self._take("keyword", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Both(tuple(parts), word == "and")

    def _factor(self, depth: int) -> Expression:
        if depth > DEPTH_MAX:
            raise ExpressionInvalid(f"nested deeper than {DEPTH_MAX}")
        if self._take("keyword", "not"):
            return Not(self._factor(depth + 1))
        if self._take("sign", "("):
            found = self.expression(depth + 1)
            self._need("sign", ")")
            return found
        return self._test()

    def _test(self) -> Expression:
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise ExpressionInvalid(f"more than {TESTS_MAX} comparisons")
        column = self._column()
        if self._take("keyword", "is"):
            negated = self._take("keyword", "not") is not None
            self._need("keyword", "null")
            return IsNull(column, negated)
        negated = self._take("keyword", "not") is not None
        if self._take("keyword", "in"):
            return Among(column, self._values(), negated)
        if self._take("keyword", "between"):
            least = self._value()
            self._need("keyword", "and")
            return Between(column, least, self._value(), negated)
        sign = None if negated else self._take("sign")
        if sign not in _OPERATORS:
            self._at -= sign is not None
            raise self._fault("IN or BETWEEN" if negated else "a comparison, IN, BETWEEN or IS")
        return Compare(column, _OPERATORS[sign], self._value())

    def _column(self) -> str:
        quoted = self._take("quoted")
        if quoted is not None:
            return quoted[1:-1].replace('""', '"')
        word = self._take("word")
        if word is None:
            raise self._fault("a column")
        return word

    def _values(self) -> tuple[Value, ...]:
        self._need("sign", "(")
        values = [self._value()]
        while self._take("sign", ","):
            values.append(self._value())
        self._need("sign", ")")
        return tuple(values)

    def _value(self) -> Value:
        text = self._take("text")
        if text is not None:
            return text[1:-1].replace("''", "'")
        number = self._take("number")
        if number is not None:
            if len(number) > DIGITS_MAX:
                raise ExpressionInvalid(f"a number of more than {DIGITS_MAX} characters")
            return Decimal(number) if "." in number else int(number)
        for word in ("true", "false"):
            if self._take("keyword", word):
                return word == "true"
        raise self._fault("a value ('text', a number, TRUE or FALSE)")
