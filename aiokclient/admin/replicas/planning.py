"""The admin call that plans moves of replicas, and what the cluster tells for a plan."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable, Mapping

from aiokclient import threads
from aiokclient.admin.arguments import TOPIC, as_list, as_name, require_integer
from aiokclient.admin.cluster import BrokerDescription, describe_cluster
from aiokclient.admin.log_dirs import LogDirDescription, describe_log_dirs
from aiokclient.admin.replicas.partitions import list_partition_reassignments
from aiokclient.admin.replicas.plan import ReassignmentPlan
from aiokclient.admin.replicas.planner import (
    BrokerRoom,
    PlacedPartition,
    PlanTargets,
    compute_plan,
)
from aiokclient.admin.requests import AdminRequests
from aiokclient.admin.topics import PartitionDescription, describe_topics, list_topics
from aiokclient.errors import (
    ApiTimeoutError,
    BrokerIdNotRegisteredError,
    IllegalStateError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.errors.local import ArgumentValueError
from aiokclient.types import TopicPartition


async def rebalance_plan(
    requests: AdminRequests,
    topics: Iterable[str] | None,
    brokers: Iterable[int] | None,
    ignore_racks: bool,
    timeout: float | None,
) -> ReassignmentPlan:
    """See `Admin.rebalance_plan`."""
    names = None
    if topics is not None:
        names = list(dict.fromkeys(as_name(each, TOPIC) for each in as_list(topics, "topics")))
    chosen = None if brokers is None else as_list(brokers, "broker ids")
    for each in chosen or ():
        require_integer(each, "the id of a broker")
    if chosen == []:
        raise ArgumentValueError("There is no broker in `brokers`. Name those that may be used.")
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    if names == []:
        return ReassignmentPlan({})
    state = await read_cluster(requests, names, deadline)
    if chosen is None:
        targets, staying = state.find_targets(), state.list_holders()
    else:
        state.require_targets(chosen)
        targets, staying = chosen, []
    state.refuse_moving(state.partitions)
    if ignore_racks:
        state.forget_racks()
    return await make_plan(requests, state, PlanTargets(targets, staying, True), deadline)


async def make_plan(
    requests: AdminRequests,
    state: MovableReplicas,
    wanted: PlanTargets,
    deadline: float,
) -> ReassignmentPlan:
    """Compute a plan in a thread, until the deadline.

    At the deadline, and after a cancellation, the thread ends soon. Raises ApiTimeoutError.
    """
    is_stopped = threading.Event()
    computing = threads.run(
        compute_plan,
        state.placed,
        state.rooms,
        wanted.targets,
        wanted.staying,
        wanted.make_even,
        is_stopped.is_set,
    )
    try:
        async with asyncio.timeout(requests.compute_remaining_s(deadline)):
            plan = await computing
    except TimeoutError:
        raise ApiTimeoutError(
            f"The plan for {len(state.placed)} partitions was not computed before the timeout. "
            "Pass a longer one, or plan for fewer topics at once."
        ) from None
    finally:
        is_stopped.set()
    return state.require_leaders(plan)


class MovableReplicas:
    """The replicas of a cluster, its brokers with their free bytes, and the moves in progress."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionDescription],
        brokers: Mapping[int, BrokerDescription],
        directories: Mapping[int, tuple[LogDirDescription, ...]],
        moving: Collection[TopicPartition],
    ) -> None:
        self.partitions, self.brokers, self._moving = partitions, brokers, moving
        sizes: dict[TopicPartition, int] = {}
        for described in directories.values():
            for directory in described:
                for tp, log in directory.replicas.items():
                    sizes[tp] = max(sizes.get(tp, 0), log.size)
        self.placed = {
            tp: PlacedPartition(each.replicas, sizes.get(tp, 0)) for tp, each in partitions.items()
        }
        self._open_dirs = {
            node: [each for each in described if each.error is None and not each.is_cordoned]
            for node, described in directories.items()
        }
        self.rooms = {node: self._find_room(node) for node in brokers}

    def _find_room(self, node: int) -> BrokerRoom:
        free = [each.usable_bytes for each in self._open_dirs.get(node, ())]
        known = [each for each in free if each is not None]
        rack = self.brokers[node].rack
        if not known or len(known) < len(free):
            return BrokerRoom(rack)
        return BrokerRoom(rack, sum(known), max(known))

    def forget_racks(self) -> None:
        """Let all brokers count as being in no rack."""
        for node, room in self.rooms.items():
            self.rooms[node] = BrokerRoom(None, room.usable_bytes, room.largest_bytes)

    def list_holders(self) -> list[int]:
        """Return the brokers that have replicas, sorted."""
        return sorted({each for placed in self.placed.values() for each in placed.replicas})

    def find_targets(self) -> list[int]:
        """Return the brokers that can get replicas: they run, and accept them in a directory."""
        return [
            node
            for node, broker in sorted(self.brokers.items())
            if not broker.fenced and self._open_dirs.get(node)
        ]

    def name_brokers(self) -> str:
        """Return a sentence with the ids of the brokers that run."""
        running = [node for node, broker in sorted(self.brokers.items()) if not broker.fenced]
        return f"The brokers that run are {', '.join(map(str, running)) or 'none'}."

    def require_broker(self, node: int) -> None:
        """Raise BrokerIdNotRegisteredError if no such broker is known, nor a replica on it."""
        if node not in self.brokers and node not in self.list_holders():
            error = BrokerIdNotRegisteredError()
            error.what = f"Broker {node} is not in the cluster, and no replica is on it."
            error.hint = self.name_brokers()
            raise error

    def require_targets(self, chosen: Iterable[int]) -> None:
        """Raise an error if one of these brokers does not exist, or can get no replicas."""
        possible = self.find_targets()
        for node in chosen:
            self.require_broker(node)
            broker = self.brokers.get(node)
            if broker is None or broker.fenced:
                raise IllegalStateError(
                    f"Broker {node} does not run, so it can get no replicas. {self.name_brokers()}"
                )
            if node not in possible:
                raise IllegalStateError(
                    f"All log directories of broker {node} are cordoned or offline, so it can get "
                    "no replicas. Choose other brokers, or uncordon a directory."
                )

    def refuse_moving(self, tps: Iterable[TopicPartition]) -> None:
        """Raise IllegalStateError if one of these partitions is being moved already."""
        moving = sorted(tp for tp in tps if tp in self._moving)
        if moving:
            raise IllegalStateError(
                f"{count_partitions(moving)} being moved already. Wait until "
                "list_partition_reassignments() is without them, or cancel their reassignments."
            )

    def require_leaders(self, plan: ReassignmentPlan) -> ReassignmentPlan:
        """Return the plan. Raises LeaderNotAvailableError if nothing leads a copied partition."""
        for tp, move in plan.moves.items():
            described = self.partitions[tp]
            if described.leader is None and move.adding:
                error = LeaderNotAvailableError(topic_partition=tp)
                error.what = "The partition has no leader from which its records can be copied."
                brokers = ", ".join(map(str, described.replicas))
                error.hint = f"Start one of its brokers ({brokers}), and repeat the call."
                raise error
        return plan


async def read_cluster(
    requests: AdminRequests, topics: list[str] | None, deadline: float
) -> MovableReplicas:
    """Return what a plan is made from, for some topics or for all of them."""
    brokers = await _describe_brokers(requests, deadline)
    names = topics
    if names is None:
        names = list(await list_topics(requests, True, requests.compute_remaining_s(deadline)))
    partitions, absent = await describe_partitions(requests, names, deadline)
    if topics is not None and absent:
        raise next(iter(absent.values()))
    moving = await list_partition_reassignments(
        requests, None, requests.compute_remaining_s(deadline)
    )
    running = [node for node, broker in brokers.items() if not broker.fenced]
    found = await describe_log_dirs(
        requests, running, topics, requests.compute_remaining_s(deadline)
    )
    return MovableReplicas(partitions, brokers, found.raise_for_errors(), moving.keys())


async def _describe_brokers(
    requests: AdminRequests, deadline: float
) -> dict[int, BrokerDescription]:
    """Return all brokers, also those that do not run if the brokers name them (Kafka 4.0)."""
    try:
        cluster = await describe_cluster(
            requests, False, True, requests.compute_remaining_s(deadline)
        )
    except UnsupportedVersionError:
        cluster = await describe_cluster(
            requests, False, False, requests.compute_remaining_s(deadline)
        )
    return {broker.node_id: broker for broker in cluster.brokers}


async def describe_partitions(
    requests: AdminRequests, topics: Iterable[str], deadline: float
) -> tuple[dict[TopicPartition, PartitionDescription], dict[str, KafkaError]]:
    """Return the partitions of topics, and errors for the topics that do not exist."""
    described = await describe_topics(
        requests, topics, False, None, requests.compute_remaining_s(deadline)
    )
    absent: dict[str, KafkaError] = {}
    for name, error in described.errors.items():
        if error.code != UnknownTopicOrPartitionError.code:
            raise error
        absent[str(name)] = error
    partitions = {
        TopicPartition(topic.name, each.index): each
        for topic in described.succeeded.values()
        for each in topic.partitions
    }
    return partitions, absent


def count_partitions(tps: Collection[TopicPartition]) -> str:
    """Return a partition or the number of several, as the beginning of a sentence."""
    first = next(iter(tps))
    return f"{first} is" if len(tps) == 1 else f"{len(tps)} partitions ({first}, ...) are"
