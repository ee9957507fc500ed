"""A FastAPI service that starts before its cluster does, with routes for an orchestrator's probes.

uvicorn examples.health:app      (BOOTSTRAP names the brokers, localhost:9092 by default)
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from aiokclient import Producer, State


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("BOOTSTRAP", "localhost:9092")
    # The service accepts requests at once. Records wait in memory until a broker responds.
    async with Producer(bootstrap_servers=servers, start_without_brokers=True) as producer:
        app.state.producer = producer
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
    """Answer 200 when records reach the brokers. The body says what is wrong, if anything is."""
    health = request.app.state.producer.health()
    response.status_code = 200 if health.state is State.RUNNING else 503
    brokers = {str(broker): text for broker, text in health.brokers.items()}
    return {"state": health.state.name, "reasons": list(health.reasons), "brokers": brokers}


@app.post("/orders/{name}", status_code=202)
async def order(name: str, request: Request) -> None:
    request.app.state.producer.send("orders", name.encode())
