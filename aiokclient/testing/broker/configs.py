"""The configs of topics, brokers, and groups: names, defaults, types, and configured values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from aiokclient.config.codecs import CODEC_NAMES
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.idle_options import read_table
from aiokclient.testing.broker.share.durations import read_duration_ms

_MOST_INT = (1 << 31) - 1
_FOREVER = (1 << 63) - 1


class BrokerConfigType(IntEnum):
    """The type of a value in DescribeConfigs, with Kafka's numbers."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class BrokerConfigSource(IntEnum):
    """The source of a value, with Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    """An operation of an incremental change, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class BrokerOption(NamedTuple):
    default: str
    type: BrokerConfigType
    valid: Callable[[str], bool]
    fixed: bool = False
    """Whether the value can only be set at a broker's start."""
    nullable: bool = False
    """Whether there is no value by default, which is described as null."""


class ConfigSynonym(NamedTuple):
    """The value of an option at one source. The value at the first source applies."""

    name: str
    value: str
    source: BrokerConfigSource


class ConfigValueError(ValueError):
    """The error for an unknown option, or for a value that is not allowed."""

    code = Code.INVALID_CONFIG


class ConfigRequestError(ConfigValueError):
    """The error for a change that is never valid.

    For example, it has no value, names an option twice, or changes a read-only option of a broker.
    """

    code = Code.INVALID_REQUEST


def _make_range_check(least: float, most: float, kind: type[float] = int) -> Callable[[str], bool]:
    def is_valid(value: str) -> bool:
        try:
            return least <= kind(value) <= most
        except ValueError:
            return False

    return is_valid


def _make_choice_check(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value in allowed


def _make_list_check(*allowed: str) -> Callable[[str], bool]:
    return lambda value: not value or all(each in allowed for each in value.split(","))


def _is_truth(value: str) -> bool:
    return value.strip().lower() in ("true", "false")


def _boolean_option(default: bool) -> BrokerOption:
    return BrokerOption(str(default).lower(), BrokerConfigType.BOOLEAN, _is_truth)


def _int_option(default: int, least: int, most: int = _MOST_INT) -> BrokerOption:
    return BrokerOption(str(default), BrokerConfigType.INT, _make_range_check(least, most))


def _long_option(default: int, least: int) -> BrokerOption:
    return BrokerOption(str(default), BrokerConfigType.LONG, _make_range_check(least, _FOREVER))


def _fixed_option(option: BrokerOption) -> BrokerOption:
    return option._replace(fixed=True)


def _is_replica_list(value: str) -> bool:
    """Return whether the value is "*", or `partition:broker` pairs separated by commas."""
    each = value.split(",")
    return value == "*" or all(not one or re.fullmatch(r"\d+:\d+", one) for one in each)


def _is_gzip_level(value: str) -> bool:
    return value != "0" and _make_range_check(-1, 9)(value)


_CODECS = ("producer", "uncompressed", *CODEC_NAMES[1:])
_THROTTLED = BrokerOption("", BrokerConfigType.LIST, _is_replica_list)

# Most of these options have no effect here. These have one: cleanup.policy (a compacted topic
# refuses records without a key), compression.*, max.message.bytes, message.timestamp.*,
# errors.deadletterqueue.group.enable, min.insync.replicas, retention.bytes, segment.bytes, and
# unclean.leader.election.enable.
TOPIC_OPTIONS: Mapping[str, BrokerOption] = {
    "cleanup.policy": BrokerOption(
        "delete", BrokerConfigType.LIST, _make_list_check("delete", "compact")
    ),
    "compression.gzip.level": BrokerOption("-1", BrokerConfigType.INT, _is_gzip_level),
    "compression.lz4.level": _int_option(9, 1, 17),
    "compression.type": BrokerOption(
        "producer", BrokerConfigType.STRING, _make_choice_check(*_CODECS)
    ),
    "compression.zstd.level": _int_option(3, -(1 << 17), 22),
    "delete.retention.ms": _long_option(86_400_000, 0),
    "errors.deadletterqueue.group.enable": _boolean_option(False),
    "file.delete.delay.ms": _long_option(60_000, 0),
    "flush.messages": _long_option(_FOREVER, 1),
    "flush.ms": _long_option(_FOREVER, 0),
    "follower.replication.throttled.replicas": _THROTTLED,
    "index.interval.bytes": _int_option(4096, 0),
    "leader.replication.throttled.replicas": _THROTTLED,
    "local.retention.bytes": _long_option(-2, -2),
    "local.retention.ms": _long_option(-2, -2),
    "max.compaction.lag.ms": _long_option(_FOREVER, 1),
    "max.message.bytes": _int_option(1_048_588, 0),
    "message.timestamp.after.max.ms": _long_option(3_600_000, 0),
    "message.timestamp.before.max.ms": _long_option(_FOREVER, 0),
    "message.timestamp.type": BrokerOption(
        "CreateTime", BrokerConfigType.STRING, _make_choice_check("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": BrokerOption(
        "0.5", BrokerConfigType.DOUBLE, _make_range_check(0, 1, float)
    ),
    "min.compaction.lag.ms": _long_option(0, 0),
    "min.insync.replicas": _int_option(1, 1),
    "preallocate": _boolean_option(False),
    "remote.log.copy.disable": _boolean_option(False),
    "remote.log.delete.on.disable": _boolean_option(False),
    # There is no remote storage, so the value cannot be true.
    "remote.storage.enable": BrokerOption(
        "false", BrokerConfigType.BOOLEAN, _make_choice_check("false")
    ),
    "retention.bytes": _long_option(256 << 20, -1),
    "retention.ms": _long_option(604_800_000, -1),
    "segment.bytes": _int_option(16 << 20, 14),
    "segment.index.bytes": _int_option(10_485_760, 4),
    "segment.jitter.ms": _long_option(0, 0),
    "segment.ms": _long_option(604_800_000, 1),
    "unclean.leader.election.enable": _boolean_option(False),
}

# For each option of topics, the broker option that applies to a topic without a value of its own.
# Kafka's documentation calls it the server default property.
_TOPIC_SERVER_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def _make_idle_option(kind: str, is_fixed: bool, default: str | None) -> BrokerOption:
    """Return an option without an effect, whose values have a type."""
    found = BrokerConfigType[kind.upper()]
    return BrokerOption(default or "", found, _CHECKS[found], is_fixed, default is None)


def _accept_all(value: str) -> bool:
    return True


_CHECKS: Mapping[BrokerConfigType, Callable[[str], bool]] = {
    **dict.fromkeys(BrokerConfigType, _accept_all),
    BrokerConfigType.BOOLEAN: _is_truth,
    BrokerConfigType.SHORT: _make_range_check(-(1 << 15), (1 << 15) - 1),
    BrokerConfigType.INT: _make_range_check(-_MOST_INT - 1, _MOST_INT),
    BrokerConfigType.LONG: _make_range_check(-_FOREVER - 1, _FOREVER),
    BrokerConfigType.DOUBLE: _make_range_check(float("-inf"), float("inf"), float),
}

BROKER_OPTIONS: Mapping[str, BrokerOption] = {
    **{each.name: _make_idle_option(*each[1:]) for each in read_table()},
    **{default: TOPIC_OPTIONS[name] for name, default in _TOPIC_SERVER_DEFAULTS.items()},
    "auto.create.topics.enable": _fixed_option(_boolean_option(False)),
    "background.threads": _int_option(10, 1),
    "default.replication.factor": _fixed_option(_int_option(1, 1)),
    "group.consumer.assignment.interval.ms": _int_option(0, 0),
    "group.consumer.assignors": _fixed_option(
        BrokerOption("uniform,range", BrokerConfigType.LIST, _make_list_check("uniform", "range"))
    ),
    "group.consumer.heartbeat.interval.ms": _fixed_option(_int_option(500, 1)),
    # Sessions and locks of tests end soon, so groups may have shorter ones than in Kafka.
    "group.consumer.min.heartbeat.interval.ms": _fixed_option(_int_option(1, 1)),
    "group.consumer.min.session.timeout.ms": _fixed_option(_int_option(10, 1)),
    "group.consumer.max.size": _fixed_option(_int_option((1 << 31) - 1, 1)),
    "group.consumer.migration.policy": _fixed_option(
        BrokerOption(
            "bidirectional",
            BrokerConfigType.STRING,
            _make_choice_check("bidirectional", "upgrade", "downgrade", "disabled"),
        )
    ),
    "group.consumer.session.timeout.ms": _fixed_option(_int_option(45_000, 1)),
    "group.initial.rebalance.delay.ms": _fixed_option(_int_option(0, 0)),
    "group.max.session.timeout.ms": _fixed_option(_int_option(1_800_000, 1)),
    "group.max.size": _fixed_option(_int_option((1 << 31) - 1, 1)),
    "group.min.session.timeout.ms": _fixed_option(_int_option(6_000, 1)),
    "group.share.assignment.interval.ms": _int_option(0, 0),
    "group.share.delivery.count.limit": _fixed_option(_int_option(5, 2, 10)),
    "group.share.heartbeat.interval.ms": _fixed_option(_int_option(500, 1)),
    "group.share.max.share.sessions": _fixed_option(_int_option(2_000, 1)),
    "group.share.min.heartbeat.interval.ms": _fixed_option(_int_option(1, 1)),
    "group.share.min.record.lock.duration.ms": _fixed_option(_int_option(10, 1)),
    "group.share.min.session.timeout.ms": _fixed_option(_int_option(10, 1)),
    "group.share.max.size": _fixed_option(_int_option(200, 1, 1_000)),
    "group.share.partition.max.record.locks": _fixed_option(_int_option(2_000, 100, 10_000)),
    "group.share.record.lock.duration.ms": _fixed_option(_int_option(30_000, 1, 3_600_000)),
    "group.share.session.timeout.ms": _fixed_option(_int_option(45_000, 1)),
    "log.cleaner.backoff.ms": _long_option(15_000, 0),
    "log.cleaner.threads": _int_option(1, 0),
    "max.connections": _int_option(_MOST_INT, 0),
    "max.connections.per.ip": _int_option(_MOST_INT, 0),
    "max.incremental.fetch.session.cache.slots": _fixed_option(_int_option(1_000, 0)),
    "num.io.threads": _int_option(8, 1),
    "num.network.threads": _int_option(3, 1),
    "num.partitions": _fixed_option(_int_option(1, 1)),
    "num.recovery.threads.per.data.dir": _int_option(2, 1),
    "num.replica.fetchers": _int_option(1, 1),
    "offset.metadata.max.bytes": _fixed_option(_int_option(4096, 0)),
    "offsets.topic.num.partitions": _fixed_option(_int_option(50, 1)),
    "producer.id.expiration.ms": _int_option(86_400_000, 1),
    "telemetry.max.bytes": _fixed_option(_int_option(1 << 20, 1)),
    "transaction.state.log.num.partitions": _fixed_option(_int_option(50, 1)),
    "transaction.max.timeout.ms": _fixed_option(_int_option(900_000, 1)),
    "transaction.partition.verification.enable": _boolean_option(True),
    "transactional.id.expiration.ms": _fixed_option(_int_option(604_800_000, 1)),
}

# Kafka's defaults, where those of BROKER_OPTIONS differ from them to make tests fast and small.
KAFKA_DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "group.consumer.assignment.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
    "group.consumer.min.session.timeout.ms": "45000",
    # The first rebalance of a group waits for more members.
    "group.initial.rebalance.delay.ms": "3000",
    "group.share.assignment.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.min.heartbeat.interval.ms": "5000",
    "group.share.min.record.lock.duration.ms": "15000",
    "group.share.min.session.timeout.ms": "45000",
    "log.retention.bytes": "-1",
    "log.segment.bytes": str(1 << 30),
}


def _is_share_start(value: str) -> bool:
    """Return whether a share group can begin there: "earliest", "latest", or "by_duration:..."."""
    if value in ("earliest", "latest"):
        return True
    prefix, _, duration = value.partition(":")
    return prefix == "by_duration" and read_duration_ms(duration) is not None


def _is_dead_letter_topic(value: str) -> bool:
    return not value.startswith("__")


_LIMITED = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.session.timeout.ms",
)


def _name_limits(name: str) -> tuple[str, str]:
    kind, _, what = name.partition(".")
    return f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"


# For each option of groups that is limited, the broker options with the least and the most.
GROUP_LIMITS: Mapping[str, tuple[str, str]] = {name: _name_limits(name) for name in _LIMITED}

# The options of one group that uses the consumer protocol, or of a share group.
GROUP_OPTIONS: Mapping[str, BrokerOption] = {
    **{
        name: BROKER_OPTIONS[f"group.{name}"]._replace(
            fixed=False, valid=_CHECKS[BrokerConfigType.INT]
        )
        for name in _LIMITED
    },
    "errors.deadletterqueue.copy.record.enable": _boolean_option(False),
    "errors.deadletterqueue.topic.name": BrokerOption(
        "", BrokerConfigType.STRING, _is_dead_letter_topic
    ),
    "share.auto.offset.reset": BrokerOption("latest", BrokerConfigType.STRING, _is_share_start),
    "share.isolation.level": BrokerOption(
        "read_uncommitted",
        BrokerConfigType.STRING,
        _make_choice_check("read_uncommitted", "read_committed"),
    ),
    "share.renew.acknowledge.enable": _boolean_option(True),
}

# For each option of topics and groups, the broker option that applies if no own value is set.
SERVER_DEFAULTS: Mapping[str, str] = {
    **{name: f"group.{name}" for name in GROUP_OPTIONS if f"group.{name}" in BROKER_OPTIONS},
    **_TOPIC_SERVER_DEFAULTS,
}


def choose_broker_options(defaults: str) -> Mapping[str, BrokerOption]:
    """Return the options of brokers, with the default values for "tests" or those of "kafka".

    Raises ValueError for other names.
    """
    if defaults == "tests":
        return BROKER_OPTIONS
    if defaults != "kafka":
        raise ValueError(f'defaults={defaults!r}: The values are "tests" and "kafka".')
    own = {
        name: BROKER_OPTIONS[name]._replace(default=value) for name, value in KAFKA_DEFAULTS.items()
    }
    return {**BROKER_OPTIONS, **own}


# The options of running brokers that are described only while they are set. They have no effect.
_RATE_OPTIONS: Mapping[str, BrokerOption] = dict.fromkeys(
    (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ),
    _long_option(_FOREVER, 0),
)

# The options of Kafka that say what a broker is and where its data is. They are never described
# here, and running brokers refuse to change them.
_IDENTITY_OPTIONS: Mapping[str, BrokerOption] = dict.fromkeys(
    (
        "authorizer.class.name",
        "broker.id",
        "broker.rack",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    ),
    _fixed_option(BrokerOption("", BrokerConfigType.STRING, lambda value: True)),
)

# A running broker accepts options that it does not know, for its plug-ins, but never returns their
# values.
_FOREIGN = BrokerOption("", BrokerConfigType.UNKNOWN, lambda value: True)
_RUNNING = (BrokerConfigSource.DYNAMIC_BROKER, BrokerConfigSource.DYNAMIC_DEFAULT_BROKER)


class Configs:
    """Configured values, which take precedence over those of `parent` and over the defaults.

    If `parent` has other names for the options, `SERVER_DEFAULTS` maps each name to the parent's.
    """

    def __init__(
        self,
        options: Mapping[str, BrokerOption],
        source: BrokerConfigSource,
        parent: Configs | None = None,
        values: Mapping[str, str] = {},
    ) -> None:
        self.options = options
        self.source = source
        self.values: dict[str, str] = {}
        self._parent = parent
        self.apply_changes(dict(values))

    def find_option(self, name: str) -> BrokerOption:
        """Return the option with this name. Raises ConfigValueError if it is unknown."""
        option = self.options.get(name)
        if option is not None:
            return option
        if self.source in _RUNNING:
            return _IDENTITY_OPTIONS.get(name) or _RATE_OPTIONS.get(name, _FOREIGN)
        raise ConfigValueError(f"There is no config {name!r}.")

    def is_fixed(self, name: str) -> bool:
        """Return whether the option can only be set at a broker's start."""
        is_running = self.source in _RUNNING
        option = self.options.get(name) or (_IDENTITY_OPTIONS.get(name) if is_running else None)
        return option is not None and option.fixed

    def list_names(self) -> list[str]:
        """Return the names of all options, and those of unknown options that were set."""
        parent = self._parent
        if parent is None or parent.options is not self.options:
            return list(self.options)
        return list(dict.fromkeys([*parent.list_names(), *self.values]))

    def __getitem__(self, name: str) -> str:
        own = self.values.get(name)
        return own if own is not None else self.find_inherited(name)

    def find_inherited(self, name: str) -> str:
        """Return the value that applies if none is set here."""
        parent = self._parent
        if parent is not None:
            parent_name = name if parent.options is self.options else SERVER_DEFAULTS.get(name, "")
            if parent_name in parent.options or parent.is_set(parent_name):
                return parent[parent_name]
        return self.find_option(name).default

    def list_synonyms(self, name: str) -> list[ConfigSynonym]:
        """Return the sources of the value, in order of precedence."""
        chain: list[ConfigSynonym] = []
        if name in self.values:
            chain.append(ConfigSynonym(name, self.values[name], self.source))
        parent = self._parent
        if name not in self.options:
            return chain if parent is None else chain + parent.list_synonyms(name)
        parent_name = name
        if parent is not None and parent.options is not self.options:
            parent_name = SERVER_DEFAULTS.get(name, "")
        if parent is not None and parent_name in parent.options:
            return chain + parent.list_synonyms(parent_name)
        if not parent_name or self.options[name].nullable:
            return chain
        return [*chain, ConfigSynonym(name, self.options[name].default, BrokerConfigSource.DEFAULT)]

    def find_source(self, name: str) -> BrokerConfigSource:
        """Return the source of the value."""
        return next((each.source for each in self.list_synonyms(name)), BrokerConfigSource.DEFAULT)

    def is_set(self, name: str) -> bool:
        """Return whether a value was set, here or in the parent."""
        if name in self.values:
            return True
        return self._parent is not None and name in self.options and self._parent.is_set(name)

    def read_number(self, name: str) -> int:
        return int(self[name])

    def check_value(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError if the name is unknown or the value is not allowed."""
        option = self.find_option(name)
        if value is not None and not option.valid(value):
            error = ConfigRequestError if self.source in _RUNNING else ConfigValueError
            raise error(f"{value!r} is not allowed for the config {name!r}.")
        if value is not None:
            self._check_limits(name, value)

    def _check_limits(self, name: str, value: str) -> None:
        """Raise ConfigValueError if the value of a group is not within the limits of brokers."""
        limits = GROUP_LIMITS.get(name)
        if self.source is not BrokerConfigSource.GROUP or self._parent is None or limits is None:
            return
        least, most = map(self._parent.read_number, limits)
        if not least <= int(value) <= most:
            raise ConfigValueError(f"{name} must be in the range {least} to {most} inclusive.")

    def check_changes(self, changes: Mapping[str, str | None]) -> None:
        """Raise ConfigValueError if a name is unknown or a value is not allowed."""
        for name, value in changes.items():
            self.check_value(name, value)

    def apply_changes(self, changes: Mapping[str, str | None]) -> None:
        """Set values, after checking all of them. None restores the inherited value."""
        self.check_changes(changes)
        for name, value in changes.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value

    def merge_changes(
        self, changes: Iterable[tuple[str, int, str | None]]
    ) -> dict[str, str | None]:
        """Return the values that result from incremental operations (name, operation, value)."""
        result: dict[str, str | None] = {}
        for name, operation, value in changes:
            if name in result:
                raise ConfigRequestError(f"The config {name!r} is changed twice.")
            if operation == ConfigOperation.DELETE and name not in self.list_names():
                continue
            self.check_value(name, None)
            if operation not in ConfigOperation.__members__.values():
                raise ConfigValueError(
                    f"There is no operation {operation} for the config {name!r}."
                )
            is_list = self.find_option(name).type is BrokerConfigType.LIST
            if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT) and not is_list:
                raise ConfigValueError(f"The config {name!r} is not a list.")
            result[name] = self._apply_operation(self[name], ConfigOperation(operation), value)
        return result

    @staticmethod
    def _apply_operation(now: str, operation: ConfigOperation, value: str | None) -> str | None:
        if operation is ConfigOperation.DELETE:
            return None
        if value is None:
            raise ConfigRequestError("A value is required.")
        if operation is ConfigOperation.SET:
            return value
        old, given = [each for each in now.split(",") if each], value.split(",")
        if operation is ConfigOperation.APPEND:
            return ",".join(old + [each for each in given if each not in old])
        return ",".join(each for each in old if each not in given)
