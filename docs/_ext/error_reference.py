"""The catalog of errors: the sentences of the classes, and the reasons in `error-causes.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from aiokclient import errors
from aiokclient.errors import KafkaError
from aiokclient.types.named_tuple import NamedTuple

CAUSES = Path(__file__).resolve().parent.parent / "reference" / "error-causes.toml"

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


class ErrorEntry(NamedTuple):
    """One error class, as the catalog shows it."""

    name: str
    code: int | None
    kafka_name: str | None
    """Kafka's name for the code, None for an error of the library."""
    what: list[str]
    """What happened, in paragraphs."""
    why: str
    hint: str
    """What to do, as the text of the error says it."""
    steps: str
    """Steps that take more than the text can say, or an empty string."""
    parents: list[str]

    @property
    def anchor(self) -> str:
        """The anchor of the entry in the catalog."""
        return self.name.lower()

    def markdown(self) -> str:
        """Return the entry without its heading."""
        parts = [] if self.code is None else [f"`{self.kafka_name}`, code {self.code}."]
        parts += [*self.what, f"**Why:** {self.why}"]
        if self.hint:
            parts.append(f"**What to do:** {self.hint}")
        if self.steps:
            parts += [] if self.hint else ["**What to do:**"]
            parts.append(self.steps.strip())
        parents = " and ".join(f"`{each}`" for each in self.parents)
        return "\n\n".join([*parts, f"A subclass of {parents}."])


def classes() -> list[type[Exception]]:
    """Return every error class of `aiokclient.errors`."""
    values = {id(value): value for value in vars(errors).values()}.values()
    kinds = (KafkaError, ExceptionGroup)
    return [each for each in values if isinstance(each, type) and issubclass(each, kinds)]


def errors_of(category: str) -> list[ErrorEntry]:
    """Return the errors of one category: the category, then codes in order, then other classes."""
    found = [each for each in classes() if category_of(each) == category]
    order = {cls.__name__: _order(cls) for cls in found}
    return sorted((_entry(cls) for cls in found), key=lambda entry: order[entry.name])


def category_of(cls: type) -> str:
    """Return the section of the catalog to which a class belongs."""
    names = {base.__name__ for base in cls.__mro__}
    return next((name for name in CATEGORIES if name in names), "KafkaError")


@cache
def causes() -> dict[str, dict[str, str]]:
    """Return the reasons and steps of each class, by its name."""
    return tomllib.loads(CAUSES.read_text())


def _order(cls: type) -> tuple[bool, int, str]:
    code = cls.__dict__.get("code")
    return (cls.__name__ not in CATEGORIES, 10_000 if code is None else code, cls.__name__)


def _entry(cls: type[Exception]) -> ErrorEntry:
    own = cls.__dict__
    cause = causes()[cls.__name__]
    what = own.get("what") or (cls.__doc__ or "").strip()
    paragraphs = [part.replace("\n", " ") for part in what.split("\n\n") if part[:1] != " "]
    return ErrorEntry(
        name=cls.__name__,
        code=own.get("code"),
        kafka_name=own.get("name"),
        what=paragraphs,
        why=cause["why"],
        hint=own.get("hint", ""),
        steps=cause.get("steps", ""),
        parents=[base.__name__ for base in cls.__bases__],
    )
