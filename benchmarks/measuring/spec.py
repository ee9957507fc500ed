"""The workload of a child process, and the results that it reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK_RECORDS = 10_000
CHUNK_BYTES = 4_000_000
KEYS = 10_000
FIRST = b"first"
"""The value that a producer sends first, so that it is connected when the clock starts."""


@dataclass(frozen=True)
class Spec:
    """One workload. Each field is passed as `name=value`, so that any language can read it."""

    bootstrap: str = ""
    mode: str = "produce"
    topic: str = ""
    group: str = ""
    partitions: int = 6
    count: int = 0
    size: int = 100
    payloads: str = ""
    """A file of consecutive values of `size` bytes, which are sent repeatedly."""
    compression: str = "none"
    keyed: bool = False
    tuned: bool = True
    """Whether all clients use the next three settings. Otherwise, each client uses its defaults."""
    batch_bytes: int = 131_072
    linger_ms: int = 5
    in_flight: int = 5
    tasks: int = 1_000
    warm_topic: str = ""
    warm_count: int = 0
    """Number of messages in a run before the measured one, to warm up caches and compilers."""
    records: int = 1
    """Number of records in each transaction. `count` is then the number of transactions."""
    output: str = ""
    """The topic to which a transform writes."""
    protocol: str = "PLAINTEXT"
    """Kafka's security protocol of the listener at `bootstrap`."""
    authority: str = ""
    """The file of the certificate that clients trust."""
    mechanism: str = ""
    """The SASL mechanism, or an empty text without SASL."""
    user: str = ""
    password: str = ""
    keytab: str = ""
    """The keytab of the user, for GSSAPI."""

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    def arguments(self) -> list[str]:
        return [f"{name}={_text(value)}" for name, value in asdict(self).items()]

    @classmethod
    def parse(cls, arguments: list[str]) -> Spec:
        given = dict(argument.split("=", 1) for argument in arguments)
        values: dict[str, Any] = {}
        for each in fields(cls):
            text, kind = given[each.name], type(each.default)
            values[each.name] = text == "true" if kind is bool else kind(text)
        return cls(**values)

    def warming(self) -> Spec:
        return replace(self, topic=self.warm_topic, output="", count=self.warm_count)

    def all_records(self) -> Spec:
        """Return the same workload with the records of all transactions as its messages."""
        return replace(self, count=self.count * self.records)

    def with_defaults(self) -> Spec:
        """Return the same workload with the default settings of each client."""
        return replace(self, tuned=False)

    def over_plaintext(self, bootstrap: str) -> Spec:
        """Return the same workload over a listener without TLS and SASL."""
        return replace(self, bootstrap=bootstrap, protocol="PLAINTEXT", mechanism="")

    def pool(self) -> list[bytes]:
        """Return the different values of the file."""
        data = Path(self.payloads).read_bytes()
        return [data[at : at + self.size] for at in range(0, len(data), self.size)]

    def values(self) -> list[bytes]:
        """Return the value of each message."""
        return list(itertools.islice(itertools.cycle(self.pool()), self.count))

    def keys(self) -> list[bytes | None]:
        """Return the key of each message."""
        if not self.keyed:
            return [None] * self.count
        keys: list[bytes | None] = [b"customer-%07d" % number for number in range(KEYS)]
        return list(itertools.islice(itertools.cycle(keys), self.count))

    def chunks(self, items: list[T]) -> Iterator[list[T]]:
        """Yield the items in lists, each with as many as a program may have in flight."""
        step = max(1, min(CHUNK_RECORDS, CHUNK_BYTES // self.size))
        for at in range(0, len(items), step):
            yield items[at : at + step]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class Counts:
    """The results of a child process. `cpu_s` is user and system time, `wall_s` is elapsed time."""

    messages: int = 0
    bytes: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    at_once: int = 0
    """Number of messages that had arrived when the wall clock was restarted; 0 if it was not."""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float | None:
        """Thousands of messages per second."""
        timed = self.messages - self.at_once
        return timed / self.wall_s / 1e3 if timed > 0 and self.wall_s else None
