"""Tests that the garbage collector visits neither large responses nor the data kept from them."""

import gc
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from aiokclient import _native
from aiokclient.cluster.metadata.listing import PART, by_name
from aiokclient.cluster.metadata.snapshot import ClusterMetadata, hinted, merged
from aiokclient.memory import MANY, free_slowly
from aiokclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokclient.protocol.wanted_topics import WantedTopicsRequest

VERSION = 12
native = pytest.mark.skipif(not _native.in_use(), reason="the native modules are not in use")


def encoded(topics: int, partitions: int) -> bytes:
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=9)],
        topics=[
            MetadataResponseTopic(
                name=f"t{number}",
                topic_id=UUID(int=number + 1),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )
    return b"".join(map(bytes, response.encode(VERSION)))


def objects(item: Any) -> Iterator[Any]:
    """Yield an object of a response or a snapshot with all that it contains."""
    yield item
    if isinstance(item, (list, tuple)):
        inner = list(item)
    else:
        fields = getattr(type(item), "_fields", ())
        inner = [getattr(item, field.name) for field in fields]
    for each in inner:
        yield from objects(each)


@native
@pytest.mark.parametrize("request_class", [MetadataRequest, WantedTopicsRequest])
@pytest.mark.parametrize(("topics", "partitions"), [(MANY, 2), (1, MANY)])
def test_collector_knows_nothing_of_a_response_when_it_has_very_many_structs(
    request_class: Any, topics: int, partitions: int
) -> None:
    request = (
        MetadataRequest(topics=None)
        if request_class is MetadataRequest
        else (WantedTopicsRequest(None))
    )
    response, _ = request.read_response(encoded(topics, partitions), 0, VERSION)
    many = response.topics if topics >= MANY else response.topics[0].partitions
    assert not any(map(gc.is_tracked, objects(many)))
    few, _ = request.read_response(encoded(3, 2), 0, VERSION)
    assert gc.is_tracked(few.topics[0])


@native
def test_collector_knows_nothing_of_a_snapshots_topics() -> None:
    response = MetadataResponse.decode(encoded(20, 3), VERSION)
    snapshot = merged(ClusterMetadata(), response, complete=True)
    changed = hinted(snapshot, "t3", 1, 1, 7)
    for each in (snapshot, changed):
        assert not gc.is_tracked(each.topics)
        assert not gc.is_tracked(each.names)
    assert not any(map(gc.is_tracked, objects(list(snapshot.topics.values())[3])))


def test_snapshot_stays_the_same_when_a_response_says_nothing_new() -> None:
    response = MetadataResponse.decode(encoded(20, 3), VERSION)
    snapshot = merged(ClusterMetadata(), response, complete=True)
    assert merged(snapshot, response, complete=True) is snapshot
    response.topics[4].partitions[0].leader_epoch = 9
    changed = merged(snapshot, response, complete=True)
    assert changed.version == snapshot.version + 1
    assert changed.find_leader_epoch("t4", 0) == 9
    del response.topics[4]
    assert "t4" not in merged(changed, response, complete=True).topics
    assert "t4" in merged(changed, response, complete=False).topics


async def test_topics_are_listed_by_name_when_there_are_very_many() -> None:
    response = MetadataResponse.decode(encoded(2 * PART + 5, 1), VERSION)
    response.topics.reverse()
    response.topics[0].is_internal = True
    internal = response.topics[0].name
    topics = list(response.topics)
    found = await by_name(
        response.topics, lambda topic: None if topic.is_internal else topic.topic_id
    )
    assert list(found) == sorted(topic.name for topic in topics if topic.name != internal)
    assert found["t7"] == UUID(int=8)
    assert response.topics == []
    assert len(await by_name(topics, lambda topic: topic)) == 2 * PART + 5


def test_list_is_empty_after_it_was_freed_slowly() -> None:
    items = list(range(1_000))
    free_slowly(items)
    assert items == []
