"""Each public call that waits says at its deadline what the brokers have answered last.

One table has the calls, each with the request that does not succeed. The broker refuses the
request each time, or never answers it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import pytest
from thinned import one_in
from world import World, simulate

from aiokclient import (
    Admin,
    Broker,
    ConfigResource,
    Coordinator,
    GroupMetadata,
    NewTopic,
    TopicPartition,
)
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DeliveryTimeoutError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    TransactionAbortableError,
)
from aiokclient.protocol import ApiKey, messages

TP = TopicPartition("t", 0)
LIMITS: dict[str, Any] = {"default_api_timeout_ms": 6000, "request_timeout_ms": 2000}
SENDING: dict[str, Any] = {**LIMITS, "delivery_timeout_ms": 6000, "on_delivery_error": id}
REFUSED = {"request_refused", "batch_retried"}

DESCRIPTION = messages.DescribeGroupsRequest(groups=["g"])
LOADING, UNKNOWN = CoordinatorLoadInProgressError, CoordinatorNotAvailableError
MOVED, ELSEWHERE, BEHIND = NotLeaderOrFollowerError, NotControllerError, NotEnoughReplicasError

Setup: TypeAlias = Callable[[World], AbstractAsyncContextManager[Any]]


class Case(NamedTuple):
    """A call on what `setup` yields, and the request that does not succeed during it."""

    setup: Setup
    call: Callable[[Any], Awaitable[Any]]
    api: ApiKey
    refusal: type[KafkaError]
    raised: type[KafkaError] = ApiTimeoutError
    level: int = 2
    """The level of transaction.version."""


@asynccontextmanager
async def the_world(world: World) -> AsyncGenerator[World, None]:
    yield world


@asynccontextmanager
async def a_member(world: World) -> AsyncGenerator[Any, None]:
    async with world.consumer("t", group_id="g", **LIMITS) as consumer:
        await consumer.get(timeout=5)
        yield consumer


def assigning(**options: Any) -> Setup:
    @asynccontextmanager
    async def setup(world: World) -> AsyncGenerator[Any, None]:
        async with world.consumer(**LIMITS, **options) as consumer:
            consumer.assign([TP])
            yield consumer

    return setup


a_reader, a_committer = assigning(), assigning(group_id="g")


@asynccontextmanager
async def a_producer(world: World) -> AsyncGenerator[Any, None]:
    async with world.producer(**SENDING) as producer:
        await producer.send("t", b"first")
        yield producer


def transactional(*, sends: bool = True) -> Setup:
    @asynccontextmanager
    async def setup(world: World) -> AsyncGenerator[Any, None]:
        producer = world.producer(transactional_id="x", **SENDING)
        await producer.start()
        try:
            await producer.begin_transaction()
            if sends:
                await producer.send("t", b"v")
            yield producer
        finally:
            world.cluster.reset()
            await producer.close(20)

    return setup


in_transaction, in_empty_transaction = transactional(), transactional(sends=False)


@asynccontextmanager
async def a_client(world: World) -> AsyncGenerator[Any, None]:
    async with world.client(**LIMITS) as client:
        yield client


@asynccontextmanager
async def an_admin(world: World) -> AsyncGenerator[Any, None]:
    async with Admin(**world.options(**LIMITS)) as admin:
        yield admin


async def exhaust(records: Any) -> None:
    async for _ in records:
        pass


async def read_new_group(world: World, **options: Any) -> None:
    consumer = world.consumer("t", group_id="g", **LIMITS, **options)
    try:
        await consumer.start(wait=False)
        await exhaust(consumer.until_end())
    finally:
        await consumer.close(1)


async def begin_while_it_starts(world: World) -> None:
    producer = world.producer(transactional_id="x", **SENDING)
    try:
        await producer.start(wait=False)
        await producer.begin_transaction()
    finally:
        await producer.close(1)


async def start_transactional(world: World) -> None:
    producer = world.producer(transactional_id="x", **SENDING)
    try:
        await producer.start()
    finally:
        await producer.close(1)


async def begin_after_abort(producer: Any) -> None:
    await producer.abort_transaction(timeout=2)
    await producer.begin_transaction()


async def send_first(world: World) -> None:
    async with world.producer(**SENDING) as producer:
        await producer.send("t", b"v")


async def send(producer: Any) -> None:
    await producer.send("t", b"v")


def then(call: str, **options: Any) -> Callable[[Any], Awaitable[Any]]:
    """Return a call that sends a record and then ends the transaction."""

    async def send_and_end(producer: Any) -> None:
        producer.send("t", b"w")
        await getattr(producer, call)(**options)

    return send_and_end


async def detach(producer: Any) -> None:
    producer.send("t", b"w")
    await producer.last_transaction.detach()


async def send_offsets(producer: Any) -> None:
    await producer.send_offsets_to_transaction({TP: 1}, GroupMetadata("g"))


async def raised_of(results: Awaitable[Any]) -> None:
    (await results).raise_for_errors()


def of_admin(name: str, *arguments: Any, api: ApiKey, refusal: type[KafkaError]) -> Case:
    async def call(admin: Any) -> None:
        results = await getattr(admin, name)(*arguments)
        results.raise_for_errors()

    return Case(an_admin, call, api, refusal)


CONSUMERS = {
    "commit": Case(a_member, lambda c: c.commit({TP: 1}), ApiKey.OFFSET_COMMIT, LOADING),
    "commit, search": Case(
        a_committer, lambda c: c.commit({TP: 1}), ApiKey.FIND_COORDINATOR, UNKNOWN
    ),
    "committed": Case(a_committer, lambda c: c.committed([TP]), ApiKey.OFFSET_FETCH, LOADING),
    "position": Case(a_reader, lambda c: c.position(TP), ApiKey.LIST_OFFSETS, MOVED),
    "position, group": Case(a_committer, lambda c: c.position(TP), ApiKey.OFFSET_FETCH, LOADING),
    "beginning": Case(a_reader, lambda c: c.beginning_offsets([TP]), ApiKey.LIST_OFFSETS, MOVED),
    "end": Case(a_reader, lambda c: c.end_offsets([TP]), ApiKey.LIST_OFFSETS, MOVED),
    "times": Case(
        a_reader,
        lambda c: c.offsets_for_times({TP: 5}),
        ApiKey.LIST_OFFSETS,
        OffsetNotAvailableError,
    ),
    "lag": Case(a_member, lambda c: c.lag([TP]), ApiKey.LIST_OFFSETS, MOVED),
    "rewind, describe": Case(
        a_member, lambda c: c.rewind_group({TP: 0}), ApiKey.DESCRIBE_GROUPS, LOADING
    ),
    "rewind, fetch": Case(
        a_member, lambda c: c.rewind_group({TP: 0}), ApiKey.OFFSET_FETCH, LOADING
    ),
    "rewind, commit": Case(
        a_member, lambda c: c.rewind_group({TP: 0}), ApiKey.OFFSET_COMMIT, LOADING
    ),
    "until_end": Case(a_member, lambda c: exhaust(c.until_end()), ApiKey.LIST_OFFSETS, MOVED),
    "until_end, search": Case(the_world, read_new_group, ApiKey.FIND_COORDINATOR, UNKNOWN),
    "until_end, join": Case(the_world, read_new_group, ApiKey.JOIN_GROUP, LOADING),
    "until_end, sync": Case(the_world, read_new_group, ApiKey.SYNC_GROUP, LOADING),
    "until_end, heartbeat": Case(
        the_world,
        lambda world: read_new_group(world, group_protocol="consumer"),
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        LOADING,
    ),
    "read_range": Case(a_client, lambda c: exhaust(c.read_range(TP, 0, 5)), ApiKey.FETCH, MOVED),
    "read_range, start": Case(
        a_client, lambda c: exhaust(c.read_range(TP, 0, 5)), ApiKey.LIST_OFFSETS, MOVED
    ),
}
PRODUCERS = {
    "send": Case(a_producer, send, ApiKey.PRODUCE, BEHIND, DeliveryTimeoutError),
    "send_and_wait": Case(
        a_producer,
        lambda p: p.send_and_wait("t", b"v"),
        ApiKey.PRODUCE,
        BEHIND,
        DeliveryTimeoutError,
    ),
    "send_all": Case(
        a_producer, lambda p: p.send_all("t", [b"v"]), ApiKey.PRODUCE, BEHIND, DeliveryTimeoutError
    ),
    "send, id": Case(the_world, send_first, ApiKey.INIT_PRODUCER_ID, LOADING, DeliveryTimeoutError),
}
TRANSACTIONS = {
    "start": Case(the_world, start_transactional, ApiKey.INIT_PRODUCER_ID, LOADING, BootstrapError),
    "start, search": Case(
        the_world, start_transactional, ApiKey.FIND_COORDINATOR, UNKNOWN, BootstrapError
    ),
    "begin": Case(the_world, begin_while_it_starts, ApiKey.INIT_PRODUCER_ID, LOADING),
    "begin, search": Case(the_world, begin_while_it_starts, ApiKey.FIND_COORDINATOR, UNKNOWN),
    "begin after an abort": Case(in_transaction, begin_after_abort, ApiKey.END_TXN, LOADING),
    "send, add": Case(in_empty_transaction, send, ApiKey.ADD_PARTITIONS_TO_TXN, LOADING, level=1),
    "send": Case(in_transaction, send, ApiKey.PRODUCE, BEHIND),
    "offsets": Case(in_transaction, send_offsets, ApiKey.TXN_OFFSET_COMMIT, LOADING),
    "offsets, search": Case(in_transaction, send_offsets, ApiKey.FIND_COORDINATOR, UNKNOWN),
    "offsets, add": Case(in_transaction, send_offsets, ApiKey.ADD_OFFSETS_TO_TXN, LOADING, level=1),
    "commit": Case(in_transaction, lambda p: p.commit_transaction(), ApiKey.END_TXN, LOADING),
    "commit, records": Case(in_transaction, then("commit_transaction"), ApiKey.PRODUCE, BEHIND),
    "commit, flush": Case(
        in_transaction, then("commit_transaction", timeout=4), ApiKey.PRODUCE, BEHIND
    ),
    "commit, add": Case(
        in_empty_transaction,
        then("commit_transaction", timeout=4),
        ApiKey.ADD_PARTITIONS_TO_TXN,
        LOADING,
        level=1,
    ),
    "restart": Case(in_transaction, lambda p: p.restart(), ApiKey.INIT_PRODUCER_ID, LOADING),
    "detach": Case(in_transaction, detach, ApiKey.PRODUCE, BEHIND),
}
ADMINS = {
    "request": Case(
        a_client,
        lambda c: c.request(messages.ListGroupsRequest(), Broker(1)),
        ApiKey.LIST_GROUPS,
        LOADING,
    ),
    "request, search": Case(
        a_client,
        lambda c: c.request(
            messages.DescribeGroupsRequest(groups=["g"]), Coordinator("group", "g")
        ),
        ApiKey.FIND_COORDINATOR,
        UNKNOWN,
    ),
    "offsets": of_admin(
        "list_consumer_group_offsets", ["g"], api=ApiKey.OFFSET_FETCH, refusal=LOADING
    ),
    "alter offsets": of_admin(
        "alter_consumer_group_offsets", "g", {TP: 0}, api=ApiKey.OFFSET_COMMIT, refusal=LOADING
    ),
    "describe groups": of_admin(
        "describe_groups", ["g"], api=ApiKey.DESCRIBE_GROUPS, refusal=LOADING
    ),
    "group lag": of_admin("group_lag", ["g"], api=ApiKey.FIND_COORDINATOR, refusal=UNKNOWN),
    "reset offsets": of_admin(
        "reset_offsets", "g", {TP: 1}, api=ApiKey.OFFSET_COMMIT, refusal=LOADING
    ),
    "reset offsets, group": of_admin(
        "reset_offsets", "g", {TP: 1}, api=ApiKey.DESCRIBE_GROUPS, refusal=LOADING
    ),
    "reset offsets, ends": of_admin(
        "reset_offsets", "g", {TP: 1}, api=ApiKey.LIST_OFFSETS, refusal=MOVED
    ),
    "copy offsets": of_admin("copy_offsets", "g", "h", api=ApiKey.DESCRIBE_GROUPS, refusal=LOADING),
    "ensure topics": of_admin(
        "ensure_topics", [NewTopic("n", 1)], api=ApiKey.CREATE_TOPICS, refusal=ELSEWHERE
    ),
    "list offsets": of_admin("list_offsets", {TP: 0}, api=ApiKey.LIST_OFFSETS, refusal=MOVED),
    "delete records": of_admin("delete_records", {TP: 1}, api=ApiKey.DELETE_RECORDS, refusal=MOVED),
    "describe producers": of_admin(
        "describe_producers", [TP], api=ApiKey.DESCRIBE_PRODUCERS, refusal=MOVED
    ),
    "create topics": of_admin(
        "create_topics", [NewTopic("n", 1)], api=ApiKey.CREATE_TOPICS, refusal=ELSEWHERE
    ),
    "create partitions": of_admin(
        "create_partitions", {"t": 3}, api=ApiKey.CREATE_PARTITIONS, refusal=ELSEWHERE
    ),
    "describe topics": of_admin(
        "describe_topics", ["t"], api=ApiKey.METADATA, refusal=LeaderNotAvailableError
    ),
    "describe configs": of_admin(
        "describe_configs",
        [ConfigResource.topic("t")],
        api=ApiKey.DESCRIBE_CONFIGS,
        refusal=ELSEWHERE,
    ),
    "fence producers": of_admin(
        "fence_producers",
        ["x"],
        api=ApiKey.INIT_PRODUCER_ID,
        refusal=ConcurrentTransactionsError,
    ),
    "describe cluster": Case(
        an_admin, lambda a: a.describe_cluster(), ApiKey.DESCRIBE_CLUSTER, ELSEWHERE
    ),
    "rebalance plan": Case(
        an_admin, lambda a: a.rebalance_plan(), ApiKey.DESCRIBE_CLUSTER, ELSEWHERE
    ),
    "list groups": Case(an_admin, lambda a: a.list_groups(), ApiKey.LIST_GROUPS, LOADING),
    "list transactions": Case(
        an_admin, lambda a: a.list_transactions(), ApiKey.LIST_TRANSACTIONS, LOADING
    ),
}
CASES = {
    **{f"consumer: {name}": case for name, case in CONSUMERS.items()},
    **{f"producer: {name}": case for name, case in PRODUCERS.items()},
    **{
        f"transaction: {name}": case
        if case.raised is BootstrapError
        else case._replace(raised=TransactionAbortableError)
        for name, case in TRANSACTIONS.items()
    },
    **{f"admin: {name}": case for name, case in ADMINS.items()},
}


def error_of(case: Case, fault: Callable[[World], Any]) -> KafkaError:
    """Return the error of the call, during which the fault applies."""

    async def scenario(world: World) -> KafkaError:
        world.cluster.produce("t", [b"a", b"b"])
        async with case.setup(world) as subject:
            fault(world)
            began = world.now
            try:
                with pytest.raises(KafkaError) as raised:
                    await case.call(subject)
                assert world.now - began <= 9.5
            finally:
                world.cluster.reset()
        return raised.value

    return simulate(scenario, transaction_version=case.level)


def has_no_doubt(case: Case, name: str) -> bool:
    """Return whether the error of a call must say that its record was not written."""
    about_records = {ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN}
    if case.raised is DeliveryTimeoutError:
        return True
    # A commit with a timeout of its own says nothing about single records.
    return case.api in about_records and not name.endswith(("flush", "commit, add"))


@pytest.mark.parametrize("name", one_in(3, list(CASES)))
def test_error_of_a_call_that_is_refused_each_time_has_the_refusal(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]
    caplog.set_level(logging.INFO, "aiokclient")
    error = error_of(case, lambda world: world.cluster.fail(case.api, case.refusal))
    assert isinstance(error, case.raised)
    assert isinstance(error.__cause__, case.refusal), repr(error.__cause__)
    assert f"{case.refusal.name} ({case.refusal.code})" in str(error)
    assert ("not written" in str(error)) == has_no_doubt(case, name)
    told = [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and str(case.refusal.name) in record.getMessage()
    ]
    events = [getattr(record, "event", "") for record in told]
    # Positions are looked up in the background, which has a line of its own.
    assert len([event for event in events if event in REFUSED]) <= 1, events
    assert 1 <= len(events) <= 2, events
    assert len(set(events)) == len(events), events


@pytest.mark.parametrize("name", one_in(3, list(CASES), 1))
def test_error_of_a_call_that_is_never_answered_says_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]
    caplog.set_level(logging.INFO, "aiokclient")
    error = error_of(case, lambda world: world.cluster.delay(case.api, 600))
    assert isinstance(error, case.raised)
    assert (
        "answer" in str(error)
        or "no successful response" in str(error)
        or ("no response" in str(error))
    )
    # A broker that has not answered has not refused anything.
    assert "(13)" not in str(error)
    refused = [r for r in caplog.records if getattr(r, "event", "") in REFUSED]
    assert all("lost" in record.getMessage() for record in refused), refused


@pytest.mark.parametrize("name", one_in(3, list(CASES), 2))
def test_refusal_outlives_the_silence_of_all_brokers(name: str) -> None:
    case = CASES[name]

    def fault(world: World) -> None:
        world.cluster.fail(case.api, case.refusal)

        async def go_silent() -> None:
            await asyncio.sleep(2.5)
            world.cluster.pause(1)
            await asyncio.sleep(7)
            world.cluster.resume(1)

        silences.append(asyncio.ensure_future(go_silent()))

    silences: list[asyncio.Future[None]] = []

    async def call(subject: Any) -> None:
        try:
            await case.call(subject)
        finally:
            await silences[0]

    error = error_of(case._replace(call=call), fault)
    assert isinstance(error, case.raised)
    assert isinstance(error.__cause__, case.refusal), repr(error.__cause__)
    assert str(case.refusal.name) in str(error)


def warnings(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    records = [r for r in caplog.records if getattr(r, "event", "") == event]
    return [r.getMessage() for r in records if r.levelno == logging.WARNING]


def test_line_about_records_whose_connection_is_reset_says_that_it_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**SENDING) as producer:
            await producer.send("t", b"first")
            world.cluster.drop(ApiKey.PRODUCE)
            with pytest.raises(DeliveryTimeoutError, match="may have been written") as raised:
                await producer.send("t", b"v")
            assert "NETWORK_EXCEPTION" not in str(raised.value)
            assert "The last error: DisconnectedError: " in str(raised.value)

    caplog.set_level(logging.INFO, "aiokclient")
    simulate(scenario)
    (line,) = warnings(caplog, "batch_retried")
    assert "The connection to broker 1 was lost before it acknowledged records for t-0" in line
    assert "NETWORK_EXCEPTION" not in line
    assert "refuses" not in line


@pytest.mark.parametrize(("refusal", "lines"), [(UNKNOWN, 0), (LOADING, 1)])
def test_search_of_a_coordinator_that_a_new_cluster_refuses_at_first_is_quiet(
    refusal: type[KafkaError], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A new cluster creates its internal topics when a coordinator is first searched for."""

    async def scenario(world: World) -> None:
        world.cluster.fail(ApiKey.FIND_COORDINATOR, refusal, times=3)
        async with world.consumer("t", group_id="g") as consumer:
            await consumer.get(timeout=1)
        # Each search has a second of its own.
        await asyncio.sleep(60)
        world.cluster.fail(ApiKey.FIND_COORDINATOR, refusal, times=3)
        async with world.consumer("t", group_id="g") as consumer:
            await consumer.get(timeout=1)
        world.cluster.fail(ApiKey.FIND_COORDINATOR, refusal, times=2)
        async with world.producer(transactional_id="x") as producer, producer.transaction() as tx:
            tx.send("t", b"v")

    caplog.set_level(logging.INFO, "aiokclient")
    simulate(scenario)
    assert len(warnings(caplog, "request_refused")) == 3 * lines


JOINS = {
    "JoinGroup": (ApiKey.JOIN_GROUP, "classic"),
    "SyncGroup": (ApiKey.SYNC_GROUP, "classic"),
    "ConsumerGroupHeartbeat": (ApiKey.CONSUMER_GROUP_HEARTBEAT, "consumer"),
}


@pytest.mark.parametrize("name", JOINS)
def test_reason_of_a_rebalance_names_the_request_that_has_no_answer(name: str) -> None:
    api, protocol = JOINS[name]

    async def scenario(world: World) -> None:
        options: dict[str, Any] = {**LIMITS, "group_id": "g", "group_protocol": protocol}
        async with world.consumer("t", **options) as other:
            await other.get(timeout=5)

            def is_new(message: Any) -> bool:
                member_id = other.group_metadata().member_id
                return bool(message.member_id) and message.member_id != member_id

            world.cluster.delay(api, 600, where=is_new)
            late = world.consumer("t", **options)
            await late.start()
            await asyncio.sleep(12)
            (reason,) = [r for r in late.health().reasons if r.startswith("rebalancing for ")]
            silence = re.search(rf"broker 1 has not answered {name} for (\d+) s", reason)
            assert silence is not None, reason
            assert int(silence[1]) >= 8
            # The other member is the leader, and has taken part.
            assert "the coordinator describes the group as Stable" in reason
            world.cluster.reset()
            world.cluster.disconnect()
            await asyncio.sleep(10)
            assert not any("has not answered" in r for r in late.health().reasons)
            await late.close()

    simulate(scenario, topics={"t": 2})
