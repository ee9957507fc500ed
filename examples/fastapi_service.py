"""A FastAPI service: one producer for all requests, a consumer in the background.

uvicorn examples.fastapi_service:app      (BOOTSTRAP names the brokers, localhost:9092 by default)
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from aiokclient import Consumer, Producer


async def read_all(consumer: Consumer[bytes, bytes], seen: list[str]) -> None:
    async for record in consumer:
        seen.append((record.value or b"").decode())


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("BOOTSTRAP", "localhost:9092")
    app.state.topic = os.environ.get("TOPIC", "orders")
    app.state.seen = []
    async with (
        Producer(bootstrap_servers=servers) as app.state.producer,
        Consumer(
            app.state.topic, bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as reader,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(read_all(reader, app.state.seen))
        yield
        reader.stop()  # The loop in read_all ends after the record that it is processing.


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{name}")
async def order(name: str, request: Request) -> dict[str, int]:
    metadata = await request.app.state.producer.send(request.app.state.topic, name.encode())
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.get("/orders")
async def orders(request: Request) -> list[str]:
    return list(request.app.state.seen)
