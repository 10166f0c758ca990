"""What code a number depends on: a digest of every module that a method's run goes through.

A method's modules are its two halves, the loop that calls them, and whatever these import, directly
or not, from the rooms that a number can come from. Docstrings, comments, the words of errors and
the fields of settings do not count: the values of the settings are compared by themselves.

Of what the settings leave off (runs/asleep.py), an attack or a codec, functions do not count, nor
what only these import. What is defined beside them, constants for example, others may still use: it
stands under a name of its own.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedivon_app.core.settings import AnySettings
from fedivon_app.methods import METHODS, method
from fedivon_app.runs.asleep import asleep

PACKAGE = "fedivon_app"
ROOMS = ("core", "strategies", "clients", "datasets", "server")
COMMON = (  # what every method's run goes through, besides its two halves
    "fedivon_app.client_app",
    "fedivon_app.server.setup",
    "fedivon_app.server.evaluation",
    "fedivon_app.server.pretraining",
    "fedivon_app.strategies.rounds",
    "fedivon_app.datasets.node_data",
    "fedivon_app.datasets.builtin",
)
READERS = (  # they find and read files: what is in these is compared by itself, not their code
    "fedivon_app.core.yaml_reading",
    "fedivon_app.datasets.sources",
    "fedivon_app.datasets.cache",
    "fedivon_app.datasets.image_folder",
    "fedivon_app.datasets.npz",
    "fedivon_app.datasets.own_reader",
    "fedivon_app.datasets.picture_file",
    "fedivon_app.datasets.table",
    "fedivon_app.datasets.table_file",
    "fedivon_app.datasets.table_format",
    "fedivon_app.datasets.vision",
)
ASLEEP = " (asleep)"  # after the name of a module of which only what is no function counts
MIXED = "mixed"  # the digest of a module that was changed in the midst of a run
DIGITS = 10


def code_of(settings: AnySettings) -> dict[str, str]:
    """Return the digests of all modules that the numbers of such a run depend on, by name."""
    chosen = method(settings.strategy)
    halves = (chosen.strategy.__module__, chosen.client.__module__)
    off = asleep(settings)
    return {
        name + ASLEEP if name in off else name: _read(_source(name), asleep=name in off).digest
        for name in sorted(_reachable([*halves, *COMMON], off))
    }


def read_all() -> None:
    """Read the modules of all methods, after which `code_of` is quick in this process's forks."""
    halves = [half.__module__ for one in METHODS.values() for half in (one.strategy, one.client)]
    _reachable([*halves, *COMMON], off=())


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the modules that are not what they were.

    One that has come or gone is known by the change in whoever imports it.
    """
    return sorted(name for name in before.keys() & now.keys() if before[name] != now[name])


def mixed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the code of a run that was begun with one code and resumed with another."""
    return {**now, **dict.fromkeys(changed(before, now), MIXED)}


def digest(source: str) -> str:
    """Return a short digest of what a module does."""
    return _read(source).digest


def _reachable(roots: Iterable[str], off: Collection[str]) -> set[str]:
    """The roots, and the modules of ROOMS that they import, directly or not.

    Of the modules that are off, only what is imported for others than functions is followed.
    """
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _read(_source(name), asleep=name in off).imports
    return found


def _counts(name: str) -> bool:
    package, _, rest = name.partition(".")
    if name in READERS:
        return False
    return package == PACKAGE and rest.partition(".")[0] in ROOMS


@dataclass(frozen=True)
class _Module:
    """What there is to know of a source: its digest, and the modules that it imports."""

    digest: str
    imports: tuple[str, ...]


@lru_cache(maxsize=512)
def _read(source: str, asleep: bool = False) -> _Module:
    whole = ast.parse(source)
    imports = tuple(_imports(whole))
    tree = _Essence().visit(whole)
    if asleep:
        tree = _NoFunctions().visit(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    tree = _Imports(used).visit(tree)
    if asleep:
        imports = tuple(_imports(tree))
    return _Module(hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:DIGITS], imports)


def _imports(tree: ast.AST) -> Iterator[str]:
    """The modules that a source imports; what is for a type checker alone does not count."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in inside if _counts(name) and _is_module(name)] or [node.module]
        else:
            if not isinstance(node, ast.expr):  # no import is inside of one
                waiting += ast.iter_child_nodes(node)
            continue
        yield from (name for name in names if _counts(name) and _is_module(name))


@lru_cache(maxsize=512)
def _file(name: str) -> Path | None:
    """The file of a module, if it has one; a package counts as its __init__.py."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def _is_module(name: str) -> bool:
    return _file(name) is not None


def _source(name: str) -> str:
    file = _file(name)
    return file.read_text(encoding="utf-8") if file is not None else ""


class _Essence(ast.NodeTransformer):
    """Leaves out of a module what no number depends on."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.name.endswith("Settings"):
            node.body = [one for one in node.body if not isinstance(one, ast.AnnAssign)]
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def _without_docstring(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:]
        return node


class _NoFunctions(ast.NodeTransformer):
    """Leaves out of a module all functions and methods."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None


class _Imports(ast.NodeTransformer):
    """Leaves out the imports of names that only served what no number depends on."""

    def __init__(self, used: set[str]):
        self.used = used

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return self._kept(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return self._kept(node)

    def _kept(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        names = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        kept = zip(node.names, names, strict=True)
        node.names = [alias for alias, name in kept if name in self.used]
        return node if node.names else None
