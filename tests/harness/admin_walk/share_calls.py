"""Calls that create share groups, and change or delete their start offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from aiokclient import TopicPartition
from aiokclient.errors import (
    GroupIdNotFoundError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from .call import AdminCall, CallItem, CallMaker, judge_item, judge_items
from .group_calls import BEYOND
from .model import BrokenModelError, Done, Key, Model, Refused, State, TopicState, refused

SHARE_GROUPS = tuple(f"share-{number}" for number in range(3))
BOUNDS: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")


class ShareCalls(CallMaker):
    """A maker of calls for share groups. The state of a topic in a group is its start offsets."""

    def list_makers(self) -> Iterable[tuple[Callable[[], AdminCall | None], int]]:
        return [
            (self.create_group, 4),
            (self.alter_offsets, 4),
            (self.delete_offsets, 2),
            (self.delete_group, 2),
        ]

    def _choose(self) -> tuple[str, str, TopicState] | None:
        chosen = self.choose_topic()
        return None if chosen is None else (self.rng.choice(SHARE_GROUPS), *chosen)

    def create_group(self) -> AdminCall | None:
        chosen = self._choose()
        if chosen is None:
            return None
        group, topic, state = chosen
        key, start, dry_run = (
            ("starts", group, topic),
            self.rng.choice(BOUNDS),
            self.has_chance(0.2),
        )
        wanted = {
            TopicPartition(topic, index): each.start if start == "earliest" else each.end
            for index, each in enumerate(state.partitions)
        }
        text = f"create_share_group {group} {topic} {start}{' (dry run)' if dry_run else ''}"

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            for tp, offset in wanted.items():
                each: Any = result
                if not isinstance(result, KafkaError):
                    each = _find_result(result, tp)
                if each is None:
                    raise BrokenModelError(f"{text} returned nothing for {tp}: {result}")

                def effect(
                    before: State, index: int = tp.partition, to: int = offset
                ) -> list[Done]:
                    kept = dict(before or ()).get(index, to)
                    return [Done(before if dry_run else _set_start(before, index, kept))]

                before: Any = model.list_states(key)
                meaning = judge_item(model, text, key, effect, each, disturbed)
                starts = {dict(found or ()).get(tp.partition, offset) for found in before}
                if meaning == "done" and each.after not in starts:
                    raise BrokenModelError(f"{text} gave {tp} {each.after} and not {starts}.")

        return AdminCall(
            text,
            lambda admin: admin.create_share_group(group, [topic], start, dry_run=dry_run),
            judge,
            [key, ("topic", topic)],
        )

    def alter_offsets(self) -> AdminCall | None:
        chosen = self._choose()
        if chosen is None:
            return None
        group, topic, state = chosen
        index = self.rng.randrange(len(state.partitions))
        part, key = state.partitions[index], ("starts", group, topic)
        starts: list[tuple[Any, int]] = [
            ("earliest", part.start),
            ("latest", part.end),
            (self.rng.randint(part.start, part.end),) * 2,
            (BEYOND, BEYOND),
        ]
        start, offset = self.rng.choice(starts)
        tp = TopicPartition(topic, index)
        beyond = TopicPartition(topic, len(state.partitions) + 5)
        given = {tp: start, beyond: 0}
        text = f"alter_share_group_offsets {group} {given}"

        def effect(before: State) -> list[Done | Refused]:
            done = Done(_set_start(before, index, offset))
            if offset == BEYOND:
                # Without a leader, offsets are not checked.
                return [Refused((OffsetOutOfRangeError,)), done]
            return [done]

        unknown = CallItem(key, lambda _: refused(UnknownTopicOrPartitionError))
        return AdminCall(
            text,
            lambda admin: admin.alter_share_group_offsets(group, given),
            judge_items(text, {tp: CallItem(key, effect), beyond: unknown}),
            [key, ("topic", topic)],
        )

    def delete_offsets(self) -> AdminCall | None:
        key = self.choose_key("starts")
        if key is None:
            return None
        _, group, topic = key

        def effect(before: State) -> list[Done | Refused]:
            if before is None:
                return refused(UnknownTopicOrPartitionError, GroupIdNotFoundError)
            return [Done(None)]

        text = f"delete_share_group_offsets {group} {topic}"
        return AdminCall(
            text,
            lambda admin: admin.delete_share_group_offsets(group, [topic]),
            judge_items(text, {topic: CallItem(key, effect)}),
            [key, ("topic", topic)],
        )

    def _list_starts(self, group: str) -> list[Key]:
        return [key for key in self.model.list_keys("starts") if key[1] == group]

    def delete_group(self) -> AdminCall:
        group = self.rng.choice(SHARE_GROUPS)
        text = f"delete_groups {group}"

        def effect(before: State) -> list[Done | Refused]:
            # A group without starts may exist.
            absent = refused(GroupIdNotFoundError) if before is None else []
            return [Done(None), *absent]

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            each = result if isinstance(result, KafkaError) else result[group]
            for key in self._list_starts(group):
                judge_item(model, text, key, effect, each, disturbed)

        keys = self._list_starts(group)
        return AdminCall(text, lambda admin: admin.delete_groups([group]), judge, keys)


def _find_result(result: Any, tp: TopicPartition) -> Any:
    return result.get(tp) or result.get(TopicPartition(tp.topic, -1))


def _set_start(state: State, partition: int, offset: int) -> State:
    """Return the starts of a group in a topic with another one."""
    return frozenset({**dict(state or ()), partition: offset}.items())
