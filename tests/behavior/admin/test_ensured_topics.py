"""Topics that must exist, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aiokclient import Admin, ConfigResource, NewTopic
from aiokclient.admin import EnsuredTopic, TopicDifference
from aiokclient.errors import (
    IllegalStateError,
    InvalidConfigError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)
from aiokclient.errors.local import ArgumentTypeError


@pytest.fixture
def name() -> str:
    return f"ensured-{uuid.uuid4().hex[:12]}"


async def exists(admin: Admin, name: str) -> bool:
    return name in await admin.list_topics()


async def known(admin: Admin, name: str) -> None:
    """Wait until the broker knows a topic that was created. The controller creates it before."""
    async with asyncio.timeout(60):
        while not await exists(admin, name):  # noqa: ASYNC110 - a real broker tells nobody
            await asyncio.sleep(0.02)


async def test_a_missing_topic_is_created_and_is_then_as_expected(admin: Admin, name: str) -> None:
    topic = NewTopic(name, 3, 1, {"retention.ms": 60_000, "cleanup.policy": "delete"})
    plan = (await admin.ensure_topics([topic], dry_run=True)).raise_for_errors()
    assert plan == {name: EnsuredTopic(True, None, 3, 1)}
    assert not await exists(admin, name)
    made = (await admin.ensure_topics([topic])).raise_for_errors()[name]
    assert made == EnsuredTopic(True, made.topic_id, 3, 1)
    await known(admin, name)
    described = (await admin.describe_topics([name])).raise_for_errors()[name]
    assert made.topic_id == described.topic_id
    for dry_run in (True, False):
        again = (await admin.ensure_topics([topic], dry_run=dry_run)).raise_for_errors()
        assert again == {name: EnsuredTopic(False, made.topic_id, 3, 1)}


async def test_what_differs_is_told_and_is_not_changed(admin: Admin, name: str) -> None:
    configs = {"retention.ms": 60_000, "cleanup.policy": "compact,delete"}
    (await admin.ensure_topics([NewTopic(name, 2, 1, configs)])).raise_for_errors()
    await known(admin, name)
    wanted = NewTopic(
        name,
        5,
        2,
        {
            "retention.ms": "61000",
            "cleanup.policy": "delete, compact",
            "min.cleanable.dirty.ratio": "0.50",
            "unclean.leader.election.enable": False,
            "max.message.bytes": 1000,
        },
    )
    found = (await admin.ensure_topics([wanted])).raise_for_errors()[name]
    assert (found.created, found.partitions, found.replication_factor) == (False, 2, 1)
    (bytes_difference,) = (each for each in found.differences if "bytes" in each.setting)
    assert found.differences == (
        TopicDifference("partitions", 5, 2),
        TopicDifference("replication_factor", 2, 1),
        TopicDifference("retention.ms", "61000", "60000"),
        TopicDifference("max.message.bytes", "1000", bytes_difference.actual),
    )
    assert found == (await admin.ensure_topics([wanted])).raise_for_errors()[name]
    entries = (await admin.describe_configs([ConfigResource.topic(name)])).raise_for_errors()
    assert entries[ConfigResource.topic(name)]["retention.ms"].value == "60000"
    # What is left to the defaults of the cluster is not compared.
    for vague in NewTopic(name), NewTopic(name, -1, -1), NewTopic(name, configs={}):
        found = (await admin.ensure_topics([vague])).raise_for_errors()[name]
        assert found.differences == ()
    fewer = (await admin.ensure_topics([NewTopic(name, 1)])).raise_for_errors()[name]
    assert fewer.differences == (TopicDifference("partitions", 1, 2),)


async def test_assignments_are_compared_with_the_replicas(admin: Admin, name: str) -> None:
    broker = (await admin.describe_cluster()).brokers[0].node_id
    placed = NewTopic(name, assignments={0: [broker], 1: [broker]})
    (await admin.ensure_topics([placed])).raise_for_errors()
    await known(admin, name)
    found = (await admin.ensure_topics([placed])).raise_for_errors()[name]
    assert found == EnsuredTopic(False, found.topic_id, 2, 1)
    other = NewTopic(name, assignments={0: [broker], 1: [broker + 77], 2: [broker]})
    found = (await admin.ensure_topics([other])).raise_for_errors()[name]
    assert found.differences == (
        TopicDifference("partitions", 3, 2),
        TopicDifference("assignments[1]", (broker + 77,), (broker,)),
    )


async def test_topics_that_cannot_be_ensured_have_errors_beside_the_others(
    admin: Admin, name: str
) -> None:
    existing, right = f"{name}-existing", f"{name}-right"
    (await admin.ensure_topics([NewTopic(existing, 1)])).raise_for_errors()
    await known(admin, existing)
    topics = [
        NewTopic(f"{name}-replicas", 1, 99),
        NewTopic(f"{name}-option", 1, 1, {"no.such.option": "1"}),
        NewTopic(existing, 1, 1, {"no.such.option": "1", "retention.ms": 5}),
        NewTopic("a topic", 1, 1),
        NewTopic(right, 1, 1),
    ]
    for dry_run in (True, False):
        results = await admin.ensure_topics(topics, dry_run=dry_run)
        assert list(results) == [topic.name for topic in topics]
        assert {key: type(error) for key, error in results.errors.items()} == {
            f"{name}-replicas": InvalidReplicationFactorError,
            f"{name}-option": InvalidConfigError,
            existing: InvalidConfigError,
            "a topic": InvalidTopicError,
        }
        assert "no.such.option" in str(results[existing])
        assert results.succeeded[right].created
        if dry_run:
            assert not await exists(admin, right)
        else:
            await known(admin, right)


async def test_a_topic_that_is_created_at_the_same_time_is_compared(
    admin: Admin, name: str
) -> None:
    calls = [
        admin.ensure_topics([NewTopic(name, partitions, 1, {"retention.ms": 60_000})])
        for partitions in (1, 2, 3, 4)
    ]
    found = [each.raise_for_errors()[name] for each in await asyncio.gather(*calls)]
    (created,) = (each for each in found if each.created)
    assert created.partitions is not None
    for expected, each in enumerate(found, 1):
        assert (each.partitions, each.topic_id) == (created.partitions, created.topic_id)
        assert each.differences == (
            ()
            if expected == created.partitions
            else (TopicDifference("partitions", expected, created.partitions),)
        )


async def test_wrong_topics_are_refused(admin: Admin, name: str) -> None:
    wrong: Any
    for wrong in (NewTopic(name), [name], None, {name: 1}):
        with pytest.raises(ArgumentTypeError, match="is not a collection of NewTopic"):
            await admin.ensure_topics(wrong)
    with pytest.raises(ArgumentTypeError, match="is not a number of partitions or replicas"):
        await admin.ensure_topics([NewTopic(name, "3")])  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError, match=f"{name} occurs twice"):
        await admin.ensure_topics([NewTopic(name, 1), NewTopic(name, 2)])
    assert await admin.ensure_topics([]) == {}
    assert not await exists(admin, name)
