"""A FastAPI service that starts before its cluster does, with routes for an orchestrator's probes.

uvicorn examples.health:app      (BOOTSTRAP names the brokers, localhost:9092 by default)
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from aiokclient import Delivery, Producer, State

LATE_S = 2.0
"""Seconds within which records are acknowledged while all is well."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("BOOTSTRAP", "localhost:9092")
    # The service accepts requests at once. Records wait in memory until a broker responds.
    async with Producer(
        bootstrap_servers=servers, start_without_brokers=True, shutdown_timeout_ms=20_000
    ) as producer:
        app.state.producer = producer
        app.state.waiting = {}
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/live")
async def live(request: Request, response: Response) -> dict[str, str]:
    """Answer 503 when only a restart helps: a client in the state FAILED does not recover."""
    state = request.app.state.producer.state
    response.status_code = 503 if state in (State.FAILED, State.CLOSED) else 200
    return {"state": state.name}


@app.get("/ready")
async def ready(request: Request, response: Response) -> dict[str, object]:
    """Answer 200 when records reach the brokers. The body says what is wrong, if anything is.

    The client is healthy, and no record waits longer than usual for its acknowledgement: a leader
    that is connected but silent delays records before the client can say what is wrong with it.
    """
    health = request.app.state.producer.health()
    reasons = list(health.reasons)
    waiting: dict[Delivery, float] = request.app.state.waiting
    oldest = next(iter(waiting.items()), None)
    if oldest is not None and (waited_s := time.monotonic() - oldest[1]) > LATE_S:
        topic, partition = oldest[0].topic, oldest[0].partition
        where = topic if partition is None else f"{topic}-{partition}"
        reasons.append(f"a record for {where} has not been acknowledged for {waited_s:.1f} s")
    response.status_code = 200 if health.state is State.RUNNING and not reasons else 503
    brokers = {str(broker): text for broker, text in health.brokers.items()}
    return {"state": health.state.name, "reasons": reasons, "brokers": brokers}


@app.post("/orders/{name}", status_code=202)
async def order(name: str, request: Request) -> None:
    waiting: dict[Delivery, float] = request.app.state.waiting
    delivery = request.app.state.producer.send("orders", name.encode())
    waiting[delivery] = time.monotonic()  # In the order of the sends: the first is the oldest.
    delivery.add_done_callback(waiting.pop)
