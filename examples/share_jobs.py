"""A FastAPI service with a job queue: requests become jobs, which all processes share.

POST /jobs answers with the id of a job once the brokers have stored it, and GET /jobs/ID tells what
became of it. Start as many processes as you like: they are members of one share group, in which
each job is locked for one handler at a time, for as long as the handler takes. A job that fails is
repeated; one that fails three times goes to the topic of dead letters. At SIGTERM, a process
finishes the jobs that it has begun within `drain_timeout`, and releases the others, which go on at
once in another process. The same happens to the jobs of a process that is killed.

Handlers may run twice, as always with "at least once". Results are kept in memory here, and read
again by each process that starts. A service with many would keep them in a database.

uvicorn examples.share_jobs:app      (BOOTSTRAP names the brokers, localhost:9092 by default)
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ValidationError

from aiokclient import (
    Admin,
    Client,
    Consumer,
    ConsumerRecord,
    KafkaError,
    Producer,
    ShareConsumer,
    ShareRecord,
)
from aiokclient.admin import NewTopic
from aiokclient.worker import DeadLetter, DeadLetterInfo, Retry, Worker, asgi, lifespan

SERVERS = os.environ.get("BOOTSTRAP", "localhost:9092")


class Job(BaseModel):
    text: str
    seconds: float = 0.0


class Result(BaseModel):
    words: int


class Status(BaseModel):
    state: str = "waiting"
    result: Result | None = None
    error: str | None = None


statuses: dict[str, Status] = {}


async def count_words(record: ShareRecord[bytes, bytes], worker: Worker) -> None:
    """Do a job. It is done when the brokers have acknowledged its result."""
    job = Job.model_validate_json(record.value or b"")
    await asyncio.sleep(job.seconds)  # The lock is renewed meanwhile.
    if not job.text:
        raise ValueError("There is no text.")
    result = Result(words=len(job.text.split()))
    worker.send("results", result.model_dump_json().encode(), key=record.key)


async def note(record: ConsumerRecord[bytes, bytes]) -> None:
    """Note what became of a job in any process."""
    name = (record.key or b"").decode()
    if record.topic == "results":
        result = Result.model_validate_json(record.value or b"")
        statuses[name] = Status(state="done", result=result)
    else:
        error = DeadLetterInfo.of(record).error_message
        statuses[name] = Status(state="failed", error=error)


@asynccontextmanager
async def queue() -> AsyncIterator[None]:
    """Create the topics and the group, unless they exist."""
    async with Admin(bootstrap_servers=SERVERS) as admin:
        topics = [NewTopic(name, 3) for name in ("jobs", "results", "jobs.dead")]
        await admin.create_topics(topics)
        # The start of the group is stored, so that no job is skipped before its first handler.
        created = await admin.create_share_group("counters", ["jobs"], start="earliest")
        created.raise_for_errors()
    yield


# All share one client, and so its connections. Nothing is started before the service is.
client = Client(bootstrap_servers=SERVERS)
producer = Producer(client=client, delivery_timeout_ms=5_000, request_timeout_ms=2_000)
jobs = Worker(
    ShareConsumer("jobs", client=client, group_id="counters"),
    count_words,
    concurrency=100,
    retry=Retry(attempts=3, never=(ValidationError,)),
    dead_letter=DeadLetter("jobs.dead"),
)
# Without a group, each process reads all results.
results = Worker(
    Consumer("results", "jobs.dead", client=client, auto_offset_reset="earliest"),
    note,
    name="results",
)

app = FastAPI(lifespan=lifespan(queue(), jobs, results, producer))


@app.post("/jobs", status_code=202)
async def add_job(job: Job) -> dict[str, str]:
    name = str(uuid4())
    try:
        await producer.send("jobs", job.model_dump_json().encode(), key=name.encode())
    except KafkaError as error:
        # The job may have been stored nevertheless, and is done then.
        raise HTTPException(503, "The job was not acknowledged in time.") from error
    return {"id": name}


@app.get("/jobs/{name}")
async def get_job(name: str) -> Status:
    return statuses.get(name, Status())


app.mount("/", asgi(jobs, results))
