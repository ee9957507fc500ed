"""Schemas: pydantic models as values, with their JSON Schema in a registry, and old data as well.

python examples/schemas.py [BOOTSTRAP] [REGISTRY] [TOPIC]
"""

import asyncio
import sys
from datetime import UTC, datetime

from pydantic import BaseModel

from aiokclient import Consumer, Producer
from aiokclient.errors import SerializationError
from aiokclient.schema import PydanticDeserializer, PydanticSerializer, SchemaRegistry


class Order(BaseModel):
    item: str
    count: int = 1
    at: datetime


async def main(
    bootstrap: str = "localhost:9092",
    url: str = "http://localhost:8081",
    topic: str = "orders",
) -> None:
    async with SchemaRegistry(url) as registry:
        async with Producer(
            bootstrap_servers=bootstrap, value_serializer=PydanticSerializer(registry, Order)
        ) as producer:
            # Registers the schema of the model. Nothing after this asks the registry.
            await producer.prepare(topic)
            now = datetime.now(UTC)
            for number in range(3):
                await producer.send(topic, Order(item="tea", count=number + 1, at=now))
            try:
                producer.send(topic, {"item": "tea"})  # type: ignore[arg-type]
            except SerializationError as error:
                print(f"refused: {error}")

        async with Consumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=PydanticDeserializer(registry, Order),
        ) as consumer:
            async for record in consumer.until_end():
                if record.value is not None:  # None is a tombstone, which no model stands for.
                    print(f"{record.offset}: {record.value.count} x {record.value.item}")
        print("subjects:", ", ".join(await registry.subjects()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
