"""Tests that a batch is delivered in few Python calls, which cost more than the batch's records."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer

BATCHES = 8
RECORDS = 3_000
"""The records of a batch, too many for two batches to be unpacked together."""


class CallCounter:
    """A counter of the Python calls in the consumer's modules."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start(self) -> None:
        sys.setprofile(self._on_event)

    def stop(self) -> Counter[str]:
        """Return the calls since the start, by name."""
        sys.setprofile(None)
        return Counter(self.names)

    def _on_event(self, frame: Any, event: str, argument: object) -> None:
        name, file = frame.f_code.co_qualname, frame.f_code.co_filename
        # `RecordCursor` has a native twin.
        of_consumer = "/aiokclient/consumer/" in file and not name.startswith("RecordCursor.")
        if event == "call" and of_consumer:
            self.names.append(name)


async def iterate(consumer: Consumer[Any, Any], on_batch: Callable[[], None]) -> None:
    """Read by `async for`; call the function at the first record of each batch."""
    async for record in consumer:
        if record.offset % RECORDS == 0:
            on_batch()
        if record.offset == BATCHES * RECORDS - 1:
            return


async def read_lists(consumer: Consumer[Any, Any], on_batch: Callable[[], None]) -> None:
    """Read lists of one batch each; call the function for each list."""
    async for records in consumer.batches(max_records=RECORDS):
        on_batch()
        if records[-1].offset == BATCHES * RECORDS - 1:
            return


@pytest.mark.parametrize(("read", "most"), [(iterate, 35), (read_lists, 31)])
def test_a_batch_of_a_fetched_response_is_delivered_in_few_calls(read: Any, most: int) -> None:
    async def scenario(world: World) -> None:
        for _ in range(BATCHES):
            world.cluster.produce("t", [b"x"] * RECORDS)
        counter, seen, calls = CallCounter(), 0, Counter[str]()

        def on_batch() -> None:
            nonlocal seen, calls
            seen += 1
            if seen == 3:
                counter.start()
            elif seen == 4:
                calls = counter.stop()

        async with world.consumer("t") as consumer:
            try:
                await read(consumer, on_batch)
            finally:
                counter.stop()
        names = calls.total(), calls
        assert 0 < calls.total() <= most, names

    simulate(scenario)
