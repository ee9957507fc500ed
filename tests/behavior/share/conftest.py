"""A topic with a share group, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from share_queue import Queue, queue_on


@pytest_asyncio.fixture
async def queue(cluster_servers: Any) -> AsyncIterator[Queue]:
    async with queue_on(cluster_servers.bootstrap, await cluster_servers.new_topic()) as queue:
        yield queue
