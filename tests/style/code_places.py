"""Where codes come about: found in what each place says, never in a list of codes.

A code is what a call gives for a parameter or field named `code` (of a `WaitingOn`: `kind`), what a class
says by `code = ...`, and the name of a ServiceError that is made without one. A place that cannot be followed
is unknown, and somebody has to say what it hands on.
"""

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any, Final

from pydantic import BaseModel

from app.errors import BodyTooLarge, ServiceError, code_of
from tests.style.source_files import SourceFile, source_files

FOLDERS: Final = ("app", "spark")
METHODS: Final = {"fault": 0, "explain": 0, "blame": 0}
"""Methods that take a code first; what they are called on is not known to a reader of the syntax."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Found:
    """What was found.

    Attributes:
        codes: code to the places that make it, `file:line callee`.
        unknown: place to the expression that nobody could follow.
    """

    codes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknown: dict[str, str] = field(default_factory=dict)


def callable_name(call: ast.Call) -> str:
    """The last part of what is called: `JobFailed`, `fault`."""
    return ast.unparse(call.func).rpartition(".")[2]


class Reader:
    """One file, with the names of its module at hand."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        name = file.name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.module: ModuleType = importlib.import_module(name)
        self._given: dict[Function, dict[str, list[ast.expr]]] = {}

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.file.tree) for child in ast.iter_child_nodes(node)}

    def read(self, found: Found, wanted: Callable[[ast.Call, Any], ast.expr | None]) -> None:
        """Add the codes that `wanted` picks out of calls, (call, what is called or None) to an expression."""
        for node in ast.walk(self.file.tree):
            if not isinstance(node, ast.Call):
                continue
            given = wanted(node, self.value(node.func))
            if given is not None:
                self.note(found, given, node.lineno, callable_name(node))

    def note(self, found: Found, given: ast.expr, line: int, where: str) -> None:
        codes = self.resolve(given)
        if codes is None:
            found.unknown[f"{self.file.name}:{where}"] = ast.unparse(given)
        for code in codes or ():
            found.codes[code].add(f"{self.file.name}:{line} {where}")

    def value(self, expression: ast.expr) -> Any:
        """What a name or a dotted name of the module stands for; None: it is of a function, or nobody's."""
        root = expression
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or self._is_local(root):
            return None
        found: Any = vars(self.module).get(root.id)
        for part in ast.unparse(expression).split(".")[1:]:
            found = getattr(found, part, None)
        return found

    def resolve(self, expression: ast.expr | None, *, depth: int = 0) -> set[str] | None:
        """The codes that an expression can be; None: it cannot be followed. Empty: it is another error's."""
        if expression is None or depth > 8:
            return None
        if isinstance(expression, ast.Constant):
            return {expression.value} if isinstance(expression.value, str) else set()
        value = self.value(expression)
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str):
            return {value}
        if isinstance(expression, ast.Attribute):
            if expression.attr in ("code", "kind"):
                # What is taken out of a list may be no error at all, but a finding that becomes one.
                return None if isinstance(expression.value, ast.Subscript) else set()
            return self.resolve(expression.value, depth=depth + 1)
        parts = self._parts(expression)
        if parts is None:
            return None
        union: set[str] = set()
        for part in parts:
            codes = self.resolve(part, depth=depth + 1) if isinstance(part, ast.expr) else {part}
            if codes is None:
                return None
            union |= codes
        return union

    def _parts(self, expression: ast.expr) -> list[ast.expr | str] | None:
        """What an expression is one of."""
        if isinstance(expression, ast.IfExp):
            return [expression.body, expression.orelse]
        if isinstance(expression, ast.BoolOp):
            return list(expression.values)
        if isinstance(expression, ast.Subscript):
            return _values(self.value(expression.value))
        if isinstance(expression, ast.Call) and callable_name(expression) == "str":
            return list(expression.args)
        if isinstance(expression, ast.Call) and callable_name(expression) == "get":
            assert isinstance(expression.func, ast.Attribute)
            known = _values(self.value(expression.func.value))
            return None if known is None else known + list(expression.args[1:])
        if isinstance(expression, ast.Name):
            return self._assigned(expression)
        return None

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, Function):
            at = self.parents.get(at)
        return at

    def _is_local(self, name: ast.Name) -> bool:
        return self._assigned(name) is not None

    def _assigned(self, name: ast.Name) -> list[ast.expr | str] | None:
        function = self.function_of(name)
        if function is None:
            return None
        arguments = function.args
        if name.id in {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}:
            # handed on: whoever calls the function is read, if the parameter says what it is
            return [] if name.id in ("code", "kind") else None
        found = self._locals(function).get(name.id)
        return None if found is None else list(found)

    def _locals(self, function: Function) -> dict[str, list[ast.expr]]:
        """What the names of a function are given in it."""
        if function not in self._given:
            given: dict[str, list[ast.expr]] = defaultdict(list)
            for node in ast.walk(function):
                if isinstance(node, ast.Assign):
                    for to in node.targets:
                        if isinstance(to, ast.Name):
                            given[to.id].append(node.value)
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
                    given[node.target.id] += [] if node.value is None else [node.value]
            self._given[function] = dict(given)
        return self._given[function]


def _values(mapping: object) -> list[ast.expr | str] | None:
    if not isinstance(mapping, Mapping):
        return None
    return [value.value if isinstance(value, Enum) else str(value) for value in mapping.values()]


def code_given(call: ast.Call, called: Any, parameter: str = "code") -> ast.expr | None:
    """What a call gives for its parameter `code`; None: it has none, or it is a number."""
    for keyword in call.keywords:
        if keyword.arg == parameter:
            return keyword.value
    place = _place(called, parameter)
    if place is None and isinstance(call.func, ast.Attribute) and called is None and parameter == "code":
        place = METHODS.get(call.func.attr)
    return call.args[place] if place is not None and place < len(call.args) else None


def _place(called: Any, parameter: str) -> int | None:
    if not callable(called) or str(getattr(called, "__module__", "")).split(".")[0] not in FOLDERS:
        return None
    try:
        names = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return None
    return names.index(parameter) if parameter in names else None


def readers() -> Iterator[Reader]:
    """Every file of the two floors; entry points are not imported."""
    for file in source_files(*FOLDERS):
        if not file.name.endswith("__main__.py") and not file.name.startswith("app/runbook/"):
            yield Reader(file)


def codes_of_the_chain() -> set[str]:
    """What the client's check of the audit blames: a file of the library, which is not imported here."""
    [file] = [each for each in source_files("client/lethe_client") if each.name == OF_THE_CHAIN]
    return {
        node.args[0].value
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and callable_name(node) == "blame"
        if isinstance(node.args[0], ast.Constant)
    }


def _own_code(kind: type[ServiceError]) -> bool:
    """Whether the class gives its code itself, in its `__init__`."""
    return any(
        ", code=" in inspect.getsource(each.__dict__["__init__"])
        for each in kind.__mro__
        if each is not ServiceError and issubclass(each, ServiceError) and "__init__" in each.__dict__
    )


def _made_nameless(reader: Reader, call: ast.Call) -> set[str]:
    """The names of the ServiceErrors that a call makes without a code, also by a variable for the class."""
    if any(keyword.arg in ("code", None) for keyword in call.keywords):
        return set()
    if isinstance(call.func, ast.Attribute) and reader.value(call.func) is None:
        return set()
    kinds: set[type[ServiceError]] = set()
    waiting, seen = [call.func], 0
    while waiting and seen < 50:
        at, seen = waiting.pop(), seen + 1
        for node in ast.walk(at):
            value = reader.value(node) if isinstance(node, ast.Name) else None
            if isinstance(value, type) and issubclass(value, ServiceError):
                kinds.add(value)
            elif isinstance(node, ast.Name) and value is None and at is not node:
                waiting.append(node)
            elif isinstance(node, ast.Name) and value is None:
                waiting += [each for each in reader._assigned(node) or () if isinstance(each, ast.expr)]
    return {code_of(kind) for kind in kinds if not _own_code(kind)}


NO_PROBLEMS: Final = frozenset(
    [
        "Finding",
        "Found",
        "_Counted",
        "TableFinding",
        "MaybeBecause",
        "AmountRead",
        "Problem",
        "PlanWarning",
        "PlanWarningRead",
        "CycleWarning",
        "CleanupWarning",
        "_info",
        "_warn",
        "_error",
        "_finding",
        "_refused",
        "_unasked",
        "_branch",
        "blame",
        "fault",
        "explain",
        "_places",
        "Complaint",
        "NotKept",
        "Kept",
        "misconfigured",
        "not_now",
        "AuditProblem",
        "help_of",
        "_shown",
        "Attention",
        "_judge",
        "_held_up",
        "_failed",
        "add",
        "note",
        "Rejected",
        "warn",
        "_count",
        "_refuse",
        "_exited",
        "HealthFinding",
        "note_unasked",
        "note_refused",
        "order_of",
    ]
)
"""What takes a `code` that is no error: findings, warnings, faults, complaints, readers of others' codes."""
FINDINGS: Final = frozenset(
    [
        "Finding",
        "Found",
        "_Counted",
        "TableFinding",
        "MaybeBecause",
        "AmountRead",
        "PlanWarning",
        "PlanWarningRead",
        "CleanupWarning",
        "_info",
        "_warn",
        "_error",
        "_finding",
        "_unasked",
        "blame",
        "fault",
        "explain",
        "_places",
        "NotKept",
        "misconfigured",
        "not_now",
        "AuditProblem",
        "Fault",
        "HealthFinding",
        "note_unasked",
    ]
)
"""Those of them whose code somebody reads: of checks, plans, results and verifications."""
OF_THE_CHAIN: Final = "client/lethe_client/audit_chain.py"
"""Where the chain of the audit is checked, also without a service."""
OF_TABLES: Final = "spark/rows/"
"""Where findings of tables are made that a purge ROWS is refused by."""
JOB: Final = frozenset({"JobFailed", "JobWaiting", "SessionProblem"})


def problem_codes() -> dict[str, Found]:
    """The codes of errors, by where they come about: http, job, target, wait, and findings."""
    found = {name: Found() for name in ("http", "job", "target", "wait", "finding")}
    for reader in readers():
        reader.read(found["finding"], _finding_given)
        reader.read(found["wait"], lambda call, _: _wait_kind(call))
        reader.read(found["job"], lambda call, called: _given(call, called, JOB))
        for node in ast.walk(reader.file.tree):
            if isinstance(node, ast.ClassDef):
                _note_class(reader, node, found["target"])
            elif isinstance(node, ast.Call):
                _note_call(reader, node, found)
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                _note_raised(reader, node.exc, found["http"])
    return found


def _wait_kind(call: ast.Call) -> ast.expr | None:
    return code_given(call, None, "kind") if callable_name(call) == "WaitingOn" else None


def _finding_given(call: ast.Call, called: Any) -> ast.expr | None:
    name = callable_name(call)
    if name not in FINDINGS:
        return None
    given = call.args[0] if name == "Fault" else code_given(call, called)  # a class of the library
    is_code = not isinstance(given, ast.Constant) or (isinstance(given.value, str) and given.value)
    return given if is_code else None


def _given(call: ast.Call, called: Any, names: frozenset[str]) -> ast.expr | None:
    return code_given(call, called) if callable_name(call) in names else None


def _note_class(reader: Reader, node: ast.ClassDef, found: Found) -> None:
    for item in node.body:
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        value = getattr(item, "value", None)
        if isinstance(target, ast.Name) and target.id == "code" and isinstance(value, ast.Constant):
            reader.note(found, value, item.lineno, node.name)


def _note_call(reader: Reader, call: ast.Call, found: Mapping[str, Found]) -> None:
    called, name = reader.value(call.func), callable_name(call)
    if reader.file.name.startswith(OF_TABLES) and _forbids(call):
        reader.note(found["http"], call.args[0], call.lineno, name)
    for code in _made_nameless(reader, call):
        found["http"].codes[code].add(f"{reader.file.name}:{call.lineno} {name}")
    given = code_given(call, called)
    if given is None or name in JOB or name in NO_PROBLEMS or callable_name(call) == "WaitingOn":
        return
    if isinstance(reader.value(given), int) or (isinstance(called, type) and issubclass(called, BaseModel)):
        return
    is_http = called is None or (isinstance(called, type) and issubclass(called, ServiceError | BodyTooLarge))
    reader.note(found["http" if is_http or name == "BodyLimit" else "target"], given, call.lineno, name)


def _forbids(call: ast.Call) -> bool:
    """Whether a finding of a table forbids its purge: its code becomes that of the refusal."""
    if callable_name(call) not in ("TableFinding", "add") or len(call.args) < 3:
        return False
    return isinstance(call.args[1], ast.Constant) and call.args[1].value == "ERROR"


def _note_raised(reader: Reader, name: ast.Name, found: Found) -> None:
    value = reader.value(name)
    if isinstance(value, type) and issubclass(value, ServiceError) and not _own_code(value):
        found.codes[code_of(value)].add(f"{reader.file.name}:{name.lineno} raise")
