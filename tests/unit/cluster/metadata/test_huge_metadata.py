"""Tests of metadata responses with very many topics or brokers, requested or not."""

import functools
import re
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loop_time import check_held, held_times, measured
from scripted import ScriptedBroker, response_frame

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer, threads
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import listing, updater
from aiokclient.cluster.metadata.snapshot import PartitionInfo
from aiokclient.errors import RebootstrapRequiredError
from aiokclient.network import connection as connections
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokclient.protocol.primitives import write_uvarint
from aiokclient.protocol.wanted_topics import WantedTopicsRequest

Open = Callable[..., Awaitable[ClusterClient]]
VERSION = 12
MANY = 100_000
NAME = b"t%07d"


@functools.cache
def many_topics(count: int = MANY) -> bytes:
    """Return `count` encoded topics, named from t0000000 on, with one partition each."""
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=1)
    topic = MetadataResponseTopic(name="NNNNNNNN", partitions=[partition])
    whole = b"".join(map(bytes, MetadataResponse(topics=[topic]).encode(VERSION)))
    bare = b"".join(map(bytes, MetadataResponse(topics=[]).encode(VERSION)))
    element = whole[-(len(whole) - len(bare)) - 1 : -1]
    before, after = element.split(b"NNNNNNNN")
    return b"".join(before + NAME % number + after for number in range(count))


def nodes(port: int, count: int) -> list[MetadataResponseBroker]:
    """Return `count` brokers, the first of them at this port."""
    return [
        MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port if number == 1 else 1)
        for number in range(1, count + 1)
    ]


def serve(broker: ScriptedBroker, count: int = MANY, brokers: int = 1) -> None:
    """Answer every Metadata request with this number of topics and brokers."""
    response = MetadataResponse(brokers=nodes(broker.port, brokers), cluster_id="c")
    bare = response_frame(0, response, VERSION)
    number = bytearray()
    write_uvarint(number, count + 1)
    body = bare[8:-2] + number + many_topics(count) + b"\0"

    def metadata(request: Any, version: int) -> Any:
        assert version == VERSION
        correlation_id = broker.seen[-1].header.correlation_id
        return struct.pack(">ii", len(body) + 4, correlation_id) + body

    broker.handlers[ApiKey.METADATA] = metadata


@measured
async def test_unrequested_topics_are_dropped_when_a_response_has_very_many(
    broker: ScriptedBroker, open_client: Open
) -> None:
    serve(broker)
    many_topics()
    with held_times() as times:
        client = await open_client()
        assert not client.metadata.topics
        found = await client.updater.refresh(["t0000007", "missing"], timeout=60)
        assert list(found.topics) == ["t0000007"]
        assert found.find_leader("t0000007", 0) == 1
    check_held(times)


@measured
async def test_topics_that_match_are_kept_when_all_are_read(
    broker: ScriptedBroker, open_client: Open
) -> None:
    serve(broker)
    client = await open_client()
    client.updater.want_topic("t0000001", "one")
    client.updater.want_all("two", re.compile("t000012.").fullmatch)  # type: ignore[arg-type]
    client.updater.want_all("three", lambda name: name == "t0000005")
    with held_times() as times:
        found = await client.updater.refresh(timeout=60)
        await client.updater.refresh(["t0000009"], timeout=60)
    expected = ["t0000001", "t0000005", *(f"t000012{digit}" for digit in range(10))]
    assert list(found.topics) == expected
    check_held(times)


async def test_a_response_is_used_when_its_decoding_outlasts_the_request_timeout(
    broker: ScriptedBroker, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = threads.run

    def run_slowly(work: Callable[..., Any], *args: Any) -> Any:
        return run(lambda: (time.sleep(1.5), work(*args))[1])

    serve(broker)
    many_topics()
    monkeypatch.setattr(connections.threads, "run", run_slowly)
    client = await open_client(request_timeout_ms=1000, default_api_timeout_ms=60_000)
    found = await client.updater.refresh(["t0000007"], timeout=60)
    assert found.find_leader("t0000007", 0) == 1
    assert broker.opened == 1
    assert broker.count(ApiKey.METADATA) == 2


@measured
async def test_the_loop_is_not_blocked_when_the_cluster_has_very_many_brokers(
    broker: ScriptedBroker, open_client: Open
) -> None:
    serve(broker, 1, brokers=60_000)
    with held_times(collecting=False) as times:
        client = await open_client()
        await client.updater.refresh(["t0000000"], timeout=60)
    assert len(client.metadata.brokers) == 60_000
    assert client.brokers.any_connected
    check_held(times)


@measured
async def test_the_loop_is_not_blocked_when_such_a_client_rebootstraps(
    broker: ScriptedBroker, open_client: Open
) -> None:
    response = MetadataResponse(brokers=nodes(broker.port, 90_000), cluster_id="c")
    body = response_frame(0, response, 13)[8:]
    refusals = [False]

    def metadata(request: Any, version: int) -> Any:
        if refusals[0]:
            refusals[0] = False
            return MetadataResponse(error_code=RebootstrapRequiredError.code)
        correlation_id = broker.seen[-1].header.correlation_id
        return struct.pack(">ii", len(body) + 4, correlation_id) + body

    broker.versions[ApiKey.METADATA] = (0, 13)
    broker.handlers[ApiKey.METADATA] = metadata
    client = await open_client()
    refusals[0] = True
    with held_times(collecting=False) as times:
        await client.updater.refresh(timeout=60)
    assert broker.count(ApiKey.METADATA) == 4
    assert broker.opened == 2
    check_held(times)


@measured
async def test_a_pattern_selects_its_topics_among_very_many(
    broker: ScriptedBroker,
) -> None:
    serve(broker)
    consumer: Consumer[Any, Any] = Consumer(bootstrap_servers=broker.address)
    consumer.subscribe(re.compile("t000001[0-9]"))
    with held_times() as times:
        await consumer.start()
        assert len(consumer.assignment()) == 10
        await consumer.close()
    check_held(times)


async def test_updates_wait_when_a_merge_was_restarted_too_often(
    broker: ScriptedBroker, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updater, "LARGE", 0)
    serve(broker, 10)
    client = await open_client()
    client.updater.want_all("all")
    await client.updater.refresh(timeout=60)
    real, epochs = updater.merged, iter(range(2, 100))
    run = updater.threads.run

    def run_and_hint(function: Any) -> Any:
        if function.func is real:
            assert client.updater.apply_hint("t0000003", 0, 1, next(epochs))
        return run(function)

    monkeypatch.setattr(updater.threads, "run", run_and_hint)
    found = await client.updater.refresh(timeout=60)
    assert found.find_leader_epoch("t0000003", 0) == 1 + updater.TRIES + 1


@pytest.mark.parametrize("version", range(14))
def test_wanted_topics_are_those_of_the_whole_response_in_every_version(version: int) -> None:
    partitions = [MetadataResponsePartition(partition_index=0, replica_nodes=[1, 2])]
    topics = [MetadataResponseTopic(name=f"t{n}", partitions=partitions) for n in range(5)]
    node = MetadataResponseBroker(node_id=1, host="h", port=9)
    whole = MetadataResponse(brokers=[node], topics=topics, cluster_id="c", controller_id=1)
    data = b"".join(map(bytes, whole.encode(version)))
    expected = MetadataResponse.decode(data, version)
    request = WantedTopicsRequest(["t3", "t1", "t9"])
    found, position = request.read_response(data, 0, version)
    assert position == len(data)
    expected.topics = [expected.topics[1], expected.topics[3]]
    assert found == expected
    assert WantedTopicsRequest(None).read_response(data, 0, version)[0].topics[4].name == "t4"
    plain = MetadataResponse.request_class(topics=request.topics, allow_auto_topic_creation=False)
    if version >= 4:
        assert request.encode(version) == plain.encode(version)


@measured
async def test_producer_is_prepared_when_the_broker_names_very_many_topics(
    broker: ScriptedBroker,
) -> None:
    serve(broker)
    with held_times() as times:
        async with Producer(bootstrap_servers=broker.address, enable_idempotence=False) as producer:
            await producer.prepare("t0000001")
    check_held(times)


@measured
async def test_calls_that_read_very_many_topics_do_not_block_the_loop(
    broker: ScriptedBroker,
) -> None:
    serve(broker)
    many_topics()
    del broker.versions[ApiKey.DESCRIBE_CLUSTER]  # Without this API, the call uses the metadata.
    # The results are kept so that the test does not measure how long it takes to free them.
    found: list[Any] = []
    async with (
        Client(bootstrap_servers=broker.address) as client,
        Admin(client=client) as admin,
        Consumer[Any, Any](client=client) as consumer,
    ):
        some = ["t0000007", "t0000001"]
        every = MetadataRequest(topics=None)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: admin.list_topics(timeout=60),
            lambda: admin.describe_cluster(timeout=60),
            lambda: admin.describe_topics(some, timeout=60),
            lambda: consumer.list_topics(timeout=60),
            lambda: client.request(every, AnyBroker(), timeout=60),
        ]
        for call in calls:
            with held_times() as times:
                found.append(await call())
            check_held(times, what=f"call {calls.index(call)}")
    listed, described, topics, partitions, whole = found
    names = [(NAME % number).decode() for number in range(MANY)]
    assert list(listed) == list(partitions) == names
    assert [topic.name for topic in whole.topics] == names
    assert partitions["t0000007"] == (PartitionInfo(0, 1, 1),)
    assert [broker.node_id for broker in described.brokers] == [1]
    assert list(topics.raise_for_errors()) == some


def topic(name: str | None, error: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, error_code=error)


@pytest.mark.parametrize("count", [3, listing.PART + 3])
async def test_lists_of_topics_omit_unwanted_topics(count: int) -> None:
    names = [f"n{number:05}" for number in range(count)]
    topics = [topic(None), topic("refused", 29), *map(topic, reversed(names))]

    def name_of(one: MetadataResponseTopic) -> str | None:
        return None if one.error_code else one.name

    assert list(await listing.by_name(list(topics), name_of)) == names
    pairs = await listing.listed(topics, lambda one: None if one.error_code else (one.name, 1))
    assert pairs == dict.fromkeys([None, *names], 1)
    assert not topics
