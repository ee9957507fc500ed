"""The reference of all options, from their declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aiokclient.config.client import ClientConfig
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.config.login import LoginConfig
from aiokclient.config.option import ABSENT, Option
from aiokclient.config.producer import ProducerConfig
from aiokclient.config.share import ShareConsumerConfig
from aiokclient.types.named_tuple import NamedTuple

PAGE: Final = Path(__file__).resolve().parent.parent / "reference" / "options.md"

CLIENTS: Final[dict[str, type[ClientConfig]]] = {
    "all": ClientConfig,
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "share consumer": ShareConsumerConfig,
}
"""The options of clients, by the names that the table of options by subject gives them."""

# The alias says more to type checkers than to readers.
_SERIALIZER: Final = re.compile(r"SerializerFunction\[(\w)\]")


class OptionEntry(NamedTuple):
    """One option, as the reference shows it."""

    name: str
    type: str
    """The type of the keyword argument."""
    default: str
    allowed: str
    """The end of the sentence "It must be ..."."""
    text: str
    kafka_name: str
    """The name in properties files."""
    in_java: bool
    """Whether Kafka's Java clients have an option of this name."""
    java_default: str | None
    """The default of the Java clients if it differs, otherwise None."""
    shared: bool
    """Whether every client has this option."""

    @property
    def facts(self) -> str:
        """Its type, its default, what it accepts, and its counterpart in Kafka, in Markdown."""
        if not self.in_java:
            kafka = "Kafka's Java clients have no such option."
        elif self.java_default is None:
            kafka = f"In Kafka: `{self.kafka_name}`, with the same default."
        elif self.java_default == "required":
            kafka = f"In Kafka: `{self.kafka_name}`, without a default."
        else:
            kafka = f"In Kafka: `{self.kafka_name}`, default `{self.java_default}`."
        own = f"Type `{self.type}`, default `{self.default}`. It must be {self.allowed}."
        return f"{own} {kafka}"


def describe(config: type[ClientConfig]) -> list[OptionEntry]:
    """Return the options of one kind of client, in the order of their declarations.

    The options that every client has come first, and among these, the options of logins come last.
    `describe(ClientConfig)` returns only the options that every client has.
    """
    of_login = [*LoginConfig.declarations]
    of_all = [*ClientConfig.declarations]
    order = [*of_all[len(of_login) :], *of_login]
    known = config.declarations
    return [
        _entry(known[name], name in of_all)
        for name in [*order, *(name for name in known if name not in of_all)]
    ]


def _entry(declaration: Option, shared: bool) -> OptionEntry:
    in_java = declaration.java != ABSENT
    return OptionEntry(
        name=declaration.name,
        type=_SERIALIZER.sub(r"Callable[[\1], bytes]", declaration.accepts or declaration.type),
        default=declaration.shown or repr(declaration.default),
        allowed=declaration.kind.allowed,
        text=declaration.text,
        kafka_name=declaration.name.replace("_", "."),
        in_java=in_java,
        java_default=declaration.java if in_java else None,
        shared=shared,
    )


def anchor_of(config: type[ClientConfig], name: str) -> str:
    """Return the anchor of an option of one kind of client on the page of options."""
    client = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", config.__name__.removesuffix("Config"))
    return f"{client.lower()}-{name}"


def by_subject() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the rows of the table of options by subject: subject, client, and options."""
    subject = ""
    kinds = "|".join(CLIENTS)
    for row in re.finditer(rf"^\|([^|]+)\| ({kinds}) \| ([^|]+) \|$", PAGE.read_text(), re.M):
        subject = row[1].strip() or subject
        yield subject, row[2], re.findall(r"`(\w+)`", row[3])


def names_table() -> list[str]:
    """Return a table of all options by subject, with their names and defaults in Kafka."""
    lines = [
        "| Subject | Option | Default | In Kafka | Kafka's default |",
        "| --- | --- | --- | --- | --- |",
    ]
    shown = ""
    for subject, client, names in by_subject():
        entries = {entry.name: entry for entry in describe(CLIENTS[client])}
        for name in names:
            entry = entries[name]
            kafka, default = "-", "-"
            if entry.in_java:
                kafka = f"`{entry.kafka_name}`"
                default = "the same" if entry.java_default is None else f"`{entry.java_default}`"
            label = subject if subject != shown else ""
            shown = subject
            lines.append(f"| {label} | `{name}` | `{entry.default}` | {kafka} | {default} |")
    return lines
