"""A pytest plugin that runs FastStream's Kafka suite on the adapter, for `make adapter`.

It installs the adapter as `aiokafka`, and starts a cluster at the address that the suite expects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aiokclient.adapters.aiokafka import install

PORT = 9092


# When this module is imported, because pytest imports the conftest.py of the suite, and with it
# FastStream, before it calls any hook.
install()


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> Iterator[None]:
    """A cluster that creates topics."""
    if os.environ.get("AIOKCLIENT_SUITE_KAFKA") == "real":
        from kafka_harness import KAFKA, KafkaCluster

        # Some tests expect their records in partition 0.
        properties = {"auto.create.topics.enable": "true", "num.partitions": 1}
        with KafkaCluster(KAFKA, properties=properties, port=PORT):
            yield
        return
    from aiokclient.testing import EmbeddedCluster

    with EmbeddedCluster(auto_create_topics=True, port=PORT):
        yield
