"""The subscriptions of a cluster to the metrics of its clients: configs of the type CLIENT_METRICS.

A subscription exists as long as one of its options is set. `metrics` lists prefixes of metric
names, or has "*" for all metrics. `interval.ms` is the time between two pushes of a client, and
`match` lists the conditions under which a client is subscribed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from aiokclient.record.crc import crc32c
from aiokclient.testing.broker.configs import (
    BrokerConfigSource,
    BrokerConfigType,
    BrokerOption,
    ConfigOperation,
    ConfigRequestError,
    Configs,
    ConfigSynonym,
    ConfigValueError,
)
from aiokclient.testing.broker.telemetry.java_order import ConcurrentHashMap, order_as_hash_set
from aiokclient.testing.broker.telemetry.patterns import TRIMMED, MatchPatterns

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 100, 3_600_000

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"

LISTS = (METRICS, MATCH)
_MOST_MERGED = 1_000

_COMMA = re.compile(r"\s*,\s*", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,4000}")


def _is_anything(value: str) -> bool:
    return True


CLIENT_METRICS_OPTIONS: Mapping[str, BrokerOption] = {
    METRICS: BrokerOption("", BrokerConfigType.LIST, _is_anything),
    INTERVAL_MS: BrokerOption(str(DEFAULT_INTERVAL_MS), BrokerConfigType.INT, _is_anything),
    MATCH: BrokerOption("", BrokerConfigType.LIST, _is_anything),
}


class MetricsSubscription(NamedTuple):
    """One subscription, parsed."""

    metrics: tuple[str, ...]
    """The prefixes, in the order of Java's HashSet."""
    interval_ms: int
    patterns: MatchPatterns


class MergedSubscription(NamedTuple):
    """The merged content of all subscriptions that match a client."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class ClientMetricsConfigs(Configs):
    """The options of one subscription. Like Kafka, check the values of all options together."""

    def __init__(self, changed: Callable[[ClientMetricsConfigs], None]) -> None:
        """Create empty options. `changed` is called after each change."""
        self._changed = changed
        super().__init__(CLIENT_METRICS_OPTIONS, BrokerConfigSource.CLIENT_METRICS)

    def find_option(self, name: str) -> BrokerOption:
        option = self.options.get(name)
        if option is None:
            raise ConfigRequestError(f"Unknown client metrics configuration: {name}")
        return option

    def __getitem__(self, name: str) -> str:
        """Return a value in the form in which Kafka describes it: without spaces and duplicates."""
        value = super().__getitem__(name)
        return ",".join(_read_list(name, value)) if name in LISTS else str(_read_interval(value))

    def list_synonyms(self, name: str) -> list[ConfigSynonym]:
        """Return the value that was set, if there is one. Kafka does not list the default."""
        return [ConfigSynonym(name, self[name], self.source)] if name in self.values else []

    def merge_changes(
        self, changes: Iterable[tuple[str, int, str | None]]
    ) -> dict[str, str | None]:
        """Return the values that result from incremental operations.

        Like Kafka, this refuses to append and subtract, although the options are lists.
        """
        wanted = list(changes)
        for name, operation, value in wanted:
            if value is not None and operation in (
                ConfigOperation.APPEND,
                ConfigOperation.SUBTRACT,
            ):
                kind = ConfigOperation(operation).name
                raise ConfigValueError(f"Can't {kind} to key {name} because its type is not LIST.")
        return super().merge_changes(wanted)

    def check_changes(self, changes: Mapping[str, str | None]) -> None:
        """Raise ConfigValueError if the options with these changes are not valid."""
        values = {**self.values, **changes}
        parse_subscription({name: value for name, value in values.items() if value is not None})

    def apply_changes(self, changes: Mapping[str, str | None]) -> None:
        super().apply_changes(changes)
        self._changed(self)


def parse_subscription(values: Mapping[str, str]) -> MetricsSubscription:
    """Return the subscription that these options describe.

    Raises ConfigRequestError for an unknown option or an interval that is not allowed, and
    ConfigValueError for any other wrong value.
    """
    for name in values:
        if name not in CLIENT_METRICS_OPTIONS:
            raise ConfigRequestError(f"Unknown client metrics configuration: {name}")
    metrics = _read_list(METRICS, values.get(METRICS, ""))
    interval_ms = _read_interval(values.get(INTERVAL_MS, str(DEFAULT_INTERVAL_MS)))
    match = _read_list(MATCH, values.get(MATCH, ""))
    if not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
        raise ConfigRequestError(
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
            f"{LEAST_INTERVAL_MS} and {MOST_INTERVAL_MS} (1 hour)"
        )
    return MetricsSubscription(
        tuple(order_as_hash_set(metrics, copied=True)), interval_ms, MatchPatterns(match)
    )


def _read_list(name: str, value: str) -> list[str]:
    value = value.strip(TRIMMED)
    items = dict.fromkeys(_COMMA.split(value) if value else [])
    if "" in items:
        raise ConfigValueError(f"Configuration '{name}' values must not be empty.")
    return list(items)


def _read_interval(value: str) -> int:
    value = value.strip(TRIMMED)
    number = int(value) if _INTEGER.fullmatch(value) else 1 << 31
    if not -(1 << 31) <= number < 1 << 31:
        raise ConfigValueError(
            f"Invalid value {value} for configuration {INTERVAL_MS}: Not a number of type INT"
        )
    return number


class MetricsSubscriptions:
    """All subscriptions by name.

    `version` counts the changes. When it has increased, client instances are matched again.
    """

    def __init__(self) -> None:
        self.version = 0
        self._configs: dict[str, ClientMetricsConfigs] = {}
        self._subscriptions: ConcurrentHashMap[MetricsSubscription] = ConcurrentHashMap()
        self._merged: dict[tuple[str, ...], tuple[int, tuple[str, ...], int]] = {}
        """The results of `_merge_subscriptions` since the last change."""

    @property
    def names(self) -> list[str]:
        """The names of the subscriptions, in the order in which Kafka lists them."""
        return list(self._subscriptions)

    def find_configs(self, name: str) -> ClientMetricsConfigs:
        """Return the options of a subscription, or empty options if it does not exist."""
        found = self._configs.get(name)
        return found or ClientMetricsConfigs(lambda configs: self._on_change(name, configs))

    def _on_change(self, name: str, configs: ClientMetricsConfigs) -> None:
        if configs.values:
            self._configs[name] = configs
            self._subscriptions[name] = parse_subscription(configs.values)
        elif name in self._configs:
            del self._configs[name], self._subscriptions[name]
        else:
            return
        self.version += 1
        self._merged.clear()

    def merge_for_client(
        self, instance_id: UUID, client: Mapping[str, str | None]
    ) -> MergedSubscription:
        """Return the merged subscription of a client with these properties.

        The lowest interval applies. "*" replaces all other prefixes.
        """
        matching = tuple(
            name for name, each in self._subscriptions.items() if each.patterns.is_match(client)
        )
        merged = self._merged.get(matching)
        if merged is None:
            if len(self._merged) >= _MOST_MERGED:
                self._merged.clear()
            merged = self._merged[matching] = self._merge_subscriptions(matching)
        checksum, metrics, interval_ms = merged
        return MergedSubscription(_combine_id(checksum, instance_id), metrics, interval_ms)

    def _merge_subscriptions(self, names: Iterable[str]) -> tuple[int, tuple[str, ...], int]:
        """Return the checksum, the metrics, and the interval of several subscriptions together."""
        metrics: list[str] = []
        interval_ms = DEFAULT_INTERVAL_MS
        for name in names:
            each = self._subscriptions[name]
            metrics += each.metrics
            interval_ms = min(interval_ms, each.interval_ms)
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        ordered = order_as_hash_set(metrics)
        text = f"[{', '.join(ordered)}]{interval_ms}"
        return crc32c(text.encode("utf-8", "replace")), tuple(ordered), interval_ms


def _combine_id(checksum: int, instance_id: UUID) -> int:
    """Return a subscription id: the checksum XOR Java's hash code of the instance id, signed."""
    both = instance_id.int >> 64 ^ instance_id.int & (1 << 64) - 1
    mixed = checksum ^ (both >> 32 ^ both) & 0xFFFFFFFF
    return mixed - (1 << 32) if mixed >> 31 else mixed
