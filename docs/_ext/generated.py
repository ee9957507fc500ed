"""Parts of pages that are generated from the code: options, and errors.

```{options} aiokclient.config.producer:ProducerConfig
```
```{errors} RetriableError
```
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from error_reference import ErrorEntry, errors_of
from option_reference import CLIENTS, OptionEntry, anchor_of, describe, names_table

from aiokclient.config.client import ClientConfig

__all__ = ["setup"]


class Generated(Directive):
    """A directive whose Markdown is generated when the page is read."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the generated text."""
        parent = nodes.container()
        lines = self.lines(self.arguments[0])
        self.state.nested_parse(StringList(lines, source=self.arguments[0]), 0, parent)
        return list(parent.children)

    def lines(self, argument: str) -> list[str]:
        """Return the lines of Markdown."""
        raise NotImplementedError


class Options(Generated):
    """The options of one client, without those that all clients have, each with an anchor."""

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        made = super().run()
        config = self.config(self.arguments[0])
        for each in made:
            for term in each.findall(nodes.term):
                term["ids"].append(anchor_of(config, term.astext()))
        return made

    def config(self, argument: str) -> Any:
        """Return the class of options that the argument names."""
        module, _, name = argument.partition(":")
        return getattr(import_module(module), name)

    def lines(self, argument: str) -> list[str]:
        """Return a definition list of the options."""
        config = self.config(argument)
        everything = config is ClientConfig
        entries = [entry for entry in describe(config) if everything or not entry.shared]
        return [line for entry in entries for line in option(entry)]


def option(entry: OptionEntry) -> list[str]:
    """Return one option as an entry of a definition list."""
    return [f"`{entry.name}`", f": {entry.text}", "", f"  {entry.facts}", ""]


class OptionNames(Generated):
    """All options by subject, beside their names and defaults in Kafka."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        parent = nodes.container()
        self.state.nested_parse(StringList(names_table(), source="options"), 0, parent)
        return list(parent.children)


class Errors(Directive):
    """The errors of one category, each in a section with an anchor of its own."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a section for each class."""
        return [self.section(entry) for entry in errors_of(self.arguments[0])]

    def section(self, entry: ErrorEntry) -> nodes.section:
        """Return the section of one class."""
        section = nodes.section(ids=[entry.anchor], names=[entry.anchor])
        section += nodes.title(entry.name, entry.name)
        self.state.document.note_explicit_target(section, section)
        lines = entry.markdown().split("\n")
        self.state.nested_parse(StringList(lines, source=entry.name), 0, section)
        return section


def link_options(app: Any, doctree: nodes.document) -> None:
    """Let the table of options by subject lead to what the page says about each option."""
    if app.env.docname != "reference/options":
        return
    for row in doctree.findall(nodes.row):
        cells = [cell for cell in row.children if isinstance(cell, nodes.entry)]
        if len(cells) != 3 or cells[1].astext() not in CLIENTS:
            continue
        config = CLIENTS[cells[1].astext()]
        for literal in list(cells[2].findall(nodes.literal)):
            anchor = anchor_of(config, literal.astext())
            link = nodes.reference("", "", internal=True, refid=anchor)
            literal.replace_self(link)
            link += literal


def setup(app: Any) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("options", Options)
    app.add_directive("option-names", OptionNames)
    app.add_directive("errors", Errors)
    app.connect("doctree-read", link_options)
    return {"parallel_read_safe": True}
