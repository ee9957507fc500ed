"""Tests of the admin client on an older Kafka release, with the API versions which it supports."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest

from aiokclient.admin import Admin, ConfigResource, NewTopic
from aiokclient.errors import UnsupportedVersionError


async def test_admin_calls_work_with_an_older_broker(kafka_old: Any) -> None:
    name = f"old-{uuid.uuid4().hex[:8]}"
    topic = ConfigResource.topic(name)
    async with Admin(bootstrap_servers=kafka_old.bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 2, 1)])).raise_for_errors()
        (await admin.create_partitions({name: 3})).raise_for_errors()
        # The broker learns about changes from the controller with a short delay.
        await asyncio.to_thread(kafka_old.await_partitions, name, 3)
        (await admin.alter_configs({topic: {"retention.ms": 1000}})).raise_for_errors()
        assert (await admin.describe_configs([topic])).ok
        assert (await admin.describe_cluster()).brokers
        with pytest.raises(UnsupportedVersionError, match="DescribeCluster"):
            await admin.describe_cluster(include_fenced_brokers=True)
        (await admin.delete_topics([name])).raise_for_errors()
        # The broker has only version 0 of the request, which lists only client metrics resources.
        metrics = ConfigResource.client_metrics(name)
        (await admin.alter_configs({metrics: {"metrics": "*"}})).raise_for_errors()
        deadline = time.monotonic() + 60
        while name not in await admin.list_client_metrics():
            assert time.monotonic() < deadline
        (await admin.delete_client_metrics([name])).raise_for_errors()
