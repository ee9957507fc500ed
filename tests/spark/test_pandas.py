"""Records as a pandas.DataFrame, beside those of Arrow. Only this environment has pandas."""

from typing import Any

import pandas
import pytest

from aiokclient import Consumer, Producer
from aiokclient.testing import EmbeddedCluster


@pytest.mark.parametrize("count", [10, 1])
async def test_pandas_has_the_timestamps_of_arrow(count: int) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        options: Any = {"bootstrap_servers": cluster.bootstrap_servers}
        async with Producer(**options) as producer:
            await producer.send_all("t", [b"%d" % number for number in range(count)])
        async with Consumer("t", **options, auto_offset_reset="earliest") as consumer:
            expected = (await consumer.table()).to_pandas()
            consumer.seek_to_beginning()
            frames = [b.to_pandas() async for b in consumer.batches(until_end=True)]
    found = pandas.concat(frames)
    assert found["timestamp"].dtype == expected["timestamp"].dtype
    assert list(found["timestamp"]) == list(expected["timestamp"])
    assert len(found) == count
