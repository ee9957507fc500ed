"""Fixtures of the tests of spans: a cluster with two topics, and an exporter in memory."""

from collections.abc import AsyncIterator

import pytest
from traces import Traces

from aiokclient.testing import EmbeddedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"orders": 1, "bills": 1}) as running:
        yield running


@pytest.fixture
def traces() -> Traces:
    return Traces()
