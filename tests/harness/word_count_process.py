"""Run examples/word_count.py with other options, and suspend it at a point of a transaction.

The first argument is a JSON object, and the others are those of the example:

    producer, consumer: Options of the two clients.
    hold: A point, and the number of a transaction. When the process reaches this point of this
        transaction, it prints "holding". It waits there forever, to be killed, except at the point
        "committing".
    outside: If true, the consumer commits the offsets, and the transaction does not. This is a
        defect that a test of exactly-once processing must find.

python tests/harness/word_count_process.py JSON BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID
"""

import asyncio
import functools
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from aiokclient import Consumer, GroupMetadata, Producer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

POINTS = ("begun", "sent", "offsets", "committing", "committed")
"""The points of a transaction. "committing" is directly before the commit; the others are after
the named step."""


class HeldProducer(Producer[Any, Any]):
    """A producer that stops at a point of a transaction."""

    def __init__(self, hold: list[Any], **options: Any) -> None:
        super().__init__(**options)
        self.held_at, self.begun = hold, 0

    async def begin_transaction(self) -> None:
        await super().begin_transaction()
        self.begun += 1
        await self.pass_point("begun")

    async def send_offsets_to_transaction(
        self, offsets: Any, group_metadata: GroupMetadata, timeout: float | None = None
    ) -> None:
        await self.pass_point("sent")
        await self.pass_offsets(offsets, group_metadata, timeout)
        await self.pass_point("offsets")

    async def commit_transaction(self, timeout: float | None = None) -> None:
        await self.pass_point("committing")
        await super().commit_transaction(timeout)
        await self.pass_point("committed")

    async def pass_offsets(
        self, offsets: Any, group_metadata: GroupMetadata, timeout: float | None
    ) -> None:
        await super().send_offsets_to_transaction(offsets, group_metadata, timeout)

    async def pass_point(self, point: str) -> None:
        if self.held_at == [point, self.begun]:
            sys.stdout.write("holding\n")
            sys.stdout.flush()
            if point != "committing":
                await asyncio.Event().wait()


class DefectiveProducer(HeldProducer):
    """A producer that commits offsets outside of its transactions."""

    consumer: Consumer[Any, Any]

    async def pass_offsets(
        self, offsets: Any, group_metadata: GroupMetadata, timeout: float | None
    ) -> None:
        await self.consumer.commit(offsets)


class WatchedConsumer(Consumer[Any, Any]):
    """A consumer through which the defective producer commits offsets."""

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)
        DefectiveProducer.consumer = self


def main(settings: dict[str, Any], *arguments: str) -> None:
    kind = DefectiveProducer if settings.get("outside") else HeldProducer
    sys.path.insert(0, str(EXAMPLES))
    word_count: Any = importlib.import_module("word_count")
    word_count.Producer = functools.partial(
        kind, settings.get("hold", []), **settings.get("producer", {})
    )
    word_count.Consumer = functools.partial(WatchedConsumer, **settings.get("consumer", {}))
    asyncio.run(word_count.main(*arguments))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), *sys.argv[2:])
