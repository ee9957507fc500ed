"""The cluster of the tests of adapters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster
