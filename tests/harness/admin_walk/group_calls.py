"""Calls that change the committed offsets of groups, and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from aiokclient import TopicPartition
from aiokclient.errors import (
    GroupIdNotFoundError,
    KafkaError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from .call import AdminCall, CallItem, CallMaker, judge_item, judge_items
from .model import BrokenModelError, Done, Effect, Key, Model, Refused, State, refused
from .topic_calls import GROUPS

TRANSACTIONAL_IDS = tuple(f"transactional-{number}" for number in range(4))
TARGETS: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")
BEYOND = 1_000
"""An offset beyond the end of all partitions."""


class GroupCalls(CallMaker):
    """A maker of calls for groups."""

    def list_makers(self) -> Iterable[tuple[Callable[[], AdminCall | None], int]]:
        return [
            (self.alter_offsets, 8),
            (self.delete_offsets, 3),
            (self.delete_group, 3),
            (self.reset_offsets, 4),
            (self.copy_offsets, 3),
            (self.fence_producer, 2),
        ]

    def alter_offsets(self) -> AdminCall | None:
        chosen = self.choose_topic()
        if chosen is None:
            return None
        (topic, state), group = chosen, self.rng.choice(GROUPS)
        key = ("offsets", group, topic)
        offsets: dict[TopicPartition, int] = {}
        for index in self.rng.sample(range(len(state.partitions)), min(2, len(state.partitions))):
            part = state.partitions[index]
            beyond = self.has_chance(0.1)
            offset = BEYOND if beyond else self.rng.randint(part.start, part.end)
            offsets[TopicPartition(topic, index)] = offset
        if self.has_chance(0.1):
            offsets[TopicPartition(topic, len(state.partitions) + 5)] = 0
        text = f"alter_consumer_group_offsets {group} {offsets}"

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            for tp, offset in offsets.items():
                each = result if isinstance(result, KafkaError) else result[tp]
                is_known = tp.partition < len(state.partitions)

                def effect(
                    before: State,
                    tp: TopicPartition = tp,
                    offset: int = offset,
                    known: bool = is_known,
                ) -> list[Done | Refused]:
                    if not known:
                        return refused(UnknownTopicOrPartitionError)
                    done = Done(_commit(before, tp.partition, offset))
                    if offset == BEYOND:
                        # Without a leader, offsets are not checked.
                        return [Refused((OffsetOutOfRangeError,)), *([done] if disturbed else [])]
                    return [done]

                judge_item(model, text, key, effect, each, disturbed)

        return AdminCall(
            text,
            lambda admin: admin.alter_consumer_group_offsets(group, offsets),
            judge,
            [key, ("topic", topic)],
        )

    def delete_offsets(self) -> AdminCall | None:
        key = self.choose_key("offsets")
        if key is None:
            return None
        _, group, topic = key
        state = self.model.get_state(key) or frozenset({(0, 0)})
        tp = TopicPartition(topic, self.rng.choice(sorted(index for index, _ in state)))

        def effect(before: State) -> list[Done | Refused]:
            outcomes: list[Done | Refused] = [Done(_commit(before, tp.partition, None))]
            if before is None:
                outcomes.append(Refused((GroupIdNotFoundError, UnknownTopicOrPartitionError)))
            return outcomes

        text = f"delete_consumer_group_offsets {group} {tp}"
        return AdminCall(
            text,
            lambda admin: admin.delete_consumer_group_offsets(group, [tp]),
            judge_items(text, {tp: CallItem(key, effect)}),
            [key, ("topic", topic)],
        )

    def _list_offsets(self, group: str) -> list[Key]:
        return [key for key in self.model.list_keys("offsets") if key[1] == group]

    def delete_group(self) -> AdminCall:
        group = self.rng.choice(GROUPS)
        keys = self._list_offsets(group)
        text = f"delete_groups {group}"

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            each = result if isinstance(result, KafkaError) else result[group]
            for key in self._list_offsets(group):
                # A group without offsets may exist.
                judge_item(
                    model,
                    text,
                    key,
                    lambda state: [
                        Done(None),
                        *(refused(GroupIdNotFoundError) if state is None else []),
                    ],
                    each,
                    disturbed,
                )

        return AdminCall(text, lambda admin: admin.delete_groups([group]), judge, keys)

    def reset_offsets(self) -> AdminCall | None:
        chosen = self.choose_topic()
        if chosen is None:
            return None
        (topic, state), group = chosen, self.rng.choice(GROUPS)
        key, target = ("offsets", group, topic), self.rng.choice(TARGETS)
        dry_run = self.has_chance(0.2)
        expected = {
            TopicPartition(topic, index): each.start if target == "earliest" else each.end
            for index, each in enumerate(state.partitions)
        }
        text = f"reset_offsets {group} {topic} to {target}{' (dry run)' if dry_run else ''}"

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            _judge_changes(model, text, key, expected, result, disturbed, dry_run)

        return AdminCall(
            text,
            lambda admin: admin.reset_offsets(group, target, topics=[topic], dry_run=dry_run),
            judge,
            [key, ("topic", topic)],
        )

    def copy_offsets(self) -> AdminCall | None:
        source, target = self.rng.sample(GROUPS, 2)
        keys = [*self._list_offsets(source), *self._list_offsets(target)]
        dry_run = self.has_chance(0.2)
        text = f"copy_offsets {source} {target}{' (dry run)' if dry_run else ''}"
        committed = {
            TopicPartition(key[2], index): offset
            for key in self._list_offsets(source)
            for index, offset in self.model.get_state(key) or ()
        }
        topics = dict.fromkeys(tp.topic for tp in committed)
        targets: list[Key] = [("offsets", target, topic) for topic in topics]

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            if isinstance(result, KafkaError) and not result.retriable:
                if committed or not isinstance(result, GroupIdNotFoundError | NoOffsetError):
                    raise BrokenModelError(f"{text}: {result}")
                return
            for topic, key in zip(topics, targets, strict=True):
                of_topic = {tp: each for tp, each in committed.items() if tp.topic == topic}
                _judge_changes(model, text, key, of_topic, result, disturbed, dry_run)

        return AdminCall(
            text,
            lambda admin: admin.copy_offsets(source, target, dry_run=dry_run),
            judge,
            [*keys, *targets, *(("topic", topic) for topic in topics)],
        )

    def fence_producer(self) -> AdminCall:
        name = self.rng.choice(TRANSACTIONAL_IDS)
        text, key = f"fence_producers {name}", ("transactional id", name)
        return AdminCall(
            text,
            lambda admin: admin.fence_producers([name]),
            judge_items(text, {name: CallItem(key, lambda _: [Done(True)])}),
            [key],
        )


def _judge_changes(
    model: Model,
    text: str,
    key: Key,
    expected: dict[TopicPartition, int],
    result: Any,
    disturbed: bool,
    dry_run: bool,
) -> None:
    """Judge a call that returns `OffsetChange` objects, for the partitions of one topic."""
    for tp, offset in expected.items():
        whole = TopicPartition(tp.topic, -1)
        if isinstance(result, KafkaError):
            each: Any = result
        else:
            each = result.get(tp) or result.get(whole)
        if each is None:
            raise BrokenModelError(f"{text} returned nothing for {tp}: {result}")

        def effect(state: State, tp: TopicPartition = tp, offset: int = offset) -> list[Done]:
            return [Done(state if dry_run else _commit(state, tp.partition, offset))]

        effect_of: Effect = effect
        meaning = judge_item(model, text, key, effect_of, each, disturbed)
        if meaning == "done" and each.after != offset:
            raise BrokenModelError(f"{text} set {tp} to {each.after} and not to {offset}.")


def _commit(state: State, partition: int, offset: int | None) -> State:
    """Return the committed offsets of a topic with another one, or with None without it."""
    offsets = dict(state or ())
    if offset is None:
        offsets.pop(partition, None)
    else:
        offsets[partition] = offset
    return frozenset(offsets.items()) or None
