"""Calls that move replicas and leaders, and some that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, permutations
from typing import Any

from aiokclient import TopicPartition
from aiokclient.admin import Admin, ElectionType, ReassignmentPlan, TopicPartitionReplica
from aiokclient.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    IllegalStateError,
    InvalidReplicaAssignmentError,
    KafkaError,
    LeaderNotAvailableError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)

from .call import AdminCall, CallItem, CallMaker, judge_items, judge_unchanged
from .model import (
    BrokenModelError,
    Done,
    Model,
    PartitionState,
    Refused,
    State,
    describe_result,
    refused,
)
from .topic_calls import replace_partition

UNKNOWN_BROKER = 77
THROTTLE = 50_000_000


class ReplicaCalls(CallMaker):
    """A maker of calls for replicas, leaders, and log directories."""

    def list_makers(self) -> Iterable[tuple[Callable[[], AdminCall | None], int]]:
        return [
            (self.reassign_partition, 7),
            (self.cancel_reassignment, 3),
            (self.elect_leader, 5),
            (self.rebalance, 3),
            (self.plan_drain, 1),
            (self.move_to_directory, 4),
            (self.unregister_unknown_broker, 1),
        ]

    def _choose_partition(self) -> tuple[TopicPartition, PartitionState] | None:
        chosen = self.choose_topic()
        if chosen is None:
            return None
        name, state = chosen
        index = self.rng.randrange(len(state.partitions))
        return TopicPartition(name, index), state.partitions[index]

    def reassign_partition(self) -> AdminCall | None:
        chosen = self._choose_partition()
        if chosen is None:
            return None
        tp, _ = chosen
        target = tuple(self.rng.sample(self.around.brokers, self.rng.randint(1, 3)))
        is_unknown = self.has_chance(0.08)
        wanted = (*target, UNKNOWN_BROKER) if is_unknown else target

        def effect(state: State) -> list[Done | Refused]:
            if state is None or tp.partition >= len(state.partitions):
                return refused(UnknownTopicOrPartitionError)
            if is_unknown:
                return refused(InvalidReplicaAssignmentError)
            part = state.partitions[tp.partition]
            formers = tuple(dict.fromkeys((*part.formers, part.replicas)))
            return [
                Done(replace_partition(state, tp.partition, replicas=each, formers=formers))
                for each in self._list_outcomes(target, part)
            ]

        text, key = f"alter_partition_reassignments {tp} to {wanted}", ("topic", tp.topic)
        return AdminCall(
            text,
            lambda admin: admin.alter_partition_reassignments({tp: wanted}),
            judge_items(text, {tp: CallItem(key, effect)}),
            [key],
        )

    def _list_outcomes(self, target: tuple[int, ...], part: PartitionState) -> list[Any]:
        """Return the replicas that a partition may have after a reassignment to `target`.

        Kafka 4.4.0 keeps what an earlier reassignment was to remove if a later one removes nothing,
        and what it was to add if the later one adds nothing. So the target may lose replicas, and
        replicas that are both added and removed stay.
        """
        if not part.formers:
            return [target]
        fewer = [each for count in range(1, len(target)) for each in combinations(target, count)]
        others = [broker for broker in self.around.brokers if broker not in target]
        more = [
            (*target, *each)
            for count in range(1, len(others) + 1)
            for each in permutations(others, count)
        ]
        return [target, *fewer, *more]

    def cancel_reassignment(self) -> AdminCall | None:
        moved = [
            TopicPartition(key[1], index)
            for key in self.model.list_keys("topic", existing=True)
            for index, part in enumerate(getattr(self.model.get_state(key), "partitions", ()))
            if part.formers and self.is_settled(key)
        ]
        chosen = self._choose_partition()
        if chosen is None:
            return None
        tp = self.rng.choice(moved) if moved and self.has_chance(0.8) else chosen[0]

        def effect(state: State) -> list[Done | Refused]:
            if state is None or tp.partition >= len(state.partitions):
                return refused(UnknownTopicOrPartitionError)
            part = state.partitions[tp.partition]
            return [
                Refused((NoReassignmentInProgressError,)),
                *(
                    Done(
                        replace_partition(
                            state, tp.partition, replicas=_lose_order(each), formers=()
                        )
                    )
                    for each in part.formers
                ),
            ]

        text, key = f"alter_partition_reassignments {tp} (cancel)", ("topic", tp.topic)
        return AdminCall(
            text,
            lambda admin: admin.alter_partition_reassignments({tp: None}),
            judge_items(text, {tp: CallItem(key, effect)}),
            [key],
        )

    def elect_leader(self) -> AdminCall | None:
        chosen = self._choose_partition()
        if chosen is None:
            return None
        tp, part = chosen
        stopped = (PreferredLeaderNotAvailableError,) if self.around.stopped or part.formers else ()

        async def find_contradiction(admin: Admin, result: Any) -> str | None:
            if not isinstance(result.get(tp), ElectionNotNeededError | None):
                return None
            described = (await admin.describe_topics([tp.topic])).raise_for_errors()[tp.topic]
            now = described.partitions[tp.partition]
            if now.leader == now.replicas[0]:
                return None
            return f"The leader of {tp} is {now.leader}, and its replicas are {now.replicas}."

        text = f"elect_leaders {tp}"
        item = CallItem(
            ("topic", tp.topic),
            lambda state: (
                [Done(state), Refused((ElectionNotNeededError, *stopped))]
                if state is not None and tp.partition < len(state.partitions)
                else refused(UnknownTopicOrPartitionError)
            ),
        )
        return AdminCall(
            text,
            lambda admin: admin.elect_leaders(ElectionType.PREFERRED, [tp]),
            judge_items(text, {tp: item}),
            [item.key],
            find_contradiction,
        )

    # -- plans

    def rebalance(self) -> AdminCall | None:
        """Return a call that plans the moves of some topics, and carries the plan out."""
        keys = [
            key
            for key in self.model.list_keys("topic", existing=True)
            if self.is_settled(key) and self.model.list_states(key).isdisjoint([None])
        ]
        if not keys:
            return None
        keys = sorted(self.rng.sample(keys, min(len(keys), self.rng.randint(1, 4))))
        names = [key[1] for key in keys]
        throttle = THROTTLE if self.has_chance(0.5) else None
        plans: list[ReassignmentPlan] = []

        async def plan_and_move(admin: Admin) -> ReassignmentPlan:
            plans.append(await admin.rebalance_plan(names))
            if plans[0]:
                await admin.apply_plan(plans[0], throttle=throttle)
            return plans[0]

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            # What is planned while replicas move, or without a leader, is refused.
            if isinstance(result, KafkaError) and not plans:
                allowed = (IllegalStateError, LeaderNotAvailableError)
                judge_unchanged(text, *allowed)(model, result, disturbed)
                return
            if isinstance(result, KafkaError):
                self.around.must_remove_throttle |= bool(getattr(result, "__notes__", ()))
                if not disturbed:
                    raise BrokenModelError(f"{text}: {describe_result(result)}")
            for tp, move in plans[0].moves.items():
                key = ("topic", tp.topic)
                effect = _make_move(tp, move.after, result)
                model.apply_result(key, effect, None, disturbed, text)

        text = f"rebalance_plan {names} and apply_plan (throttle {throttle})"
        return AdminCall(text, plan_and_move, judge, keys)

    def plan_drain(self) -> AdminCall:
        broker = self.rng.choice([*self.around.brokers, UNKNOWN_BROKER])
        text = f"drain_broker {broker} (dry run)"
        unknown = (BrokerIdNotRegisteredError,) if broker == UNKNOWN_BROKER else ()
        possible = (IllegalStateError, LeaderNotAvailableError, InvalidReplicaAssignmentError)
        allowed: tuple[type[KafkaError], ...] = (*unknown, *possible)
        return AdminCall(
            text,
            lambda admin: admin.drain_broker(broker, dry_run=True),
            judge_unchanged(text, *allowed),
        )

    # -- directories and brokers

    def move_to_directory(self) -> AdminCall | None:
        chosen = self._choose_partition()
        if chosen is None or not isinstance(chosen[1].replicas, tuple):
            return None
        tp, part = chosen
        broker = self.rng.choice(part.replicas)
        paths = self.around.log_dirs[broker]
        path = "/no/such/directory" if self.has_chance(0.1) else self.rng.choice(paths)
        replica = TopicPartitionReplica(tp.topic, tp.partition, broker)

        async def find_contradiction(admin: Admin, result: Any) -> str | None:
            if isinstance(result[replica], KafkaError):
                return None
            described = await admin.describe_replica_log_dirs([replica])
            now = described.raise_for_errors()[replica]
            return (
                None if (now.path, now.future_path) == (path, None) else f"{replica} is in {now}."
            )

        allowed: tuple[type[KafkaError], ...] = (LogDirNotFoundError,) if path not in paths else ()
        if part.formers:
            allowed += (ReplicaNotAvailableError,)

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            each = result if isinstance(result, KafkaError) else result[replica]
            judge_unchanged(text, *allowed)(model, each, disturbed)
            if path not in paths and not isinstance(each, KafkaError):
                raise BrokenModelError(f"{text} succeeded, although there is no such directory.")

        text = f"alter_replica_log_dirs {replica} to {path}"
        return AdminCall(
            text,
            lambda admin: admin.alter_replica_log_dirs({replica: path}),
            judge,
            [("topic", tp.topic)],
            None if part.formers else find_contradiction,
        )

    def unregister_unknown_broker(self) -> AdminCall:
        text = f"unregister_broker {UNKNOWN_BROKER}"

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            judge_unchanged(text, BrokerIdNotRegisteredError)(model, result, disturbed)
            if not isinstance(result, KafkaError):
                raise BrokenModelError(f"{text} succeeded, although there is no such broker.")

        return AdminCall(text, lambda admin: admin.unregister_broker(UNKNOWN_BROKER), judge)


def _lose_order(replicas: Any) -> Any:
    return frozenset(replicas) if isinstance(replicas, tuple) else replicas


def _make_move(tp: TopicPartition, after: tuple[int, ...], result: Any) -> Any:
    """Return the effect of a plan for a partition. After an error, any replicas are possible."""

    def effect(state: State) -> list[Done | Refused]:
        if isinstance(result, KafkaError):
            changes: dict[str, Any] = {"replicas": len(after), "formers": (len(after),)}
            return [Done(replace_partition(state, tp.partition, **changes))]
        return [Done(replace_partition(state, tp.partition, replicas=after, formers=()))]

    return effect
