"""Fixtures: an embedded cluster of three brokers, and an admin client without retry delays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokclient.admin import Admin
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"orders": 3, "bills": 3}) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    servers = cluster.bootstrap_servers
    async with Admin(bootstrap_servers=servers, retry_backoff_ms=1, retry_backoff_max_ms=1) as made:
        yield made
