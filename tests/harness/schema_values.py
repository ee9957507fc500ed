"""A deserializer of values that name a schema, for tests of preparation."""

import asyncio
from typing import Any

from aiokclient.errors import SchemaNotFoundError, SchemaRegistryError

MISSING = SchemaNotFoundError(status=404, error_code=40403, url="http://registry/schemas/ids/9")
REFUSED = SchemaRegistryError(status=401, url="http://registry/schemas/ids/9")


class Schemas:
    """A deserializer of values such as b"7:text", in which 7 is the id of a schema.

    `known` has the ids that are prepared. `prepare` waits for `gate`, adds the ids that have no
    error in `errors`, and raises the first error. `calls` has the ids of each call.
    """

    def __init__(self, *known: bytes) -> None:
        self.known = set(known)
        self.errors: dict[bytes, BaseException] = {}
        self.calls: list[list[bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0

    def is_prepared(self, data: bytes, headers: Any) -> bool:
        return data.partition(b":")[0] in self.known

    async def prepare(self, topic: str, items: Any) -> None:
        wanted = [data.partition(b":")[0] for data, _ in items]
        self.calls.append(wanted)
        try:
            await self.gate.wait()
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        failed = [self.errors[each] for each in wanted if each in self.errors]
        self.known.update(each for each in wanted if each not in self.errors)
        if failed:
            raise failed[0]

    def deserialize(self, topic: str, data: bytes, headers: Any) -> str:
        schema, _, text = data.partition(b":")
        if schema not in self.known:
            raise KeyError(schema)
        return text.decode()
