"""Schema registries: a stub in memory for each test, and Apicurio Registry for all of them.

`make registry` runs the tests with Apicurio Registry, which forgets nothing between them: each test
uses subjects of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from kafka_harness.apicurio import ApicurioRegistry
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


@pytest.fixture(scope="session")
def apicurio(java: str) -> Iterator[ApicurioRegistry]:
    """Apicurio Registry, as a process of its own. Only `make registry` starts it."""
    with ApicurioRegistry() as running:
        yield running


@pytest.fixture(params=["stub", pytest.param("apicurio", marks=pytest.mark.registry)])
async def any_registry(request: pytest.FixtureRequest) -> AsyncIterator[SchemaRegistry]:
    """A client for a test that runs twice: with the stub, and with Apicurio Registry."""
    if request.param == "apicurio":
        server: ApicurioRegistry = request.getfixturevalue("apicurio")
        async with SchemaRegistry(server.url, timeout=30.0) as client:
            yield client
        return
    async with RegistryStub() as stub, SchemaRegistry(stub.url, timeout=5.0) as client:
        yield client


@pytest.fixture
def subject() -> str:
    """A subject that does not exist. Its name must be percent-encoded in a path."""
    return f"orders/{uuid.uuid4().hex[:12]} & more-value"
