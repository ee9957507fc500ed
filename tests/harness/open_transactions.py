"""Waits for the markers of transactions, which follow the response to a commit or an abort."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokclient import Consumer, TopicPartition

__all__ = ["none_open"]

PATIENCE_S = 60
"""A timeout for markers, which are usually written within milliseconds."""


async def none_open(bootstrap: str, topic: str, partitions: Iterable[int] | None = None) -> None:
    """Wait until these partitions, or all of the topic, have no open transaction.

    Until then, `until_end` with read_committed ends before the first open transaction. Raises
    TimeoutError after a minute.
    """
    options: Any = {"bootstrap_servers": bootstrap}
    async with (
        asyncio.timeout(PATIENCE_S),
        Consumer(**options, isolation_level="read_committed") as stable,
        Consumer(**options, isolation_level="read_uncommitted") as newest,
    ):
        if partitions is None:
            partitions = [each.index for each in await newest.partitions_for(topic)]
        tps = [TopicPartition(topic, partition) for partition in partitions]
        while True:
            if await stable.end_offsets(tps) == await newest.end_offsets(tps):
                return
            await asyncio.sleep(0.02)  # The end of a transaction can only be polled.
