"""Calls that change topics, their partitions and records, and options of all resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from aiokclient import TopicPartition
from aiokclient.admin import Append, ConfigResource, NewPartitions, NewTopic, Subtract
from aiokclient.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ReassignmentInProgressError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

from .call import AdminCall, CallItem, CallMaker, judge_item, judge_items
from .model import Done, Effect, Key, Model, PartitionState, Refused, State, TopicState, refused

GROUPS = tuple(f"group-{number}" for number in range(5))
SUBSCRIPTIONS = tuple(f"metrics-{number}" for number in range(3))
TOPIC_OPTIONS = {
    "retention.ms": ("60000", "3600000", "-1"),
    "cleanup.policy": ("delete", "compact,delete", "compact"),
    "max.message.bytes": ("1000", "2000000"),
    "segment.ms": ("600000",),
}
BROKER_OPTIONS = {
    "log.cleaner.backoff.ms": ("1000", "2000"),
    "log.message.timestamp.before.max.ms": ("900000000000000", "800000000000000"),
    "max.connections.per.ip": ("10000", "20000"),
}
GROUP_OPTIONS = {
    "consumer.session.timeout.ms": ("45000", "50000"),
    "consumer.heartbeat.interval.ms": ("5000", "6000"),
}
METRICS_OPTIONS = {
    "metrics": ("org.apache.kafka.producer.", "*"),
    "interval.ms": ("1000", "5000"),
    "match": ("client_id=a.*",),
}
WRONG_VALUE = "not-a-number"
POLICY = "cleanup.policy"


class TopicCalls(CallMaker):
    """A maker of calls for topics and options."""

    def list_makers(self) -> Iterable[tuple[Callable[[], AdminCall | None], int]]:
        return [
            (self.create_topics, 10),
            (self.ensure_topics, 3),
            (self.delete_topics, 4),
            (self.create_partitions, 5),
            (self.alter_topic_options, 8),
            (self.alter_other_options, 8),
            (self.delete_client_metrics, 2),
            (self.delete_records, 7),
        ]

    # -- topics

    def _make_topic(self, name: str) -> tuple[NewTopic, TopicState, tuple[type[KafkaError], ...]]:
        """Return a random topic, its state, and the errors if it cannot be created."""
        configs = {
            option: self.rng.choice(values)
            for option, values in TOPIC_OPTIONS.items()
            if self.has_chance(0.2)
        }
        errors: list[type[KafkaError]] = []
        count, factor = self.rng.randint(1, 4), self.rng.randint(1, 3)
        if self.has_chance(0.25):
            placed = [tuple(self.rng.sample(self.around.brokers, factor)) for _ in range(count)]
            topic = NewTopic(name, configs=configs, assignments=dict(enumerate(placed)))
            partitions = tuple(PartitionState(each) for each in placed)
        else:
            if self.has_chance(0.08):
                factor = len(self.around.brokers) + 1
                errors.append(InvalidReplicationFactorError)
            topic = NewTopic(name, count, factor, configs)
            partitions = (PartitionState(factor),) * count
        if self.has_chance(0.08):
            topic = NewTopic(name, count, factor, {"retention.ms": WRONG_VALUE})
            errors.append(InvalidConfigError)
        return topic, TopicState(partitions, frozenset(configs.items())), tuple(errors)

    def _make_creation(
        self,
        topic: NewTopic,
        made: TopicState | None,
        errors: tuple[type[KafkaError], ...],
        if_exists: Callable[[State], list[Done | Refused]],
    ) -> Effect:
        """Return the effect of creating a topic, with `made` as its state afterwards."""
        stopped = self.around.stopped
        is_stopped = any(stopped.issuperset(each) for each in topic.assignments.values())

        def effect(state: State) -> list[Done | Refused]:
            if state is not None:
                return if_exists(state)
            outcomes: list[Done | Refused] = [Refused(errors) if errors else Done(made)]
            if is_stopped:  # For a moment, a stopped broker still counts.
                outcomes.append(Refused((InvalidReplicaAssignmentError,)))
            return outcomes

        return effect

    def create_topics(self) -> AdminCall:
        topics, items = [], {}
        validate_only = self.has_chance(0.15)
        for name in self.rng.sample(self.list_topic_names(), self.rng.randint(1, 2)):
            topic, made, errors = self._make_topic(name)
            topics.append(topic)
            existing = refused(TopicExistsError, *errors)
            effect = self._make_creation(
                topic, None if validate_only else made, errors, partial(_refuse, existing)
            )
            items[name] = CallItem(("topic", name), effect)
        if self.has_chance(0.05):
            name = "not a name"
            topics.append(NewTopic(name, 1, 1))
            items[name] = CallItem(("topic", name), lambda _: refused(InvalidTopicError))
        text = f"create_topics {topics}{' (validate_only)' if validate_only else ''}"
        return AdminCall(
            text,
            lambda admin: admin.create_topics(topics, validate_only=validate_only),
            judge_items(text, items),
            [each.key for each in items.values()],
        )

    def ensure_topics(self) -> AdminCall:
        name, dry_run = self.rng.choice(self.list_topic_names()), self.has_chance(0.2)
        topic, made, errors = self._make_topic(name)

        def keep_existing(state: State) -> list[Done | Refused]:
            # A wrong value of an existing topic is refused, or is just another difference.
            return [Done(state), Refused((InvalidConfigError,))] if errors else [Done(state)]

        effect = self._make_creation(topic, None if dry_run else made, errors, keep_existing)
        text = f"ensure_topics {topic}{' (dry run)' if dry_run else ''}"
        return AdminCall(
            text,
            lambda admin: admin.ensure_topics([topic], dry_run=dry_run),
            judge_items(text, {name: CallItem(("topic", name), effect)}),
            [("topic", name)],
        )

    def delete_topics(self) -> AdminCall | None:
        key = self.choose_key("topic")
        name = (
            self.rng.choice(self.list_topic_names())
            if key is None or self.has_chance(0.2)
            else key[1]
        )
        text = f"delete_topics {name}"

        def effect(state: State) -> list[Done | Refused]:
            return refused(UnknownTopicOrPartitionError) if state is None else [Done(None)]

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            each = result if isinstance(result, KafkaError) else result[name]
            existed = model.list_states(("topic", name)) != {None}
            judge_item(model, text, ("topic", name), effect, each, disturbed)
            if existed and None in model.list_states(("topic", name)):
                forget_offsets(model, name, disturbed, text)

        return AdminCall(text, lambda admin: admin.delete_topics([name]), judge, [("topic", name)])

    def create_partitions(self) -> AdminCall | None:
        key = self.choose_key("topic")
        if key is None:
            return None
        before: TopicState | None = self.model.get_state(key)
        # Which partition tells brokers the number of replicas, if it differs, is not defined.
        if before is None or len({each.replica_count for each in before.partitions}) > 1:
            return None
        total = max(len(before.partitions) + self.rng.choice([1, 1, 2, 0, -1]), 1)
        placed: list[tuple[int, ...]] | None = None
        factor = before.partitions[0].replica_count
        if self.has_chance(0.3) and total > len(before.partitions):
            added = range(total - len(before.partitions))
            placed = [tuple(self.rng.sample(self.around.brokers, factor)) for _ in added]
        validate_only = self.has_chance(0.15)
        stopped = self.around.stopped
        is_stopped = any(stopped.issuperset(each) for each in placed or ())

        def effect(state: State) -> list[Done | Refused]:
            if state is None:
                return refused(UnknownTopicOrPartitionError)
            count = len(state.partitions)
            if total <= count:
                return refused(InvalidPartitionsError)
            if validate_only:
                outcomes: list[Done | Refused] = [Done(state)]
            else:
                made: Sequence[Any] = placed or [factor] * (total - count)
                more = tuple(map(PartitionState, made))
                outcomes = [Done(state._replace(partitions=state.partitions + more))]
            if any(each.formers for each in state.partitions):
                outcomes.append(Refused((ReassignmentInProgressError,)))
            if is_stopped:
                outcomes.append(Refused((InvalidReplicaAssignmentError,)))
            return outcomes

        wanted = total if placed is None else NewPartitions(total, placed)
        text = f"create_partitions {key[1]} {wanted}{' (validate_only)' if validate_only else ''}"
        return AdminCall(
            text,
            lambda admin: admin.create_partitions({key[1]: wanted}, validate_only=validate_only),
            judge_items(text, {key[1]: CallItem(key, effect)}),
            [key],
        )

    def delete_records(self) -> AdminCall | None:
        chosen = self.choose_topic()
        if chosen is None:
            return None
        (name, before), key = chosen, ("topic", chosen[0])
        index = self.rng.randrange(len(before.partitions))
        part = before.partitions[index]
        offset = self.rng.choice(
            [-1, part.start, part.end, (part.start + part.end) // 2, part.end + 9]
        )
        tp = TopicPartition(name, index)

        def effect(state: State) -> list[Done | Refused]:
            if state is None or index >= len(state.partitions):
                return refused(UnknownTopicOrPartitionError)
            part = state.partitions[index]
            if "delete" not in dict(state.configs).get(POLICY, "delete"):
                return refused(PolicyViolationError)
            start = part.end if offset < 0 else max(offset, part.start)
            if start > part.end:
                return refused(OffsetOutOfRangeError)
            return [Done(replace_partition(state, index, start=start))]

        text = f"delete_records {tp} before {offset}"
        item = CallItem(key, effect, lambda low, state: low == state.partitions[index].start)
        return AdminCall(
            text,
            lambda admin: admin.delete_records({tp: offset}),
            judge_items(text, {tp: item}),
            [key],
        )

    # -- options

    def alter_topic_options(self) -> AdminCall | None:
        key = self.choose_key("topic")
        name = (
            self.rng.choice(self.list_topic_names())
            if key is None or self.has_chance(0.05)
            else key[1]
        )
        key = ("topic", name)
        before: TopicState | None = self.model.get_state(key)
        changes = self._choose_changes(TOPIC_OPTIONS, "retention.ms")
        policy = dict(before.configs).get(POLICY, "") if before is not None else ""
        if policy and self.has_chance(0.5):
            has_both = "compact" in policy and "delete" in policy
            changes[POLICY] = Subtract("compact") if has_both else Append("compact")

        def effect(state: State) -> list[Done | Refused]:
            if state is None:
                return refused(UnknownTopicOrPartitionError)
            after = _change_options(state.configs, changes)
            if after is None:
                return refused(InvalidConfigError)
            return [Done(state if validate_only else state._replace(configs=after))]

        validate_only = self.has_chance(0.15)
        return self._alter(ConfigResource.topic(name), key, changes, effect, validate_only)

    def alter_other_options(self) -> AdminCall:
        options: Mapping[str, tuple[str, ...]]
        match self.rng.randrange(4):
            case 0:
                resource, options = ConfigResource.broker(), BROKER_OPTIONS
            case 1:
                running = [each for each in self.around.brokers if each not in self.around.stopped]
                resource = ConfigResource.broker(self.rng.choice(running))
                options = {name: BROKER_OPTIONS[name] for name in ("log.cleaner.backoff.ms",)}
            case 2:
                resource, options = ConfigResource.group(self.rng.choice(GROUPS)), GROUP_OPTIONS
            case _:
                name = self.rng.choice(SUBSCRIPTIONS)
                resource, options = ConfigResource.client_metrics(name), METRICS_OPTIONS
        wrong = {"log.cleaner.backoff.ms", "consumer.session.timeout.ms", "interval.ms"}
        changes = self._choose_changes(options, min(wrong & options.keys()))

        def effect(state: State) -> list[Done | Refused]:
            after = _change_options(state or frozenset(), changes)
            if after is None:
                return refused(KafkaError)
            return [Done(state if validate_only else after or None)]

        validate_only = self.has_chance(0.15)
        return self._alter(resource, ("config", resource), changes, effect, validate_only)

    def _choose_changes(
        self, options: Mapping[str, tuple[str, ...]], numeric: str
    ) -> dict[str, Any]:
        """Return changes of one or two options, sometimes with a wrong value of `numeric`."""
        names = self.rng.sample(sorted(options), min(self.rng.randint(1, 2), len(options)))
        changes: dict[str, Any] = {
            name: None if self.has_chance(0.35) else self.rng.choice(options[name])
            for name in names
        }
        if self.has_chance(0.08):
            changes[numeric] = WRONG_VALUE
        return changes

    def _alter(
        self,
        resource: ConfigResource,
        key: Key,
        changes: Mapping[str, Any],
        effect: Effect,
        validate_only: bool,
    ) -> AdminCall:
        text = f"alter_configs {resource} {changes}{' (validate_only)' if validate_only else ''}"
        return AdminCall(
            text,
            lambda admin: admin.alter_configs({resource: changes}, validate_only=validate_only),
            judge_items(text, {resource: CallItem(key, effect)}),
            [key],
        )

    def delete_client_metrics(self) -> AdminCall:
        name = self.rng.choice(SUBSCRIPTIONS)
        key = ("config", ConfigResource.client_metrics(name))
        text = f"delete_client_metrics {name}"
        return AdminCall(
            text,
            lambda admin: admin.delete_client_metrics([name]),
            judge_items(text, {name: CallItem(key, lambda _: [Done(None)])}),
            [key],
        )


def _refuse(outcomes: list[Done | Refused], _: State) -> list[Done | Refused]:
    return outcomes


def forget_offsets(model: Model, topic: str, disturbed: bool, text: str) -> None:
    """Take in that brokers forget the offsets of groups in a topic that was deleted."""
    for kind in ("offsets", "starts"):
        for key in model.list_keys(kind, existing=True):
            if key[2] == topic:
                model.forget(key, disturbed, text)


def replace_partition(state: TopicState, index: int, **changes: Any) -> TopicState:
    parts = list(state.partitions)
    parts[index] = parts[index]._replace(**changes)
    return state._replace(partitions=tuple(parts))


def _change_options(
    before: frozenset[tuple[str, str]], changes: Mapping[str, Any]
) -> frozenset[tuple[str, str]] | None:
    """Return the options after changes, or None if a value is wrong."""
    options = dict(before)
    for name, value in changes.items():
        if value == WRONG_VALUE:
            return None
        entries = [each for each in options.get(name, "").split(",") if each]
        if value is None:
            options.pop(name, None)
        elif isinstance(value, Append):
            options[name] = ",".join(dict.fromkeys([*entries, *_list_entries(value)]))
        elif isinstance(value, Subtract):
            options[name] = ",".join(each for each in entries if each not in _list_entries(value))
        else:
            options[name] = value
    return frozenset(options.items())


def _list_entries(change: Append | Subtract) -> list[str]:
    return change.value.split(",")
