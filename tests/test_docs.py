"""Checks of the documents: their programs run, and the paths, links, and commands in them exist."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest
from error_reference import CATEGORIES, CAUSES, causes, classes, errors_of
from option_reference import CLIENTS, by_subject, describe, names_table

from aiokclient.cli.grammar import WrongUseError, find_noun, find_verb, parse_words
from aiokclient.cli.program import NOUNS, load_commands
from aiokclient.config.client import ClientConfig
from aiokclient.errors import KafkaError
from aiokclient.group.options import GroupMemberConfig
from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "tests" / "README.md",
    ROOT / "tests" / "faults.md",
    ROOT / "tests" / "regressions.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
CATALOG = ROOT / "docs" / "reference" / "errors.md"
ADDRESS = "localhost:9092"
FOLDERS = ("aiokclient", "benchmarks", "docs", "examples", "tests", ".ci")
PROGRAM_S = 60


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    code: str
    line: int


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: Path) -> str:
    return page.read_text()


def blocks(page: Path) -> Iterator[Block]:
    text = text_of(page)
    for match in re.finditer(r"^(`{3,})([^\n`]*)\n(.*?)^\1$", text, re.M | re.S):
        line = text.count("\n", 0, match.start(3)) + 1
        yield Block(match[2].strip(), match[3], line)


@cache
def prose(page: Path) -> str:
    """Return the text of a page without its blocks."""
    return re.sub(r"^(`{3,})[^\n`]*\n.*?^\1$", "", text_of(page), flags=re.M | re.S)


def programs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def compiled(block: Block, page: Path, servers: str) -> CodeType:
    """Return the compiled code of a block, in which `await` is allowed as in a notebook."""
    code = "\n" * (block.line - 1) + block.code.replace(ADDRESS, servers)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    result: CodeType = compile(code, str(page), "exec", flags=flags, dont_inherit=True)
    return result


async def run(page: Path, servers: str) -> None:
    """Run the blocks of a page in order, each with the names that earlier ones defined."""
    names: dict[str, Any] = {"__name__": "__docs__"}
    for block in programs(page):
        async with asyncio.timeout(PROGRAM_S):
            found = eval(compiled(block, page, servers), names)
            if inspect.iscoroutine(found):
                await found


# tests/test_readme.py runs the blocks of the README, each in a separate process, and
# tests/spark/test_documentation.py those that need Spark.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES[1:] if programs(page) and "spark" not in page.name],
    ids=lambda page: name_of(page),
)
def test_the_programs_of_a_page_run(page: Path) -> None:
    topics = {"orders": 6, "payments": 1, "audit": 1}
    with EmbeddedCluster(brokers=3, topics=topics) as cluster:
        cluster.produce("orders", [b"tea", b"coffee"], partition=0)
        asyncio.run(run(page, cluster.bootstrap_servers))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_block_says_its_language(page: Path) -> None:
    known = {"python", "sh", "text", "mermaid", "toml", "yaml", "properties"}
    wrong = [
        f"{name_of(page)}:{block.line}: {block.language!r}"
        for block in blocks(page)
        if block.language not in known and not block.language.startswith("{")
    ]
    # The commands in the README are in blocks without a language.
    assert [each for each in wrong if not each.endswith(": ''") or page != PAGES[0]] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_paths_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.*-]*)`", prose(page))
    paths = {path for path in named if path.split("/")[0] in FOLDERS}
    assert sorted(path for path in paths if not list(ROOT.glob(path.rstrip("/")))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    shell = "\n".join(block.code for block in blocks(page) if block.language in {"sh", ""})
    quoted = "\n".join(re.findall(r"`([^`\n]+)`", prose(page)))
    named = set(re.findall(r"\bmake ([a-z][\w-]*)", f"{shell}\n{quoted}"))
    assert sorted(named - targets) == []


def typed_commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `aiokclient` of each command in a page that can be parsed as it is."""
    shell = "\n".join(block.code for block in blocks(page) if block.language == "sh")
    lines = shell.replace("\\\n", " ").splitlines() + re.findall(r"`([^`\n]+)`", prose(page))
    for line in lines:
        match = re.match(r"(?:\$ )?aiokclient ([a-z].*)", line.strip())
        if match and not re.search(r"[\[\]…]|\.\.\.|\w\|\w", match[1]):
            words = shlex.split(re.split(r" [|><&] ?| #|;", match[1])[0])
            # Other programs have this name, too, such as a format of Spark.
            if words[0] in NOUNS and len(words) > 1:
                yield words


def test_the_commands_of_the_command_line_in_pages_can_be_parsed() -> None:
    wrong = []
    commands = [(name_of(page), words) for page in PAGES for words in typed_commands(page)]
    for name, words in [*commands, *(("causes", each) for each in typed_commands(CAUSES))]:
        try:
            typed = find_verb(find_noun(words), load_commands(words[0]))
            verbs = {command.verb: command for command in load_commands(words[0])}
            if (typed.verb or "") not in verbs:
                raise WrongUseError("There is no such verb.")
            if "--help" not in words:
                parse_words(words[0], verbs[typed.verb or ""], typed.others)
        except (WrongUseError, SystemExit) as error:
            # A page may name a command without its arguments, or a file of the reader.
            if not re.search(" needs | required|cannot be read", str(error)):
                wrong.append(f"{name}: aiokclient {' '.join(words)}: {error}")
    assert wrong == [], "\n".join(wrong)
    assert len(commands) > 50


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_each_image_in_both_color_schemes(page: Path) -> None:
    shown = re.findall(
        r"^```\{image\} (\S+)\n:class: only-(light|dark)\n:alt: .+\n```$", text_of(page), re.M
    )
    for image, scheme in shown:
        assert f"-{scheme}." in image
        assert (page.parent / image).exists()
        other = "dark" if scheme == "light" else "light"
        assert (image.replace(f"-{scheme}.", f"-{other}."), other) in shown


def test_blocks_of_python_that_are_not_run_say_why() -> None:
    silent = [
        f"{name_of(page)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.language == "{code-block} python" and "Not run by the tests" not in block.code
    ]
    assert silent == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings]
    generated = {kind.__name__.lower() for kind in classes()} if page == CATALOG else set()
    return {heading.replace(" ", "-") for heading in plain} | generated


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_between_pages_lead_somewhere(page: Path) -> None:
    assert broken_links(page, prose(page)) == []


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links in a text of a page that lead to no page or to no heading."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            broken.append(target)
    return broken


@cache
def members_of_classes() -> dict[str, set[str]]:
    """Return the methods and attributes of each class of the library, with the inherited ones.

    Classes of the same name in several modules are taken together.
    """
    members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in (ROOT / "aiokclient").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                members.setdefault(node.name, set()).update(own_members(node))
                names = {
                    each.id
                    for base in node.bases
                    for each in ast.walk(base)
                    if isinstance(each, ast.Name)
                }
                bases.setdefault(node.name, set()).update(names - {node.name})
    changed = True
    while changed:
        changed = False
        for name, above in bases.items():
            inherited = {each for base in above for each in members.get(base, ())}
            if not inherited <= members[name]:
                members[name] |= inherited
                changed = True
    return members


def own_members(owner: ast.ClassDef) -> Iterator[str]:
    """Yield the methods of a class, and the attributes that it declares or sets."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
    for each in ast.walk(owner):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "ways").glob("*.md")), ids=name_of)
def test_the_methods_that_a_way_names_exist(page: Path) -> None:
    named = set(re.findall(r"`([A-Z]\w*)\.(\w+)`", prose(page)))
    assert named
    members = members_of_classes()
    missing = {f"{owner}.{name}" for owner, name in named if name not in members.get(owner, ())}
    assert sorted(missing) == []


def test_every_page_of_the_site_is_in_one_list_of_its_contents() -> None:
    docs = ROOT / "docs"
    listed = [
        entry
        for block in blocks(docs / "index.md")
        if block.language == "{toctree}"
        for entry in block.code.split()
        if not entry.startswith(":") and (docs / f"{entry}.md").exists()
    ]
    pages = [page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md")]
    assert sorted(listed) == sorted(set(pages) - {"index"})


def named_types(names: dict[str, Any]) -> Iterator[str]:
    """Yield the types that the signatures of public functions and methods name."""
    for name, value in names.items():
        if inspect.isclass(value) and value.__module__.startswith("aiokclient."):
            yield from named_types(
                {key: each for key, each in vars(value).items() if not key.startswith("_")}
            )
        elif not name.startswith("_"):
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            yield from map(str, getattr(function, "__annotations__", {}).values())


def test_signatures_name_other_packages_as_their_documents_do() -> None:
    # `pa.Table`, for example, has no link on the site, and `make docs` fails because of it.
    public = importlib.import_module("aiokclient")
    names = {name: getattr(public, name) for name in public.__all__}
    found = {
        package
        for annotation in named_types(names)
        for package in re.findall(r"(?<![\w.])([a-z_]\w*)\.[\w.]*[A-Z]", annotation)
    }
    assert found
    assert sorted(package for package in found if importlib.util.find_spec(package) is None) == []


def test_the_modules_that_pages_run_exist() -> None:
    named = {
        module
        for page in PAGES
        for module in re.findall(r"python -m (aiokclient[\w.]*)", text_of(page))
    }
    for module in sorted(named):
        done = subprocess.run(
            [sys.executable, "-m", module, "--help"], capture_output=True, check=False
        )
        assert done.returncode == 0, module


def test_the_table_of_options_lists_every_option_once() -> None:
    listed: dict[str, list[str]] = {client: [] for client in CLIENTS}
    for _, client, names in by_subject():
        listed[client] += names
    for client, config in CLIENTS.items():
        names = [each.name for each in describe(config) if each.shared == (config is ClientConfig)]
        assert sorted(listed[client]) == sorted(names), client
    others = {each.name for each in describe(GroupMemberConfig) if not each.shared}
    assert others - {*listed["consumer"]} == {"protocol_type", "rebalance_timeout_ms"}


def test_the_table_of_names_has_each_options_name_and_default_in_kafka() -> None:
    rows = names_table()
    assert any("| `linger_ms` | `5` | `linger.ms` | the same |" in row for row in rows)
    assert any("| `start_without_brokers` | `False` | - | - |" in row for row in rows)
    listed = sum(len(names) for _, _, names in by_subject())
    assert len(rows) == listed + 2


def test_the_catalog_has_a_section_for_every_category() -> None:
    listed = re.findall(r"\{errors\} (\w+)", text_of(CATALOG))
    assert sorted(listed) == sorted(CATEGORIES)


def test_the_catalog_says_of_every_error_what_happened_why_and_what_to_do() -> None:
    entries = [entry for category in CATEGORIES for entry in errors_of(category)]
    assert sorted(entry.name for entry in entries) == sorted(kind.__name__ for kind in classes())
    assert sorted(causes()) == sorted(entry.name for entry in entries)
    lacking = [entry.name for entry in entries if not (entry.what and entry.why.endswith("."))]
    assert lacking == []
    # Categories, and local errors whose text depends on the case, say what to do in their section.
    told = {entry.name for entry in entries if entry.hint or entry.steps}
    with_code = {entry.name for entry in entries if entry.code is not None}
    assert with_code <= told
    assert len({entry.anchor for entry in entries}) == len(entries)


def test_the_text_of_an_error_names_its_entry_exactly_if_that_has_steps() -> None:
    expected = {
        name: f"reference/errors.html#{name.lower()}" if "steps" in cause else ""
        for name, cause in causes().items()
    }
    found = {kind.__name__: kind.help for kind in classes() if issubclass(kind, KafkaError)}
    assert found == {name: expected[name] for name in found}
    assert 20 < len([each for each in found.values() if each]) < 40


def test_the_links_of_the_reasons_in_the_catalog_lead_somewhere() -> None:
    assert broken_links(CATALOG, CAUSES.read_text()) == []
