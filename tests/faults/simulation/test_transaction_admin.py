"""The admin client's calls about transactions while brokers fail, and when they are cancelled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from interrupt import Interrupted, interrupt
from raw_transactions import RawTransaction
from world import World, simulate

from aiokclient import Admin, Client, TopicPartition
from aiokclient.admin import HangingTransaction, Results
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterAuthorizationError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

TPS = [TopicPartition("t", partition) for partition in range(3)]
IDS = ["a", "b", "c"]
HANGING_ID = 9_000
WEATHER = Weather(latency_s=(0.001, 0.01))

Call = Callable[[Admin], Coroutine[Any, Any, Any]]


class Stage:
    """Three open transactions, and one in partition 2 that no coordinator knows."""

    def __init__(self, world: World, client: Client, admin: Admin) -> None:
        self.world, self.client, self.admin = world, client, admin
        self.transactions: dict[str, RawTransaction] = {}

    async def begin(self) -> None:
        for name, tp in zip(IDS, TPS, strict=True):
            transaction = RawTransaction(self.client, name)
            await transaction.begin()
            await transaction.produce(tp, b"v")
            self.transactions[name] = transaction
        self.world.cluster.produce(
            "t", [b"hangs"], 2, producer_id=HANGING_ID, transactional=True, timestamp=0
        )

    async def hanging(self) -> HangingTransaction:
        [found] = await self.admin.find_hanging_transactions(topic="t")
        return found


def play(scenario: Callable[[Stage], Coroutine[Any, Any, Any]]) -> None:
    async def run(world: World) -> None:
        async with world.client() as client, Admin(client=client) as admin:
            stage = Stage(world, client, admin)
            await stage.begin()
            await scenario(stage)

    simulate(run, brokers=3, topics={"t": 3}, weather=WEATHER)


CALLS: dict[str, Call] = {
    "list_transactions": lambda admin: admin.list_transactions(),
    "describe_transactions": lambda admin: admin.describe_transactions(IDS),
    "describe_producers": lambda admin: admin.describe_producers(TPS),
    "fence_producers": lambda admin: admin.fence_producers(IDS),
    "force_terminate_transaction": lambda admin: admin.force_terminate_transaction("a"),
    "find_hanging_transactions": lambda admin: admin.find_hanging_transactions(topic="t"),
    "abort_transaction": lambda admin: admin.abort_transaction(
        HangingTransaction(TPS[2], HANGING_ID, 0)
    ),
}
FAILURES: dict[str, list[tuple[ApiKey, type[KafkaError]]]] = {
    "list_transactions": [
        (ApiKey.LIST_TRANSACTIONS, CoordinatorLoadInProgressError),
        (ApiKey.LIST_TRANSACTIONS, CoordinatorNotAvailableError),
    ],
    "describe_transactions": [
        (ApiKey.DESCRIBE_TRANSACTIONS, CoordinatorLoadInProgressError),
        (ApiKey.DESCRIBE_TRANSACTIONS, NotCoordinatorError),
        (ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError),
    ],
    "describe_producers": [
        (ApiKey.DESCRIBE_PRODUCERS, NotLeaderOrFollowerError),
        # The broker is no longer a replica, although the partition still exists.
        (ApiKey.DESCRIBE_PRODUCERS, UnknownTopicOrPartitionError),
    ],
    "fence_producers": [
        (ApiKey.INIT_PRODUCER_ID, ConcurrentTransactionsError),
        (ApiKey.INIT_PRODUCER_ID, NotCoordinatorError),
        (ApiKey.INIT_PRODUCER_ID, CoordinatorLoadInProgressError),
    ],
    "force_terminate_transaction": [(ApiKey.INIT_PRODUCER_ID, ConcurrentTransactionsError)],
    "find_hanging_transactions": [
        (ApiKey.DESCRIBE_PRODUCERS, NotLeaderOrFollowerError),
        (ApiKey.LIST_TRANSACTIONS, CoordinatorLoadInProgressError),
    ],
    "abort_transaction": [
        (ApiKey.WRITE_TXN_MARKERS, NotLeaderOrFollowerError),
        (ApiKey.WRITE_TXN_MARKERS, UnknownTopicOrPartitionError),
    ],
}
APIS: dict[str, list[ApiKey]] = {
    name: list(dict.fromkeys(api for api, _ in failures)) for name, failures in FAILURES.items()
}


def raised(answer: Any) -> Any:
    return answer.raise_for_errors() if isinstance(answer, Results) else answer


@pytest.mark.parametrize(
    ("name", "api", "error"),
    [(name, *failure) for name, failures in FAILURES.items() for failure in failures],
)
def test_a_passing_error_is_retried(name: str, api: ApiKey, error: type[KafkaError]) -> None:
    async def scenario(stage: Stage) -> None:
        fault = stage.world.cluster.fail(api, error, times=4)
        raised(await CALLS[name](stage.admin))
        assert fault.hits == 4

    play(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("name", "api"), [(name, api) for name, apis in APIS.items() for api in apis]
)
def test_a_lost_response_is_requested_again(name: str, api: ApiKey, when: Any) -> None:
    async def scenario(stage: Stage) -> None:
        expected = raised(await CALLS[name](stage.admin))
        fault = stage.world.cluster.drop(api, when=when, times=2)
        got = raised(await CALLS[name](stage.admin))
        assert fault.hits == 2
        if name.startswith(("list", "describe")):
            assert got == expected

    play(scenario)


@pytest.mark.fault(5)
def test_calls_follow_a_coordinator_that_moves() -> None:
    async def scenario(stage: Stage) -> None:
        cluster, admin = stage.world.cluster, stage.admin
        before = raised(await admin.describe_transactions(IDS))
        for name in IDS:
            cluster.move_coordinator(name)
        after = raised(await admin.describe_transactions(IDS))
        for name in IDS:
            assert after[name].coordinator.node_id != before[name].coordinator.node_id
            assert replace(after[name], coordinator=before[name].coordinator) == before[name]
        assert list(await admin.list_transactions()) == IDS
        for name in IDS:
            cluster.move_coordinator(name)
        raised(await admin.fence_producers(IDS))
        assert {each.partitions for each in cluster.transactions.values()} == {frozenset()}

    play(scenario)


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("describe_transactions", ApiKey.DESCRIBE_TRANSACTIONS),
        ("list_transactions", ApiKey.LIST_TRANSACTIONS),
    ],
)
def test_a_call_ends_soon_after_the_metadata_lacks_a_dead_broker(name: str, api: ApiKey) -> None:
    """The call does not wait for `request_timeout_ms` before it leaves the dead broker."""

    async def scenario(stage: Stage) -> None:
        cluster, began = stage.world.cluster, stage.world.now
        dead = cluster.coordinator("a")
        with cluster.delay(api, 60, broker=dead):
            call = asyncio.create_task(CALLS[name](stage.admin))
            await cluster.until(lambda: any(each.api is api for each in cluster.requests))
            cluster.stop(dead)
            found = await call
        # Other brokers may respond before one of them takes over the transactional id "a".
        assert set(found) <= set(IDS)
        assert stage.world.now - began < 5

    play(scenario)


def test_calls_follow_a_leader_that_moves() -> None:
    async def scenario(stage: Stage) -> None:
        cluster, admin = stage.world.cluster, stage.admin
        before = raised(await admin.describe_producers(TPS))
        hanging = await stage.hanging()
        for tp in TPS:
            cluster.move_leader(*tp)
        assert raised(await admin.describe_producers(TPS)) == before
        assert await stage.hanging() == hanging
        for tp in TPS:
            cluster.move_leader(*tp)
        await admin.abort_transaction(hanging)
        assert await admin.find_hanging_transactions(topic="t") == ()

    play(scenario)


def test_an_id_fails_alone_while_its_transaction_cannot_end() -> None:
    async def scenario(stage: Stage) -> None:
        with stage.world.cluster.hold_markers("b"):
            results = await stage.admin.fence_producers(IDS, timeout=5)
            assert list(results.succeeded) == ["a", "c"]
            late = results.errors["b"]
            assert isinstance(late, ApiTimeoutError)
            assert isinstance(late.__cause__, ConcurrentTransactionsError)
            described = raised(await stage.admin.describe_transactions(["b"]))["b"]
            assert (described.state, described.partitions) == ("PrepareAbort", {TPS[1]})
            waiting = asyncio.create_task(stage.admin.force_terminate_transaction("b"))
            await asyncio.sleep(5)
            assert not waiting.done()
        await waiting

    play(scenario)


def test_a_coordinator_that_is_loading_is_waited_for() -> None:
    async def scenario(stage: Stage) -> None:
        with stage.world.cluster.hold_transaction_loading("b"):
            late = (await stage.admin.describe_transactions(IDS, timeout=5)).errors
            assert list(late) == ["b"]
            assert isinstance(late["b"].__cause__, CoordinatorLoadInProgressError)
            with pytest.raises(ApiTimeoutError):
                await stage.admin.list_transactions(timeout=5)
            listing = asyncio.create_task(stage.admin.list_transactions())
            await asyncio.sleep(5)
            assert not listing.done()
        assert list(await listing) == IDS

    play(scenario)


@pytest.mark.parametrize(
    ("name", "api", "error"),
    [
        ("describe_transactions", ApiKey.DESCRIBE_TRANSACTIONS, TransactionalIdAuthorizationError),
        ("fence_producers", ApiKey.INIT_PRODUCER_ID, TransactionalIdAuthorizationError),
        ("force_terminate_transaction", ApiKey.INIT_PRODUCER_ID, ClusterAuthorizationError),
        ("abort_transaction", ApiKey.WRITE_TXN_MARKERS, ClusterAuthorizationError),
    ],
)
def test_a_final_error_is_returned_at_once(name: str, api: ApiKey, error: type[KafkaError]) -> None:
    async def scenario(stage: Stage) -> None:
        fault = stage.world.cluster.fail(api, error)
        with pytest.raises(error):
            raised(await CALLS[name](stage.admin))
        assert fault.hits <= len(IDS)

    play(scenario)


@pytest.mark.parametrize(
    ("offered", "arguments", "text"),
    [
        ((0, 1), {"pattern": "a.*"}, r"list_transactions\(pattern=\) needs .* 4\.1"),
        ((0, 0), {"older_than_ms": 0}, r"list_transactions\(older_than_ms=\) needs .* 3\.8"),
        (None, {}, "ListTransactions"),
    ],
)
def test_an_argument_that_a_broker_lacks_raises(
    offered: Any, arguments: dict[str, Any], text: str
) -> None:
    async def run(world: World) -> None:
        world.cluster.limit_versions({ApiKey.LIST_TRANSACTIONS: offered}, broker=2)
        async with Admin(**world.options()) as admin:
            with pytest.raises(UnsupportedVersionError, match=text):
                await admin.list_transactions(**arguments)
            if offered is not None:
                assert await admin.list_transactions(states=["Ongoing"]) == {}

    simulate(run, brokers=3)


@pytest.mark.fault(35)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_can_be_cancelled_at_every_suspension(
    name: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Afterwards the same call succeeds, and no task or connection is left."""

    def interrupted(suspension: int) -> Interrupted:
        outcomes: list[Interrupted] = []

        async def scenario(stage: Stage) -> None:
            call = CALLS[name](stage.admin)
            outcomes.append(await interrupt(call, way=way, suspension=suspension))
            raised(await CALLS[name](stage.admin))

        play(scenario)
        return outcomes[0]

    most = 0
    for suspension in range(1, 1_000):
        outcome = interrupted(suspension)
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            assert outcome.error is None
            break
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {most} suspensions, each cancelled by {way}'s cancellation ")
    assert most > 0
