"""Which topics the options of the Spark source select."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient import Client
from aiokclient.spark.source import topics
from aiokclient.spark.source.options import SourceOptions
from aiokclient.testing import EmbeddedCluster

NAMES = ("orders", "orders-eu", "my-orders", "order", "payments", "a.b", "axb")


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("orders", {"orders", "orders-eu", "my-orders"}),
        ("^orders", {"orders", "orders-eu"}),
        ("orders$", {"orders", "my-orders"}),
        ("^orders$", {"orders"}),
        ("rder", {"orders", "orders-eu", "my-orders", "order"}),
        ("pay|a.b", {"payments", "a.b", "axb"}),
        (r"a\.b", {"a.b"}),
        ("-", {"orders-eu", "my-orders"}),
        ("orders-.*", {"orders-eu"}),
        (".*", set(NAMES)),
        ("ORDERS", set()),
        ("(?i)ORDERS", {"orders", "orders-eu", "my-orders"}),
    ],
)
async def test_pattern_selects_the_topics_in_whose_names_it_is_found(
    pattern: str, selected: set[str]
) -> None:
    given: Any = dict.fromkeys(NAMES, 1)
    with EmbeddedCluster(brokers=1, topics=given) as cluster:
        options = SourceOptions.parse(
            {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribePattern": pattern},
            streaming=False,
        )
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            assert set(await topics.find(client, options)) == selected
