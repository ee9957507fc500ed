"""The configs of topics and brokers: names, defaults, types, and the values that were set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from aiokclient.testing.codes import Code


class ConfigType(IntEnum):
    """What DescribeConfigs says of a value; the numbers are Kafka's."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are Kafka's."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigOperation(IntEnum):
    """What an incremental change does; the numbers are Kafka's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Option(NamedTuple):
    default: str
    type: ConfigType
    valid: Callable[[str], bool]
    fixed: bool = False
    """What only a broker's start decides."""


class Synonym(NamedTuple):
    """One place where a value may come from; the first that has one wins."""

    name: str
    value: str
    source: ConfigSource


class ConfigError(ValueError):
    """A name that is not known or a value that is not allowed."""

    code = Code.INVALID_CONFIG


class ConfigRequestError(ConfigError):
    """A change that can never be: of nothing, or of what a running broker does not change."""

    code = Code.INVALID_REQUEST


def _at_least(least: int) -> Callable[[str], bool]:
    def valid(value: str) -> bool:
        try:
            return int(value) >= least
        except ValueError:
            return False

    return valid


def _one_of(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value in allowed


def _list_of(*allowed: str) -> Callable[[str], bool]:
    return lambda value: all(each in allowed for each in value.split(","))


def _boolean(default: bool) -> Option:
    return Option(str(default).lower(), ConfigType.BOOLEAN, _one_of("true", "false"))


def _int(default: int, least: int) -> Option:
    return Option(str(default), ConfigType.INT, _at_least(least))


def _long(default: int, least: int) -> Option:
    return Option(str(default), ConfigType.LONG, _at_least(least))


def _fixed(option: Option) -> Option:
    return option._replace(fixed=True)


_FOREVER = (1 << 63) - 1
_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

# What has an effect here: cleanup.policy (a compacted topic refuses records without a key),
# max.message.bytes, message.timestamp.*, min.insync.replicas, retention.bytes, segment.bytes.
TOPIC_OPTIONS: Mapping[str, Option] = {
    "cleanup.policy": Option("delete", ConfigType.LIST, _list_of("delete", "compact")),
    "compression.type": Option("producer", ConfigType.STRING, _one_of(*_CODECS)),
    "delete.retention.ms": _long(86_400_000, 0),
    "file.delete.delay.ms": _long(60_000, 0),
    "flush.messages": _long(_FOREVER, 1),
    "flush.ms": _long(_FOREVER, 0),
    "max.compaction.lag.ms": _long(_FOREVER, 1),
    "max.message.bytes": _int(1_048_588, 0),
    "message.timestamp.after.max.ms": _long(3_600_000, 0),
    "message.timestamp.before.max.ms": _long(_FOREVER, 0),
    "message.timestamp.type": Option(
        "CreateTime", ConfigType.STRING, _one_of("CreateTime", "LogAppendTime")
    ),
    "min.compaction.lag.ms": _long(0, 0),
    "min.insync.replicas": _int(1, 1),
    "retention.bytes": _long(256 << 20, -1),
    "retention.ms": _long(604_800_000, -1),
    "segment.bytes": _int(16 << 20, 14),
    "segment.ms": _long(604_800_000, 1),
    "unclean.leader.election.enable": _boolean(False),
}

BROKER_OPTIONS: Mapping[str, Option] = {
    "auto.create.topics.enable": _fixed(_boolean(False)),
    "background.threads": _int(10, 1),
    "default.replication.factor": _fixed(_int(1, 1)),
    # Kafka: at most once in 1000 ms.
    "group.consumer.assignment.interval.ms": _int(0, 0),
    "group.consumer.assignors": _fixed(
        Option("uniform,range", ConfigType.LIST, _list_of("uniform", "range"))
    ),
    # Kafka: 5000.
    "group.consumer.heartbeat.interval.ms": _fixed(_int(500, 1)),
    "group.consumer.max.size": _fixed(_int((1 << 31) - 1, 1)),
    "group.consumer.migration.policy": _fixed(
        Option(
            "bidirectional",
            ConfigType.STRING,
            _one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        )
    ),
    "group.consumer.session.timeout.ms": _fixed(_int(45_000, 1)),
    # Kafka waits for 3 s for more members before the first rebalance of a group.
    "group.initial.rebalance.delay.ms": _fixed(_int(0, 0)),
    "group.max.session.timeout.ms": _fixed(_int(1_800_000, 1)),
    "group.max.size": _fixed(_int((1 << 31) - 1, 1)),
    "group.min.session.timeout.ms": _fixed(_int(6_000, 1)),
    "log.retention.bytes": _long(256 << 20, -1),
    "log.segment.bytes": _int(16 << 20, 14),
    "max.incremental.fetch.session.cache.slots": _fixed(_int(1_000, 0)),
    "message.max.bytes": _int(1_048_588, 0),
    "min.insync.replicas": _int(1, 1),
    "num.partitions": _fixed(_int(1, 1)),
    "offset.metadata.max.bytes": _fixed(_int(4096, 0)),
}

# Those of one group, under the new consumer protocol.
GROUP_OPTIONS: Mapping[str, Option] = {
    name.removeprefix("group."): BROKER_OPTIONS[name]._replace(fixed=False)
    for name in (
        "group.consumer.assignment.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
    )
}

# The broker's option that stands behind one of a topic or group without a value of its own.
BEHIND: Mapping[str, str] = {
    **{name: f"group.{name}" for name in GROUP_OPTIONS},
    "max.message.bytes": "message.max.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
}


class Configs:
    """Values that were set, over those of `parent` (by `behind`), over the defaults."""

    def __init__(
        self,
        options: Mapping[str, Option],
        source: ConfigSource,
        parent: Configs | None = None,
        values: Mapping[str, str] = {},
    ) -> None:
        self.options = options
        self.source = source
        self.values: dict[str, str] = {}
        self._parent = parent
        self.change(dict(values))

    def __getitem__(self, name: str) -> str:
        own = self.values.get(name)
        return own if own is not None else self.inherited(name)

    def inherited(self, name: str) -> str:
        """The value that holds where none is set here."""
        parent = self._parent
        if parent is not None:
            behind = name if parent.options is self.options else BEHIND.get(name, "")
            if parent.is_set(behind):
                return parent[behind]
        return self.options[name].default

    def synonyms(self, name: str) -> list[Synonym]:
        """Where the value comes from, and what would hold if it were not set there."""
        chain: list[Synonym] = []
        if name in self.values:
            chain.append(Synonym(name, self.values[name], self.source))
        parent = self._parent
        behind = name
        if parent is not None and parent.options is not self.options:
            behind = BEHIND.get(name, "")
        if parent is not None and behind in parent.options:
            return chain + parent.synonyms(behind)
        return [*chain, Synonym(name, self.options[name].default, ConfigSource.DEFAULT)]

    def is_set(self, name: str) -> bool:
        """Whether a value was given, here or behind."""
        if name in self.values:
            return True
        return self._parent is not None and name in self.options and self._parent.is_set(name)

    def number(self, name: str) -> int:
        return int(self[name])

    def check(self, name: str, value: str | None) -> None:
        """Raises ConfigError for an unknown name or a value that is not allowed."""
        option = self.options.get(name)
        if option is None:
            raise ConfigError(f"unknown config {name!r}")
        if value is not None and not option.valid(value):
            raise ConfigError(f"{value!r} is not allowed for the config {name!r}")

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Set values; None goes back to what is inherited. All are checked before any is set."""
        for name, value in changes.items():
            self.check(name, value)
        for name, value in changes.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value

    def merged(self, changes: Iterable[tuple[str, int, str | None]]) -> dict[str, str | None]:
        """What incremental operations (name, operation, value) come to, for `change`."""
        result: dict[str, str | None] = {}
        for name, operation, value in changes:
            self.check(name, None)
            if operation not in ConfigOperation.__members__.values():
                raise ConfigError(f"unknown operation {operation} for the config {name!r}")
            is_list = self.options[name].type is ConfigType.LIST
            if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT) and not is_list:
                raise ConfigError(f"the config {name!r} is not a list")
            result[name] = self._operate(self[name], ConfigOperation(operation), value)
        return result

    @staticmethod
    def _operate(now: str, operation: ConfigOperation, value: str | None) -> str | None:
        if operation is ConfigOperation.DELETE:
            return None
        if value is None:
            raise ConfigRequestError("Null value not supported.")
        if operation is ConfigOperation.SET:
            return value
        old, given = [each for each in now.split(",") if each], value.split(",")
        if operation is ConfigOperation.APPEND:
            return ",".join(old + [each for each in given if each not in old])
        return ",".join(each for each in old if each not in given)
