"""A pipeline of pydantic models: orders become invoices, with retries and dead letters.

The schemas of both are in a schema registry. What is no order, and an order for something that is
not sold, is a dead letter at once. While the bank does not answer, an order runs again after 1 and
after 5 seconds, from retry topics, and delays no other order. If it fails three times, it is a dead
letter, too: `examples/replay.py` puts it back when the bank answers again. While the registry does
not answer, the worker waits, and nothing becomes a dead letter.

Stop the program with SIGINT or SIGTERM: it finishes the orders that it has begun.

python examples/pipeline.py [BOOTSTRAP] [REGISTRY]
"""

import asyncio
import sys
from decimal import Decimal

from pydantic import BaseModel, PositiveInt

from aiokclient import Client, Consumer, ConsumerRecord, Producer
from aiokclient.schema import PydanticDeserializer, PydanticSerializer, SchemaRegistry
from aiokclient.worker import DeadLetter, Reject, Retry, Worker

PRICES = {"tea": Decimal("3.20"), "cake": Decimal("4.50")}


class Order(BaseModel):
    customer: str
    item: str
    count: PositiveInt


class Invoice(BaseModel):
    customer: str
    total: Decimal


async def charge(customer: str, total: Decimal) -> None:
    """Charge a customer. This bank never answers for customers whose names end in a question."""
    await asyncio.sleep(0.01)
    if customer.endswith("?"):
        raise TimeoutError(f"The bank does not answer for {customer}.")


async def handle(record: ConsumerRecord[bytes, Order], worker: Worker) -> None:
    order = record.value
    assert order is not None, "an order is not deleted"
    if order.item not in PRICES:
        raise Reject(f"We do not sell {order.item}.")
    total = PRICES[order.item] * order.count
    await charge(order.customer, total)
    worker.send("invoices", Invoice(customer=order.customer, total=total), key=record.key)


async def main(
    bootstrap: str = "localhost:9092", registry_url: str = "http://localhost:8081"
) -> None:
    async with (
        SchemaRegistry(registry_url) as registry,
        Client(bootstrap_servers=bootstrap) as client,
        Producer(client=client, value_serializer=PydanticSerializer(registry, Invoice)) as producer,
        Consumer(
            "orders",
            client=client,
            group_id="invoices",
            auto_offset_reset="earliest",
            value_deserializer=PydanticDeserializer(registry, Order),
        ) as consumer,
    ):
        worker = Worker(
            consumer,
            handle,
            order="key",
            producer=producer,
            retry=Retry(3, topic=[(1, "orders.retry.1s"), (5, "orders.retry.5s")], create=True),
            dead_letter=DeadLetter("orders.dead", create=True),
        )
        print("writing invoices", flush=True)
        await worker.run()
        print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
