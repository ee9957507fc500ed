"""The shape of the library: its modules, the names of its parts, and how they are wired."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import io
import logging
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from imports import Graph, module_graph

APART = ("aiokclient/testing/", "aiokclient/spark/", "aiokclient/adapters/")
"""Folders whose code has its own measure: the embedded cluster, and the part for Spark."""
DATA = (
    "aiokclient/protocol/messages/",
    "aiokclient/testing/broker/handlers/",
    "aiokclient/errors/",
)
"""Packages with one module for each item of a list."""
SMALL = 60
"""Modules with fewer lines of code are small."""
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
PROPERTIES = {"property", "cached_property", "setter", "getter"}
PRESCRIBED = {
    *dir(asyncio.BufferedProtocol),
    *dir(asyncio.Protocol),
    *dir(asyncio.Transport),
    *dir(asyncio.Future),
    *dir(asyncio.Queue),
    *dir(asyncio.Lock),
    *dir(dict),
    *dir(list),
    *dir(set),
    *dir(io.RawIOBase),
    *dir(logging.Handler),
    "send",
    "throw",
}
"""Names of methods that Python and asyncio prescribe, such as those of transports and futures."""


def docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the lines of all strings that are statements: docstrings, also of attributes."""
    return {
        line
        for node in nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str, nodes: Iterable[ast.AST]) -> set[int]:
    """Return the lines with code, which are neither docstrings nor comments nor blank.

    `nodes` are all nodes of the syntax tree of the text.
    """
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return lines - docstring_lines(nodes)


class Module:
    """One module of the library, by its path from the root of the project."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.text = text
        self.nodes = list(ast.walk(ast.parse(text)))
        """All nodes of its syntax tree, because walking a tree takes as long as parsing it."""

    @cached_property
    def size(self) -> int:
        """The number of lines of code."""
        return len(code_lines(self.text, self.nodes))

    @cached_property
    def comments(self) -> int:
        """The number of comments."""
        return sum(
            token.type == tokenize.COMMENT
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
        )

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))


def read_modules(root: Path, apart: tuple[str, ...] = ()) -> list[Module]:
    paths = sorted((root / "aiokclient").rglob("*.py"))
    named = ((path.relative_to(root).as_posix(), path) for path in paths)
    return [Module(name, path.read_text()) for name, path in named if not name.startswith(apart)]


@dataclass
class ClassShape:
    """The names that a class defines, without leading underscores."""

    methods: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    """Attributes, properties, and fields."""
    attributes: set[str] = field(default_factory=set)
    """Attributes that its methods assign."""
    callables: list[str] = field(default_factory=list)
    """Parameters of the constructor and fields whose type is a function."""


def words_of(annotation: ast.expr) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(annotation)))


def callable_types(modules: Iterable[Module]) -> set[str]:
    """Return the names of all types of functions: aliases, and protocols with `__call__`."""
    names = {"Callable"}
    known = 0
    while known < len(names):
        known = len(names)
        for module in modules:
            names |= set(_callable_names(module, names))
    return names


def _callable_names(module: Module, names: set[str]) -> Iterator[str]:
    for node in module.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=alias)], value=value) if alias[:1].isupper():
                if isinstance(value, ast.Subscript | ast.BinOp | ast.Name):
                    yield from {alias} if names & words_of(value) else ()
            case ast.AnnAssign(target=ast.Name(id=alias), value=ast.expr() as value):
                if "TypeAlias" in words_of(node.annotation):
                    yield from {alias} if names & words_of(value) else ()
            case ast.ClassDef(bases=bases) if any("Protocol" in words_of(base) for base in bases):
                if any(getattr(item, "name", "") == "__call__" for item in node.body):
                    yield node.name


def shape_of(node: ast.ClassDef, functions: set[str]) -> ClassShape:
    """Return the names that a class defines. `functions` are the types of functions."""
    shape = ClassShape()
    has_fields = any("dataclass" in words_of(each) for each in node.decorator_list)
    has_fields = has_fields or any("NamedTuple" in words_of(each) for each in node.bases)
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            _add_method(shape, item, functions)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            shape.values.add(item.target.id.lstrip("_"))
            if has_fields and functions & words_of(item.annotation):
                shape.callables.append(f"{node.name}.{item.target.id}")
        elif isinstance(item, ast.Assign):
            names = {target.id for target in item.targets if isinstance(target, ast.Name)}
            shape.values |= {name.lstrip("_") for name in names if not name.startswith("__")}
    shape.callables = [
        each if "." in each else f"{node.name}.__init__({each})" for each in shape.callables
    ]
    shape.values |= {name.lstrip("_") for name in shape.attributes}
    return shape


def _add_method(
    shape: ClassShape, item: ast.FunctionDef | ast.AsyncFunctionDef, functions: set[str]
) -> None:
    decorators = {ast.unparse(each).split(".")[-1] for each in item.decorator_list}
    if decorators & PROPERTIES:
        shape.values.add(item.name.lstrip("_"))
    elif not item.name.startswith("__"):
        shape.methods.add(item.name.lstrip("_"))
    if item.name == "__init__":
        given = (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)
        shape.callables += [
            argument.arg
            for argument in given
            if argument.annotation is not None and functions & words_of(argument.annotation)
        ]
    shape.attributes |= {
        each.attr
        for each in ast.walk(item)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


def public_members(packages: Iterable[str]) -> set[str]:
    """Return the names of the methods and attributes of all public classes."""
    names: set[str] = set()
    for package in packages:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            for kind in value.__mro__ if inspect.isclass(value) else ():
                if kind.__module__.startswith("aiokclient"):
                    names |= {each for each in vars(kind) if not each.startswith("_")}
                    names |= set(vars(kind).get("__annotations__", ()))
    return names


def exported_classes(modules: Iterable[Module], public: Iterable[str]) -> set[str]:
    """Return the classes that public packages export, as their path, a colon, and their name.

    They have the decorator `public_in`, or stand in the type-only imports of a public package.
    """
    modules = list(modules)
    paths = {module.name: module.path for module in modules}
    found = {
        f"{module.path}:{node.name}"
        for module in modules
        for node in module.classes()
        if any("public_in" in words_of(each) for each in node.decorator_list)
    }
    for module in modules:
        if module.name in public:
            for node in module.nodes:
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    found |= {
                        f"{paths[statement.module]}:{alias.name}"
                        for statement in node.body
                        if isinstance(statement, ast.ImportFrom) and statement.module in paths
                        for alias in statement.names
                    }
    return found


@dataclass
class Shape:
    """The figures of the library. Code of the embedded cluster and for Spark is not counted."""

    callables: list[str]
    """Functions that constructors and fields of internal classes take, with the class.

    Those of public classes are functions that the application gives.
    """
    methods: set[str]
    """The distinct names of methods that are not public and that nothing prescribes."""
    ambiguous: dict[str, list[str]]
    """Names that are a method in one class and a value in another, with these classes."""
    sizes: dict[str, int]
    """The lines of code of each module outside of the data packages, by its path."""
    single: list[tuple[str, str]]
    """Modules that exactly one module uses, which is in the same package, with that module."""
    comment_share: float
    most_attributes: tuple[int, str]
    """The number of attributes of the class that has most of them, and this class."""
    code: int
    """The lines of code of the library with Spark, but without the messages."""
    folders: dict[str, int]
    """The number of modules in each folder of all the library, data packages apart."""

    @property
    def words(self) -> float:
        """The mean number of words in the names of methods."""
        counts = [len(list(filter(None, name.split("_")))) for name in self.methods]
        return sum(counts) / len(counts)

    @property
    def ambiguous_share(self) -> float:
        return len(self.ambiguous) / len(self.methods)

    @property
    def small(self) -> list[str]:
        return [path for path, size in self.sizes.items() if size < SMALL]

    @property
    def small_share(self) -> float:
        return len(self.small) / len(self.sizes)

    def rows(self) -> str:
        """Return the figures as lines of text."""
        most, owner = self.most_attributes
        return "\n".join(
            (
                f"functions that internal constructors and fields take   {len(self.callables)}",
                f"words per name of a method                            {self.words:.2f}",
                f"names of methods that are also the name of a value    {self.ambiguous_share:.1%}",
                f"modules under {SMALL} lines of code                       {self.small_share:.1%}",
                f"modules that one module of the same package uses      {len(self.single)}",
                f"comments, share of lines                              {self.comment_share:.1%}",
                f"most attributes of a class                            {most} ({owner})",
                f"lines of code, without testing and messages           {self.code:,}",
            )
        )


def measure(root: Path, public: Iterable[str]) -> Shape:
    """Measure the library in a checkout. `public` has the names of its public packages."""
    everything = read_modules(root)
    judged = [module for module in everything if not module.path.startswith(APART)]
    functions = callable_types(judged)
    shapes = {
        f"{module.path}:{node.name}": (node, shape_of(node, functions))
        for module in judged
        for node in module.classes()
    }
    exported = exported_classes(everything, set(public))
    exempt = public_members(public) | PRESCRIBED
    methods = {name for _, shape in shapes.values() for name in shape.methods} - exempt
    values = {name for _, shape in shapes.values() for name in shape.values}
    where: dict[str, list[str]] = defaultdict(list)
    for owner, (_, shape) in shapes.items():
        for name in (shape.methods | shape.values) & methods & values:
            where[name].append(owner)
    counted = {owner: len(shape.attributes) for owner, (_, shape) in shapes.items()}
    most = max(counted, key=lambda owner: counted[owner])
    graph = module_graph(root / "aiokclient")
    return Shape(
        callables=[
            f"{owner.partition(':')[0]}: {each}"
            for owner, (_, shape) in shapes.items()
            if owner not in exported
            for each in shape.callables
        ],
        methods=methods,
        ambiguous=dict(where),
        sizes={m.path: m.size for m in judged if not m.path.startswith(DATA)},
        single=used_by_one_sibling(judged, graph),
        comment_share=sum(m.comments for m in judged) / sum(m.text.count("\n") for m in judged),
        most_attributes=(counted[most], most),
        code=sum(m.size for m in everything if not m.path.startswith((APART[0], DATA[0]))),
        folders=folder_sizes(everything),
    )


def used_by_one_sibling(modules: Iterable[Module], graph: Graph) -> list[tuple[str, str]]:
    """Return the modules that exactly one module uses, which is in the same package."""
    users: Mapping[str, set[str]] = defaultdict(set)
    for module, used in graph.items():
        for name in used:
            users[name].add(module)
    names = [m.name for m in modules if not m.path.endswith("__init__.py")]
    alone = [(name, next(iter(users[name]))) for name in names if len(users[name]) == 1]
    return [(name, one) for name, one in alone if name.rpartition(".")[0] == one.rpartition(".")[0]]


def folder_sizes(modules: Iterable[Module]) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for module in modules:
        folder, _, name = module.path.rpartition("/")
        if not module.path.startswith(DATA) and (name != "__init__.py" or folder == "aiokclient"):
            sizes[folder] += 1
    return dict(sizes)
