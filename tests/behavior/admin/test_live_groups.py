"""Offsets of a group that has members."""

import uuid
from typing import Any

import pytest

from aiokclient import Admin, Consumer, NewTopic, TopicPartition
from aiokclient.errors import UnknownMemberIdError


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_alter_offsets_of_a_live_group_says_that_it_has_members(
    cluster_servers: Any, protocol: Any
) -> None:
    name = f"live-{uuid.uuid4().hex[:8]}"
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    tp = TopicPartition(name, 0)
    async with Admin(**servers) as admin:
        (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
        async with Consumer(name, group_id=name, group_protocol=protocol, **servers) as consumer:
            while tp not in consumer.assignment():
                await consumer.poll(timeout=0.1)
            results = await admin.alter_consumer_group_offsets(name, {tp: 0})
            error = results.errors[tp]
        assert isinstance(error, UnknownMemberIdError)
        assert "The group has members" in str(error)
        assert "rewind_group()" in str(error)
        assert "heartbeat" not in str(error)
        (await admin.alter_consumer_group_offsets(name, {tp: 0})).raise_for_errors()
