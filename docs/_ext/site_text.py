"""The text of the site: its pages in the order of the contents, with the generated parts.

The search of the site, `llms.txt`, and `llms-full.txt` are made from it. It needs no Sphinx, so
that the tests of the search are cheap.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from error_reference import errors_of
from option_reference import anchor_of, describe, names_table

from aiokclient.types.named_tuple import NamedTuple

DOCS: Final = Path(__file__).resolve().parent.parent
SITE_NAME: Final = "aiokclient"
SHORT: Final = 20
"""Characters of a sentence that says too little by itself."""


class SitePage(NamedTuple):
    """One page of the site."""

    name: str
    """The path below `docs`, without the suffix."""
    title: str
    keywords: str
    """The words that readers may use for the subject, from the front matter of the page."""
    part: str
    """The caption of the part of the contents that lists the page."""
    text: str
    """Markdown, with the generated parts."""

    @property
    def url(self) -> str:
        """The address relative to the site."""
        return f"{self.name}.html"


class SiteSection(NamedTuple):
    """A heading of a page, and the text up to the next heading."""

    page: SitePage
    heading: str
    """The heading, or an empty string for the text below the title of the page."""
    anchor: str
    text: str

    @property
    def url(self) -> str:
        """The address relative to the site."""
        return f"{self.page.url}#{self.anchor}" if self.anchor else self.page.url


def pages() -> list[SitePage]:
    """Return the pages in the order of the contents. The first one is the front page."""
    index = (DOCS / "index.md").read_text()
    found = [_page("index", "")]
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", index, re.M | re.S):
        (caption,) = re.findall(r"^:caption: (.+)$", block, re.M)
        for line in block.splitlines():
            if line and not line.startswith(":"):
                found.append(_page(line, caption))
    return found


@cache
def _page(name: str, part: str) -> SitePage:
    source = (DOCS / f"{name}.md").read_text()
    front, body = split_front_matter(source)
    words = re.search(r"^ +keywords: (.+)$", front, re.M)
    text = _expand(body)
    title = re.search(r"^# (.+)$", text, re.M)
    if title is None:
        raise ValueError(f"{name} has no title.")
    return SitePage(name, title[1].replace("`", ""), words[1] if words else "", part, text)


def split_front_matter(source: str) -> tuple[str, str]:
    """Return the front matter of a page without its lines of dashes, and the rest of the page."""
    match = re.match(r"---\n(.*?)^---\n+", source, re.M | re.S)
    return (match[1], source[match.end() :]) if match else ("", source)


def _expand(source: str) -> str:
    """Return Markdown in which generated parts stand in place of their directives."""

    def replacement(match: re.Match[str]) -> str:
        directive, argument, content = match[1], match[2].strip(), match[3]
        if directive == "errors":
            return "\n\n".join(
                f"### {entry.name}\n\n{entry.markdown()}" for entry in errors_of(argument)
            )
        if directive == "options":
            return "\n\n".join(_options(argument))
        if directive == "option-names":
            return "\n".join(names_table())
        if directive == "eval-rst":
            return "\n\n".join(_reference(content))
        if directive == "image":
            alternative = re.search(r"^:alt: (.+)$", content, re.M)
            shown = alternative and ":class: only-dark" not in content
            return f"![{alternative[1]}]({argument})" if alternative and shown else ""
        return "" if directive == "toctree" else match[0]

    return re.sub(r"^```\{([\w-]+)\}([^\n]*)\n(.*?)^```$", replacement, source, flags=re.M | re.S)


def _options(argument: str) -> Iterator[str]:
    module, _, name = argument.partition(":")
    everything = name == "ClientConfig"
    config = getattr(import_module(module), name)
    for entry in describe(config):
        if everything or not entry.shared:
            anchor = anchor_of(config, entry.name)
            yield f"#### {entry.name} {{#{anchor}}}\n\n{entry.text}\n\n{entry.facts}"


def _reference(block: str) -> Iterator[str]:
    """Yield an entry for each documented class and function of a block of the API reference."""
    package = SITE_NAME
    for entry in re.split(r"^(?=\.\. )", block, flags=re.M):
        match = re.match(r"\.\. ([\w:]+)::(?: ([^\n]+))?\n(.*)", entry, re.S)
        if match is None:
            continue
        directive, name, options = match[1], match[2], match[3]
        if directive == "currentmodule":
            package = name
        elif directive == "automodule":
            package = name
            module = import_module(name)
            for each in module.__all__:
                yield from _object(f"{name}.{each}", getattr(module, each), members=False)
        elif directive.startswith("auto"):
            path = name if "." in name else f"{package}.{name}"
            module_name, _, own = path.rpartition(".")
            value = getattr(import_module(module_name), own)
            yield from _object(path, value, members=":members:" in options)


def _object(path: str, value: Any, members: bool) -> Iterator[str]:
    name = path.rpartition(".")[2]
    yield f"### {name} {{#{path}}}\n\n{_signature(name, value)}{_docstring(value)}"
    if not members or not inspect.isclass(value):
        return
    for member in sorted(each for each in dir(value) if not each.startswith("_")):
        found = inspect.getattr_static(value, member)
        function = getattr(found, "fget", None) or getattr(found, "__func__", found)
        if _is_own_routine(function, value) and inspect.getdoc(function):
            yield (
                f"#### {name}.{member} {{#{path}.{member}}}\n\n"
                f"{_signature(member, function)}{_docstring(function)}"
            )


def _is_own_routine(function: Any, owner: type) -> bool:
    """Return whether the library has this method, rather than Python or a name of another client.

    Methods of native modules say nothing about their modules. The pure ones are called the same.
    """
    if inspect.isfunction(function):
        return function.__module__.startswith(SITE_NAME)
    return (
        inspect.ismethoddescriptor(function)
        and hasattr(function, "__objclass__")
        and (function.__objclass__.__module__.startswith(SITE_NAME))
    )


def _signature(name: str, value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    # Annotations without the quotes of those that are not evaluated.
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)|(?<=: |> )'([^']*)'", r"\1\2", text)
    # A list of 80 options says nothing here: the page about options has them.
    return f"`{name}{text}`\n\n" if len(text) < 600 else ""


def _docstring(value: Any) -> str:
    return inspect.getdoc(value) or ""


def sections(page: SitePage) -> Iterator[SiteSection]:
    """Yield the sections of a page in order."""
    heading, anchor = "", ""
    lines: list[str] = []
    fence = ""
    for line in page.text.split("\n"):
        marks = re.match(r"`{3,}", line)
        if marks and not fence:
            fence = marks[0]
        elif fence and line.startswith(fence):
            fence = ""
        found = None if fence else re.match(r"(#{1,4}) (.+?)(?: \{#([^}]*)\})?$", line)
        if found is None:
            lines.append(line)
            continue
        yield SiteSection(page, heading, anchor, "\n".join(lines).strip())
        lines = []
        if len(found[1]) == 1:
            heading, anchor = "", ""
        else:
            heading = found[2].replace("`", "")
            anchor = slug(found[2]) if found[3] is None else found[3]
    yield SiteSection(page, heading, anchor, "\n".join(lines).strip())


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def plain(markdown: str) -> str:
    """Return Markdown without its marks: links as their texts, code without backticks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"^[`:]{3,}.*$|\*\*|`|^\|[-| :]+\|$|^\([\w-]+\)=$", "", text, flags=re.M)
    return re.sub(r"\s+", " ", text.replace("|", " ")).strip()


def contents() -> str:
    """Return `llms.txt`: what the library is, and each page with its address and first sentence."""
    front, *others = pages()
    summary = plain(next(sections_with_text(front)).text.split("\n\n")[0])
    lines = [f"# {SITE_NAME}", "", f"> {summary}", ""]
    lines += ["All pages in one file: [llms-full.txt](llms-full.txt)", ""]
    part = ""
    for page in others:
        if page.part != part:
            part = page.part
            lines += ["", f"## {part}", ""] if lines[-1] else [f"## {part}", ""]
        lines.append(f"- [{page.title}]({page.url}): {first_sentence(page)}")
    return "\n".join(lines) + "\n"


def sections_with_text(page: SitePage) -> Iterator[SiteSection]:
    """Yield the sections of a page that are not empty."""
    return (section for section in sections(page) if plain(section.text))


def first_sentence(page: SitePage) -> str:
    """Return the first sentence of a page, with the next one if it is only a word or two."""
    text = plain(next(sections_with_text(page)).text.split("\n\n")[0])
    first, *rest = re.split(r"(?<=[.:]) (?=[A-Z])", text)
    sentence = f"{first} {rest[0]}" if len(first) < SHORT and rest else first
    return sentence.rstrip(":")


def everything() -> str:
    """Return `llms-full.txt`: all pages as one Markdown text, in the order of the contents."""
    parts = [f"# {SITE_NAME}: the whole documentation", ""]
    for page in pages():
        text = re.sub(r"^(#{1,4} .+?) \{#[^}]*\}$", r"\1", page.text, flags=re.M)
        parts += [f"<!-- {page.url} -->", "", text.strip(), "", ""]
    return "\n".join(parts)


def search_index() -> dict[str, Any]:
    """Return what the search script of the site reads: pages, and their sections."""
    found = pages()
    return {
        "pages": [
            {"url": each.url, "title": each.title, "keywords": each.keywords, "part": each.part}
            for each in found
        ],
        "sections": [
            {
                "page": number,
                "anchor": section.anchor,
                "heading": section.heading,
                "text": plain(section.text),
            }
            for number, page in enumerate(found)
            for section in sections(page)
            if section.heading or plain(section.text)
        ],
    }
