"""Kinds of options: the allowed values, and the conversion of a text to a value.

A kind checks a value from a program and reads a value from a properties file. Both raise
ValueError: without a text if `allowed` says enough, otherwise with complete sentences.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from aiokclient.config.secret import Secret
from aiokclient.log.texts import bounded, printable
from aiokclient.types import shortened, text_problem

LONGEST_HOST = 300
"""The number of characters of a host that errors and logs show. A valid name has at most 255."""

T = TypeVar("T")


class Kind:
    """The type of an option's values. `allowed` completes the sentence "It must be ..."."""

    __slots__ = ()

    @property
    def allowed(self) -> str:
        raise NotImplementedError

    def check_value(self, value: Any) -> Any:
        """Return the value in its normal form. Raises ValueError if it is not allowed."""
        raise NotImplementedError

    def parse_text(self, text: str) -> Any:
        """Return the value of a text. Raises ValueError if it is not allowed."""
        return self.check_value(text)


class Integer(Kind):
    """An int within inclusive bounds."""

    __slots__ = ("least", "most", "optional")

    def __init__(self, least: int = 0, most: int = 2**31 - 1, optional: bool = False) -> None:
        self.least = least
        self.most = most
        self.optional = optional

    @property
    def allowed(self) -> str:
        limits = f"from {self.least} to {self.most}"
        return f"an integer {limits}" + (", or None" if self.optional else "")

    def check_value(self, value: Any) -> int | None:
        if value is None and self.optional:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        if not self.least <= value <= self.most:
            raise ValueError
        return value

    def parse_text(self, text: str) -> int | None:
        try:
            return self.check_value(int(text))
        except ValueError:
            raise ValueError from None


class Number(Kind):
    """A float within inclusive bounds."""

    __slots__ = ("least", "most")

    def __init__(self, least: float, most: float) -> None:
        self.least = least
        self.most = most

    @property
    def allowed(self) -> str:
        return f"a number from {self.least} to {self.most}"

    def check_value(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        if not self.least <= value <= self.most:
            raise ValueError
        return float(value)

    def parse_text(self, text: str) -> float:
        try:
            return self.check_value(float(text))
        except ValueError:
            raise ValueError from None


class Choice(Kind, Generic[T]):
    """One of several values, each with the texts or other values that are converted to it."""

    __slots__ = ("meanings",)

    def __init__(self, meanings: tuple[tuple[T, tuple[Any, ...]], ...]) -> None:
        self.meanings = meanings

    @classmethod
    def of(cls, *values: str) -> Choice[str]:
        """Return a choice of these texts, which may be in upper or lower case."""
        return Choice(tuple((value, (value,)) for value in values))

    @property
    def allowed(self) -> str:
        names = [repr(spellings[0]) for _, spellings in self.meanings]
        return f"one of {', '.join(names[:-1])} and {names[-1]}"

    def check_value(self, value: Any) -> T:
        if isinstance(value, str):
            value = value.strip().lower()
        for meaning, spellings in self.meanings:
            for spelling in spellings:
                if type(value) is type(spelling) and value == spelling:
                    return meaning
        raise ValueError


class Boolean(Kind):
    """True or False. The texts are `true` and `false`."""

    __slots__ = ("optional",)

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional

    @property
    def allowed(self) -> str:
        return "True or False"

    def check_value(self, value: Any) -> bool | None:
        if isinstance(value, bool) or (self.optional and value is None):
            return value
        raise ValueError

    def parse_text(self, text: str) -> bool:
        return Choice(((True, ("true",)), (False, ("false",)))).check_value(text)


class Text(Kind):
    """A string. If it is optional, it may be None, and an empty text means None.

    Unless it is a path, which may have any bytes, it must be a text that brokers can receive.
    """

    __slots__ = ("optional", "path")

    def __init__(self, optional: bool = False, path: bool = False) -> None:
        self.optional = optional
        self.path = path

    @property
    def allowed(self) -> str:
        return "a string or None" if self.optional else "a string that is not empty"

    def check_value(self, value: Any) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str) or not (value or self.optional):
            raise ValueError
        if not self.path and (problem := text_problem(value)):
            raise ValueError(problem)
        return value

    def parse_text(self, text: str) -> str | None:
        return self.check_value(text or None if self.optional else text)


class SecretText(Kind):
    """A string that is wrapped in a `Secret`, or None. An empty text means None."""

    @property
    def allowed(self) -> str:
        return "a string or None"

    def check_value(self, value: Any) -> Secret | None:
        value = Secret.of(value)
        if value is not None and not value.is_text:
            raise ValueError
        return value or None


STRATEGIES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""The short names of the built-in assignors, by the names of Kafka's classes."""
OWN_STRATEGIES = ("redundant", "co-partitioned")
"""The names of the built-in assignors that Kafka does not have."""


class AssignmentStrategies(Kind):
    """A tuple of assignors in order of preference. In a text, commas separate their names.

    The names of Kafka's classes are converted to short names. Classes and objects are kept.
    """

    @property
    def allowed(self) -> str:
        return (
            f"one of {', '.join(map(repr, [*STRATEGIES.values(), *OWN_STRATEGIES]))}, the name of "
            f"Kafka's class for one of the first four ({next(iter(STRATEGIES))}), a class derived "
            "from aiokclient.Assignor, an object of one, or a list of them"
        )

    def check_value(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        elif not isinstance(value, Sequence):
            value = (value,)
        strategies = tuple(map(self._check_strategy, value))
        names = [one for one in strategies if isinstance(one, str)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"The name {twice[0]!r} may occur only once.")
        if not strategies:
            raise ValueError
        return strategies

    def _check_strategy(self, value: Any) -> Any:
        if isinstance(value, str):
            name = STRATEGIES.get(value, value)
            if name in STRATEGIES.values() or name in OWN_STRATEGIES:
                return name
        elif callable(getattr(value, "assign", None)):
            return value
        raise ValueError(f"{value!r} is not an assignor. It must be {self.allowed}.")


class Given(Kind):
    """An object that only a program can pass, or None.

    It must have the method `method`. With `or_function`, it may also be a function.
    """

    __slots__ = ("method", "or_function", "synchronous", "what")

    def __init__(
        self,
        what: str,
        method: str = "__call__",
        or_function: bool = False,
        synchronous: bool = False,
    ) -> None:
        self.what = what
        self.method = method
        self.or_function = or_function
        self.synchronous = synchronous
        """Whether the object is called without await."""

    @property
    def allowed(self) -> str:
        return f"{self.what}, passed as an argument by the program"

    def check_value(self, value: Any) -> Any:
        if isinstance(value, str):
            self._check_text(value)
        fits = hasattr(value, self.method) or (self.or_function and callable(value))
        if value is not None and not fits:
            raise ValueError
        called = (value, getattr(value, self.method, None))
        if self.synchronous and any(map(inspect.iscoroutinefunction, called)):
            raise ValueError("It must be an ordinary function, because it is called without await.")
        return value

    def parse_text(self, text: str) -> Any:
        self._check_text(text)
        raise ValueError

    def _check_text(self, text: str) -> None:
        """Raise ValueError, with a hint, if the text is the name of a Java class."""
        from aiokclient.log.hints.names import serializer_hint

        hint = serializer_hint(text)
        if hint is not None:
            raise ValueError(f"It must be {self.what}. {hint}")


class Addresses(Kind):
    """Pairs of host and port. In a text, commas separate them. IPv6 has the form `[::1]:9092`."""

    @property
    def allowed(self) -> str:
        return "host:port, or several of them, with an IPv6 address in brackets: [::1]:9092"

    def check_value(self, value: Any) -> tuple[tuple[str, int], ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Sequence) or isinstance(items, bytes | bytearray):
            raise ValueError
        addresses = tuple(_address(item) for item in items if item != "")
        if not addresses:
            raise ValueError("Give the address, host:port, of one or more brokers.")
        return addresses


class OptionalAddresses(Addresses):
    """The addresses of `Addresses`, or none."""

    def check_value(self, value: Any) -> tuple[tuple[str, int], ...]:
        return () if value == () else super().check_value(value)


_ADDRESS = re.compile(
    r"(?:[A-Za-z_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>\d{1,5})"
)

_URL = re.compile(r"https?://", re.I)


def _address(item: Any) -> tuple[str, int]:
    if isinstance(item, tuple) and len(item) == 2:
        host, port = item
        if not isinstance(host, str) or not isinstance(port, int):
            raise ValueError
        host = bare(host)
    else:
        text = item.strip() if isinstance(item, str) else ""
        if _URL.match(text):
            raise ValueError(
                f"{shortened(text)} is a URL. Brokers do not speak HTTP: write host:port, with the "
                "port of a Kafka listener."
            )
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{shortened(item)} is not host:port, or [host]:port for an IPv6 address."
            )
        host, port = match["v6"] or match["host"], int(match["port"])
    if problem := text_problem(host):
        raise ValueError(f"The host {shortened(host)} is not a name. {problem}")
    if not 0 < port < 65536:
        raise ValueError(f"The port in {shortened(item)} is not from 1 to 65535.")
    return host, port


def bare(host: str) -> str:
    """Return a host without the brackets around an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def bracketed(host: str) -> str:
    """Return a host with brackets around an IPv6 address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def written(address: tuple[str, int]) -> str:
    """Return an address in the format of `bootstrap_servers`."""
    host, port = address
    # A broker may advertise any text as its host.
    return f"{printable(bounded(bracketed(host), LONGEST_HOST))}:{port}"


class OffsetReset(Kind):
    """An offset reset: a name, or `by_duration:` with an ISO 8601 duration."""

    @property
    def allowed(self) -> str:
        return "'earliest', 'latest', 'none' or 'by_duration:' with a duration such as PT24H or P7D"

    def check_value(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        name, _, duration = value.partition(":")
        if name.lower() == "by_duration":
            self.duration_ms(value)
            return f"by_duration:{duration.upper()}"
        return Choice.of("earliest", "latest", "none").check_value(value)

    @staticmethod
    def duration_ms(value: str) -> int | None:
        """Return the milliseconds of a `by_duration:` value, or None for a name."""
        kind, _, duration = value.partition(":")
        if kind.lower() != "by_duration":
            return None
        match = _DURATION.fullmatch(duration.upper())
        if match is None or not any(match.groups()):
            raise ValueError
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


NOT_NEGATIVE = Integer(0)
POSITIVE = Integer(1)
BOOLEAN = Boolean()
OPTIONAL_BOOLEAN = Boolean(optional=True)
TEXT = Text()
OPTIONAL_TEXT = Text(optional=True)
OPTIONAL_PATH = Text(optional=True, path=True)
OPTIONAL_SECRET = SecretText()
FUNCTION = Given("a function", synchronous=True)
SERIALIZER = Given(
    "a function, or an object with serialize()", "serialize", or_function=True, synchronous=True
)
DESERIALIZER = Given(
    "a function, or an object with deserialize()", "deserialize", or_function=True, synchronous=True
)
SECURITY = Given(
    "Plaintext(), Tls(...), an ssl.SSLContext, or SaslPlain(...) and its like", "__class__"
)
CONNECTOR = Given("an object with resolve() and connect()", "connect")
CLOCK = Given("an object with monotonic(), time_ms() and rng", "monotonic")
