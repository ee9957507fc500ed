"""The admin client's calls about share groups while brokers fail, and when they are cancelled."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from interrupt import Interrupted, interrupt
from world import World, simulate

from aiokclient import Admin, TopicPartition
from aiokclient.admin import OffsetChange, Results, SharePartitionOffset
from aiokclient.errors import (
    ApiTimeoutError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationError,
    KafkaError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

TPS = [TopicPartition("t", partition) for partition in range(2)]
WEATHER = Weather(latency_s=(0.001, 0.01))
STARTS = dict.fromkeys(TPS, SharePartitionOffset(1, 0, 0))

Call = Callable[[Admin], Coroutine[Any, Any, Any]]
Scenario = Callable[[World, Admin], Coroutine[Any, Any, Any]]

CALLS: dict[str, Call] = {
    "list_share_group_offsets": lambda admin: admin.list_share_group_offsets({"g": TPS}),
    "alter_share_group_offsets": lambda admin: admin.alter_share_group_offsets(
        "g", {TPS[0]: "latest", TPS[1]: 1}
    ),
    "create_share_group": lambda admin: admin.create_share_group("new", ["t"], "latest"),
    "describe_groups": lambda admin: admin.describe_groups(["g"]),
}
FAILURES: list[tuple[str, ApiKey, type[KafkaError]]] = [
    ("list_share_group_offsets", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, NotCoordinatorError),
    (
        "list_share_group_offsets",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        CoordinatorLoadInProgressError,
    ),
    ("list_share_group_offsets", ApiKey.SHARE_GROUP_DESCRIBE, CoordinatorNotAvailableError),
    ("alter_share_group_offsets", ApiKey.ALTER_SHARE_GROUP_OFFSETS, NotCoordinatorError),
    ("alter_share_group_offsets", ApiKey.ALTER_SHARE_GROUP_OFFSETS, CoordinatorNotAvailableError),
    ("alter_share_group_offsets", ApiKey.LIST_OFFSETS, NotLeaderOrFollowerError),
    ("create_share_group", ApiKey.ALTER_SHARE_GROUP_OFFSETS, CoordinatorLoadInProgressError),
    ("create_share_group", ApiKey.LIST_OFFSETS, NotLeaderOrFollowerError),
    ("create_share_group", ApiKey.SHARE_GROUP_DESCRIBE, NotCoordinatorError),
    ("describe_groups", ApiKey.SHARE_GROUP_DESCRIBE, CoordinatorLoadInProgressError),
]


def play(scenario: Scenario) -> None:
    """Run a scenario in which a share group "g" starts at the end of both partitions of "t"."""

    async def run(world: World) -> None:
        async with Admin(**world.options()) as admin:
            for tp in TPS:
                world.cluster.produce("t", [b"v"], tp.partition)
            raised(await admin.alter_share_group_offsets("g", dict.fromkeys(TPS, 1)))
            await scenario(world, admin)

    simulate(run, brokers=3, topics={"t": 2}, weather=WEATHER)


def raised(answer: Results[Any, Any]) -> Any:
    return answer.raise_for_errors()


async def list_starts(admin: Admin, group: str = "g") -> Any:
    return raised(await admin.list_share_group_offsets([group]))[group]


@pytest.mark.parametrize(("name", "api", "error"), FAILURES)
def test_a_passing_error_about_share_groups_is_retried(
    name: str, api: ApiKey, error: type[KafkaError]
) -> None:
    async def scenario(world: World, admin: Admin) -> None:
        fault = world.cluster.fail(api, error, times=4)
        raised(await CALLS[name](admin))
        assert fault.hits == 4

    play(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("name", "api"), sorted({(name, api) for name, api, _ in FAILURES}, key=repr)
)
def test_a_lost_response_about_share_groups_is_requested_again(
    name: str, api: ApiKey, when: Any
) -> None:
    async def scenario(world: World, admin: Admin) -> None:
        fault = world.cluster.drop(api, when=when, times=2)
        raised(await CALLS[name](admin))
        assert fault.hits == 2
        assert await list_starts(admin) == STARTS

    play(scenario)


@pytest.mark.fault(5)
def test_calls_follow_a_coordinator_and_leaders_that_move() -> None:
    async def scenario(world: World, admin: Admin) -> None:
        for name, call in CALLS.items():
            for group in ("g", "new"):
                world.cluster.move_coordinator(group)
            for tp in TPS:
                world.cluster.move_leader(*tp)
            assert raised(await call(admin)), name
        starts = await list_starts(admin, "new")
        assert [each.start_offset for each in starts.values()] == [1, 1]

    play(scenario)


def test_brokers_without_share_groups_have_an_error_that_names_the_version() -> None:
    async def scenario(world: World, admin: Admin) -> None:
        world.cluster.limit_versions({ApiKey.ALTER_SHARE_GROUP_OFFSETS: None})
        async with Admin(**world.options()) as late:
            altered = await CALLS["alter_share_group_offsets"](late)
            (text,) = {str(each) for each in altered.values()}
            assert "Share groups are disabled" not in text
            assert "AlterShareGroupOffsets" in text
            assert "Upgrade the brokers to Kafka 4.2 or later." in text

    play(scenario)


@pytest.mark.parametrize("name", ["alter_share_group_offsets", "create_share_group"])
def test_an_answer_that_leaves_partitions_out_has_changed_no_start(name: str) -> None:
    def leave_out(request: Any, response: Any) -> Any:
        response.responses.clear()  # Kafka 4.1 does so.
        return response

    async def scenario(world: World, admin: Admin) -> None:
        world.cluster.alter(ApiKey.ALTER_SHARE_GROUP_OFFSETS, leave_out)
        answer = await CALLS[name](admin)
        assert answer.errors.keys() == set(TPS)
        for tp, error in answer.errors.items():
            assert isinstance(error, UnsupportedVersionError)
            assert error.topic_partition == tp
            assert "Upgrade the brokers to Kafka 4.2 or later." in str(error)
            assert "share.auto.offset.reset" in str(error)

    play(scenario)


def test_a_group_is_created_with_what_has_leaders_and_completed_by_the_same_call() -> None:
    async def scenario(world: World, admin: Admin) -> None:
        cluster = world.cluster
        with cluster.fail(ApiKey.LIST_OFFSETS, NotLeaderOrFollowerError, topic="t", partition=1):
            created = await admin.create_share_group("new", ["t"], "earliest", timeout=8)
        assert created.succeeded == {TPS[0]: OffsetChange(None, 0, created_group=True)}
        assert isinstance(created.errors[TPS[1]], ApiTimeoutError | LeaderNotAvailableError)
        again = raised(await admin.create_share_group("new", ["t"], "latest"))
        assert again == {TPS[0]: OffsetChange(0, 0), TPS[1]: OffsetChange(None, 1)}

    play(scenario)


def test_partitions_that_do_not_exist_are_known_at_once() -> None:
    beyond, absent = TopicPartition("t", 7), TopicPartition("absent", 0)

    async def scenario(world: World, admin: Admin) -> None:
        began = world.now
        for tp in (beyond, absent):
            listed = await admin.list_share_group_offsets({"g": [tp]})
            assert isinstance(listed["g"], UnknownTopicOrPartitionError)
        altered = await admin.alter_share_group_offsets("g", {beyond: 0, absent: "latest"})
        assert {type(each) for each in altered.values()} == {UnknownTopicOrPartitionError}
        # Nothing of it was asked of the group's coordinator.
        asked = {each.api for each in world.cluster.requests}
        assert ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS not in asked
        assert world.now - began < 2

    play(scenario)


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_is_returned_at_once(name: str) -> None:
    api = {
        "alter_share_group_offsets": ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        "create_share_group": ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    }.get(name, ApiKey.SHARE_GROUP_DESCRIBE)

    async def scenario(world: World, admin: Admin) -> None:
        fault = world.cluster.fail(api, GroupAuthorizationError)
        with pytest.raises(GroupAuthorizationError):
            raised(await CALLS[name](admin))
        assert fault.hits == 1

    play(scenario)


def test_disabled_share_groups_have_an_error_that_says_so() -> None:
    async def scenario(world: World, admin: Admin) -> None:
        world.cluster.set_share_version(0)
        for name in ("alter_share_group_offsets", "create_share_group"):
            answer = await CALLS[name](admin)
            for error in answer.errors.values():
                assert isinstance(error, UnsupportedVersionError)
                assert "the feature share.version of the cluster is 0" in str(error)
        for check in (True, False):
            listed = await admin.list_share_group_offsets(["g"], check=check)
            assert "Raise the feature to 1 or 2 with Admin.update_features." in str(listed["g"])
        deleted = await admin.delete_share_group_offsets("g", ["t"])
        assert "Share groups are disabled" in str(deleted["t"])

    play(scenario)


@pytest.mark.fault(35)
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("create_share_group", "asyncio"),
        ("create_share_group", "anyio"),
        ("alter_share_group_offsets", "asyncio"),
        ("list_share_group_offsets", "anyio"),
    ],
)
def test_a_call_about_share_groups_can_be_cancelled_at_every_suspension(
    name: str, way: str
) -> None:
    """Afterwards the same call succeeds, and no task or connection is left."""

    def interrupted(suspension: int) -> Interrupted:
        outcomes: list[Interrupted] = []

        async def scenario(world: World, admin: Admin) -> None:
            outcomes.append(await interrupt(CALLS[name](admin), way=way, suspension=suspension))
            raised(await CALLS[name](admin))
            assert await list_starts(admin) == STARTS

        play(scenario)
        return outcomes[0]

    most = 0
    for suspension in range(1, 1_000):
        outcome = interrupted(suspension)
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            assert outcome.error is None
            break
    assert most > 0
