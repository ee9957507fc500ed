"""A FastAPI service: one producer for all requests, a consumer in the background.

A record that cannot be decoded is logged and skipped. If reading fails for any other reason, the
process ends, so that its supervisor starts it again: a service that only half works is worse.

uvicorn examples.fastapi_service:app      (BOOTSTRAP names the brokers, localhost:9092 by default)
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from aiokclient import SKIP, Consumer, Producer
from aiokclient.errors import RecordError

log = logging.getLogger("uvicorn.error")


def skip(error: RecordError) -> object:
    """Leave out a record that cannot be decoded."""
    log.warning("skipped %s at offset %d: %s", error.topic_partition, error.offset, error)
    return SKIP


async def read_all(consumer: Consumer[bytes, str], seen: list[str]) -> None:
    try:
        async for record in consumer:
            seen.append(record.value or "")
    except Exception:
        log.exception("reading has failed, and the service ends")
        signal.raise_signal(signal.SIGTERM)  # uvicorn answers open requests, and ends.


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("BOOTSTRAP", "localhost:9092")
    app.state.topic = os.environ.get("TOPIC", "orders")
    app.state.seen = []
    async with (
        # Both together end before Kubernetes kills the process, after 30 seconds.
        Producer(bootstrap_servers=servers, shutdown_timeout_ms=10_000) as app.state.producer,
        Consumer(
            app.state.topic,
            bootstrap_servers=servers,
            shutdown_timeout_ms=10_000,
            auto_offset_reset="earliest",
            value_deserializer=bytes.decode,
            on_record_error=skip,
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
