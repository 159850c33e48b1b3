"""`make client`: write client/lethe_client/asynchronous, the client on httpx.AsyncClient, from the sync one.

Each class and function of the library that sends, or reads what was sent for, is written once, without
`await`. This program writes its twin: what it calls that waits is awaited, what it iterates over that waits
is iterated by `async for`. Everything that does not wait (results, requests, errors, retries) is shared.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "client" / "lethe_client"
TWIN: Final = SOURCE / "asynchronous"
PACKAGE: Final = "lethe_client"
MADE: Final = "Made by `make client` from lethe_client/{name}.py: change that, not this."
RENAMED: Final = {
    "Transport": "AsyncTransport",
    "Lethe": "AsyncLethe",
    "Iterator": "AsyncIterator",
    "Generator": "AsyncGenerator",
    "closing": "aclosing",
    "contextmanager": "asynccontextmanager",
    "BaseTransport": "AsyncBaseTransport",
    "Client": "AsyncClient",
    "sleep": "asleep",
    "iter_bytes": "aiter_bytes",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
}
TAKES_A_STREAM: Final = {"lines", "frames", "_heard"}
"""Functions whose iterable comes off the wire."""
CALLED_BACK: Final = {"look"}
"""Parameters that are called and wait."""


@dataclass
class Module:
    """One module of the sync client, and which of its definitions wait."""

    name: str
    tree: ast.Module
    waiting: set[str] = field(default_factory=set)

    @property
    def defined(self) -> dict[str, ast.stmt]:
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node
            elif isinstance(node, ast.Assign):
                found |= {each.id: node for each in node.targets if isinstance(each, ast.Name)}
        return found

    @property
    def imported(self) -> dict[str, tuple[str, str]]:
        """Local name: (module, name there); an empty name is a module by itself."""
        found: dict[str, tuple[str, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                found |= {each.asname or each.name: (str(node.module), each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                found |= {each.asname or each.name: (each.name, "") for each in node.names}
        return found


def names_in(node: ast.AST) -> set[str]:
    """Names that a definition uses, those in annotations that are text too."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def read_modules() -> dict[str, Module]:
    """All modules of the sync client; what waits is marked, from the transport outwards."""
    modules = {
        path.stem: Module(path.stem, ast.parse(path.read_text())) for path in sorted(SOURCE.glob("*.py"))
    }
    for names_alone in ("__init__", "public"):
        modules.pop(names_alone)
    modules["transport"].waiting = {"Transport", "_read"}
    modules["streaming"].waiting = {"lines", "frames"}
    changed = True
    while changed:
        changed = False
        for module in modules.values():
            foreign = {
                local for local, (place, name) in module.imported.items() if _waits(modules, place, name)
            }
            for name, node in module.defined.items():
                is_code = isinstance(node, ast.ClassDef | ast.FunctionDef)
                if is_code and name not in module.waiting and names_in(node) & (foreign | module.waiting):
                    module.waiting.add(name)
                    changed = True
    return modules


def _waits(modules: dict[str, Module], place: str, name: str) -> bool:
    if place == PACKAGE:
        return bool(modules[name].waiting)
    return place.startswith(f"{PACKAGE}.") and name in modules[place.removeprefix(f"{PACKAGE}.")].waiting


def own_nodes(function: ast.AST) -> list[ast.AST]:
    """The nodes of a function without those of functions inside of it."""
    found: list[ast.AST] = []
    rest = list(ast.iter_child_nodes(function))
    while rest:
        node = rest.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            rest += ast.iter_child_nodes(node)
    return found


class Kinds:
    """What each function is once it waits: a COROUTINE, a STREAM (async for), a BLOCK (async with)."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._of: dict[tuple[str, str, str], str] = {}
        self._settle()

    def get(self, module: str, owner: str, name: str) -> str:
        return self._of.get((module, owner, name), "")

    def called(self, module: Module, owner: str, call: ast.Call) -> str:
        """What kind of thing a call is."""
        target = call.func
        if isinstance(target, ast.Name):
            return self._by_name(module, target.id)
        if not isinstance(target, ast.Attribute):
            return ""
        name, of = RENAMED.get(target.attr, target.attr), target.value
        if isinstance(of, ast.Name) and of.id == "self":
            return self.get(module.name, owner, target.attr)
        if isinstance(of, ast.Name) and of.id in module.imported:
            place, original = module.imported[of.id]
            return self.get(original, "", target.attr) if place == PACKAGE else ""
        last = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
        if last in ("_transport", "transport"):
            return self.get("transport", "Transport", target.attr)
        if last in ("_jobs", "jobs"):
            return self.get("jobs", "Jobs", target.attr)
        if last == "stream":
            return self.get(module.name, "_Stream", target.attr)
        if (last, name) in (("_http", "send"), ("retries", "asleep"), ("policy", "asleep")):
            return "COROUTINE"
        if target.attr == "close" and last in ("_http", "response"):
            return "COROUTINE"
        return "STREAM" if name == "aiter_bytes" else ""

    def _by_name(self, module: Module, name: str) -> str:
        if name in CALLED_BACK:
            return "COROUTINE"
        if name in module.imported:
            place, original = module.imported[name]
            return self.get(place.removeprefix(f"{PACKAGE}."), "", original)
        return self.get(module.name, "", name)

    def _settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for module in self._modules.values():
                for owner, function in functions_of(module):
                    kind = self._kind(module, owner, function)
                    if kind and self.get(module.name, owner, function.name) != kind:
                        self._of[module.name, owner, function.name] = kind
                        changed = True

    def _kind(self, module: Module, owner: str, function: ast.FunctionDef) -> str:
        if any(
            isinstance(each, ast.Name) and each.id == "contextmanager" for each in function.decorator_list
        ):
            return "BLOCK"
        nodes = own_nodes(function)
        waits = any(isinstance(each, ast.Call) and self.called(module, owner, each) for each in nodes)
        streams = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in nodes)
        if streams:
            return "STREAM" if waits or function.name in TAKES_A_STREAM else ""
        returned = [each.value for each in nodes if isinstance(each, ast.Return) and each.value is not None]
        passes = [each for each in returned if isinstance(each, ast.Call)]
        if any(self.called(module, owner, each) == "STREAM" for each in passes):
            return "STREAM"
        return "COROUTINE" if waits else ""


def functions_of(module: Module) -> list[tuple[str, ast.FunctionDef]]:
    """(class or "", function) of what waits in a module."""
    found: list[tuple[str, ast.FunctionDef]] = []
    for name in sorted(module.waiting):
        node = module.defined[name]
        if isinstance(node, ast.FunctionDef):
            found.append(("", node))
        elif isinstance(node, ast.ClassDef):
            found += [(name, each) for each in node.body if isinstance(each, ast.FunctionDef)]
    return found


class Turn(ast.NodeTransformer):
    """One definition into its twin."""

    def __init__(self, kinds: Kinds, module: Module, owner: str) -> None:
        self._kinds, self._module, self._owner = kinds, module, owner

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        kind = self._kinds.get(self._module.name, self._owner, node.name)
        passes = kind == "STREAM" and not any(
            isinstance(each, ast.Yield | ast.YieldFrom) for each in own_nodes(node)
        )
        if node.name in TAKES_A_STREAM:
            for each in ast.walk(node.args):
                if isinstance(each, ast.Name) and each.id == "Iterable":
                    each.id = "AsyncIterable"
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            if argument.arg in CALLED_BACK and isinstance(argument.annotation, ast.Subscript):
                called = argument.annotation.slice
                assert isinstance(called, ast.Tuple)
                called.elts[1] = ast.Subscript(ast.Name("Awaitable"), called.elts[1])
        self.generic_visit(node)
        node.name = "aclose" if node.name == "close" else RENAMED.get(node.name, node.name)
        if (not kind or passes) and node.name not in ("__aenter__", "__aexit__"):
            return node
        return ast.AsyncFunctionDef(**dict(ast.iter_fields(node)))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        kind = self._kinds.called(self._module, self._owner, node)
        closes = isinstance(node.func, ast.Attribute) and node.func.attr == "close" and kind
        self.generic_visit(node)
        if closes:
            assert isinstance(node.func, ast.Attribute)
            node.func.attr = "aclose"
        return ast.Await(node) if kind == "COROUTINE" else node

    def visit_For(self, node: ast.For) -> ast.AST:
        waits = self._is_stream(node.iter)
        self.generic_visit(node)
        return ast.AsyncFor(**dict(ast.iter_fields(node))) if waits else node

    def visit_With(self, node: ast.With) -> ast.AST:
        waits = any(self._is_block(each.context_expr) for each in node.items)
        self.generic_visit(node)
        return ast.AsyncWith(**dict(ast.iter_fields(node))) if waits else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """`yield from` is not there for streams that wait."""
        if not isinstance(node.value, ast.YieldFrom):
            return self.generic_visit(node)
        source = node.value.value
        waits = self._is_stream(source) or (isinstance(source, ast.Name) and source.id == "connection")
        each = [ast.Expr(ast.Yield(ast.Name("each")))]
        loop = ast.AsyncFor if waits else ast.For
        return loop(target=ast.Name("each"), iter=self.visit(source), body=each, orelse=[], lineno=0)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.is_async = int(self._is_stream(node.iter))
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = RENAMED.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = RENAMED.get(node.attr, node.attr)
        return node

    def _is_stream(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id == "connection" or (
                node.id in ("chunks", "stream")
                and self._module.name in ("streaming", "job_events", "fleet_events", "change_feed")
            )
        return isinstance(node, ast.Call) and self._kinds.called(self._module, self._owner, node) == "STREAM"

    def _is_block(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Name) and node.func.id == "closing":
            return True
        return self._kinds.called(self._module, self._owner, node) == "BLOCK"


STANDARD: Final = {
    "AsyncIterator": "collections.abc",
    "AsyncIterable": "collections.abc",
    "AsyncGenerator": "collections.abc",
    "Awaitable": "collections.abc",
    "aclosing": "contextlib",
    "asynccontextmanager": "contextlib",
}


def twin_of(module: Module, modules: dict[str, Module], kinds: Kinds) -> str:
    """The text of a module's twin, before it is formatted."""
    body: list[ast.stmt] = []
    for name, node in module.defined.items():
        if name in module.waiting:
            turned = Turn(kinds, module, name if isinstance(node, ast.ClassDef) else "").visit(node)
            if isinstance(turned, ast.ClassDef):
                turned.name = RENAMED.get(turned.name, turned.name)
            body.append(turned)
    used = set().union(*(names_in(each) for each in body))
    lines = [f'"""{MADE.format(name=module.name)}"""', ""]
    lines += [f"from {STANDARD[name]} import {name}" for name in sorted(used & set(STANDARD))]
    for local, (place, name) in sorted(module.imported.items()):
        turned_name = RENAMED.get(local, local)
        if turned_name not in used or turned_name in STANDARD:
            continue
        lines.append(_import(local, place, name, modules))
    shared = sorted((set(module.defined) - module.waiting) & used)
    lines += [f"from {PACKAGE}.{module.name} import {name}" for name in shared]
    return (
        "\n".join(lines)
        + "\n\n\n"
        + "\n\n\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in body)
    )


def _import(local: str, place: str, name: str, modules: dict[str, Module]) -> str:
    if not name:
        return f"import {place}"
    if place == PACKAGE and name in modules and modules[name].waiting:
        return f"from {PACKAGE}.asynchronous import {name}"
    if place.startswith(f"{PACKAGE}."):
        module = modules[place.removeprefix(f"{PACKAGE}.")]
        if name in module.waiting:
            return f"from {PACKAGE}.asynchronous.{module.name} import {RENAMED.get(name, name)}"
    return f"from {place} import {name}" + (f" as {local}" if local != name else "")


def formatted(text: str, name: str) -> str:
    """As `make fmt` would write it."""
    ruff = Path(sys.executable).with_name("ruff")
    for words in (["check", "--fix", "--quiet", "--select", "I,F401,UP"], ["format", "--quiet"]):
        run = [str(ruff), *words, "--stdin-filename", str(TWIN / f"{name}.py"), "-"]
        text = subprocess.run(  # noqa: S603 -- this environment's own ruff
            run, input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text


def render() -> dict[str, str]:
    """The files of the twin by their names."""
    known = read_modules()
    kinds = Kinds(known)
    found = {"__init__.py": f'"""The client on httpx.AsyncClient. {MADE.format(name="*")}"""\n'}
    for name, module in read_modules().items():  # others than those that are known: a twin is made in place
        if module.waiting:
            found[f"{name}.py"] = formatted(twin_of(module, known, kinds), name)
    return found


if __name__ == "__main__":
    if sys.version_info >= (3, 12):
        sys.exit(
            "make client: Pythons after 3.11 write f-strings that it cannot read; make .venv with python3.11"
        )
    files = render()
    TWIN.mkdir(exist_ok=True)
    for stale in {path.name for path in TWIN.glob("*.py")} - set(files):
        (TWIN / stale).unlink()
    for file, content in files.items():
        (TWIN / file).write_text(content)
