"""A FastAPI service: requests become records, and a worker handles them in the same process.

A request is answered when the brokers have stored its order. The worker handles the orders of one
customer in their order, and those of 50 customers at a time. An order that fails is repeated; one
that fails three times, or cannot be read, goes to the topic of dead letters. At SIGTERM, uvicorn
answers the open requests, and the worker finishes what it has begun. If the worker fails, the
process ends, so that its supervisor starts it again: a service that only half works is worse.

The routes /live, /ready, and /metrics are those for an orchestrator and for Prometheus.

uvicorn examples.fastapi_service:app      (BOOTSTRAP names the brokers, localhost:9092 by default)
"""

import os

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ValidationError

from aiokclient import Client, Consumer, ConsumerRecord, KafkaError, Producer
from aiokclient.worker import DeadLetter, Retry, Worker, asgi, lifespan


class Order(BaseModel):
    customer: str
    item: str


async def handle(record: ConsumerRecord[bytes, bytes], worker: Worker) -> None:
    """Write a receipt. The order is done when the brokers have acknowledged the receipt."""
    order = Order.model_validate_json(record.value or b"")
    worker.send("receipts", order.item.encode(), key=record.key)


# All share one client, and so its connections. Nothing is started before the service is.
client = Client(bootstrap_servers=os.environ.get("BOOTSTRAP", "localhost:9092"))
# A request fails after 5 seconds without an acknowledgement.
producer = Producer(client=client, delivery_timeout_ms=5_000, request_timeout_ms=2_000)
consumer = Consumer("orders", client=client, group_id="receipts", auto_offset_reset="earliest")
worker = Worker(
    consumer,
    handle,
    order="key",
    retry=Retry(attempts=3, never=(ValidationError,)),
    dead_letter=DeadLetter("orders.dead", create=True),
    # Kubernetes kills a pod 30 seconds after SIGTERM. Closing the clients takes 5 of them.
    drain_timeout=20,
)

app = FastAPI(lifespan=lifespan(worker, producer))


@app.post("/orders", status_code=201)
async def order(order: Order) -> dict[str, int]:
    try:
        metadata = await producer.send(
            "orders", order.model_dump_json().encode(), key=order.customer.encode()
        )
    except KafkaError as error:
        # The order may have been stored nevertheless: a client that repeats it may order twice.
        raise HTTPException(503, "The order was not acknowledged in time.") from error
    return {"partition": metadata.partition, "offset": metadata.offset}


app.mount("/", asgi(worker))
