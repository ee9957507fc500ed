"""Schema registries: a stub in memory for each test."""

from collections.abc import AsyncIterator

import pytest
from registry_stub import RegistryStub

from aiokclient.schema import SchemaRegistry


@pytest.fixture
async def stub() -> AsyncIterator[RegistryStub]:
    async with RegistryStub() as running:
        yield running


@pytest.fixture
async def registry(stub: RegistryStub) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(stub.url, timeout=5.0) as client:
        yield client
