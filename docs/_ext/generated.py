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
from option_reference import OptionEntry, describe

from aiokclient import errors
from aiokclient.errors import KafkaError

__all__ = ["setup"]

CATEGORIES = (
    "RefreshRetriableError",
    "RetriableError",
    "AbortableError",
    "ApplicationRecoverableError",
    "InvalidConfigurationError",
    "UsageError",
    "KafkaError",
)
"""The base classes that name the sections of the catalog. A class belongs to the section of the
first one that it derives from."""


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
    """The options of one client, without those that all clients have."""

    def lines(self, argument: str) -> list[str]:
        """Return a definition list of the options."""
        module, _, name = argument.partition(":")
        config = getattr(import_module(module), name)
        everything = name == "ClientConfig"
        entries = [entry for entry in describe(config) if everything or not entry.shared]
        return [line for entry in entries for line in option(entry)]


def option(entry: OptionEntry) -> list[str]:
    """Return one option as an entry of a definition list."""
    if not entry.in_java:
        kafka = "Kafka's Java clients have no such option."
    elif entry.java_default is None:
        kafka = f"In Kafka: `{entry.kafka_name}`, with the same default."
    elif entry.java_default == "required":
        kafka = f"In Kafka: `{entry.kafka_name}`, without a default."
    else:
        kafka = f"In Kafka: `{entry.kafka_name}`, default `{entry.java_default}`."
    return [
        f"`{entry.name}`",
        f": {entry.text}",
        "",
        f"  Type `{entry.type}`, default `{entry.default}`. It must be {entry.allowed}. {kafka}",
        "",
    ]


class Errors(Generated):
    """The errors of one category."""

    def lines(self, argument: str) -> list[str]:
        """Return a definition list of the classes."""
        found = [cls for cls in classes() if category(cls) == argument]
        return [line for cls in sorted(found, key=order) for line in error(cls)]


def classes() -> list[type[KafkaError]]:
    """Return every error class of `aiokclient.errors`."""
    values = {id(value): value for value in vars(errors).values()}.values()
    return [each for each in values if isinstance(each, type) and issubclass(each, KafkaError)]


def category(cls: type[KafkaError]) -> str:
    """Return the section of the catalog to which a class belongs."""
    names = {base.__name__ for base in cls.__mro__}
    return next(name for name in CATEGORIES if name in names)


def order(cls: type[KafkaError]) -> tuple[int, str]:
    """Return the sort key of a class: broker errors by code, then the library's own by name."""
    own = cls.__dict__.get("code")
    return (10_000 if own is None else own, cls.__name__)


def error(cls: type[KafkaError]) -> list[str]:
    """Return one class as an entry of a definition list: what happened, and what to do."""
    code = cls.__dict__.get("code")
    label = f", {cls.name} ({code})" if code is not None else ""
    parents = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
    what = cls.__dict__.get("what") or (cls.__doc__ or "").strip()
    paragraphs = [part.replace("\n", " ") for part in what.split("\n\n") if part[:1] != " "]
    lines = [f"`{cls.__name__}`{label}", f": {paragraphs[0] if paragraphs else ''}", ""]
    for paragraph in paragraphs[1:]:
        lines += [f"  {paragraph}", ""]
    if hint := cls.__dict__.get("hint"):
        lines += [f"  **What to do:** {hint}", ""]
    return [*lines, f"  A subclass of {parents}.", ""]


def setup(app: Any) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("options", Options)
    app.add_directive("errors", Errors)
    return {"parallel_read_safe": True}
