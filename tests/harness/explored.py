"""Services for `explore`: six with one known fault each, and the same six after its correction.

Each row of `SERVICES` has the faulty service, the corrected one, its topics, and its invariants.
Those that call an application, or are one, need FastAPI.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from aiokclient import Consumer, Producer, ShareConsumer
from aiokclient.admin import Admin, ConfigResource
from aiokclient.testing import (
    ALL_INVARIANTS,
    Feed,
    Simulation,
    bounded_in_hand,
    order_within_key,
)
from aiokclient.worker import Retry, Worker, lifespan

MOST_IN_HAND = 10


def clients_of(sim: Simulation) -> dict[str, Any]:
    return {"bootstrap_servers": sim.bootstrap_servers, **sim.options}


def new_consumer(sim: Simulation, **options: Any) -> Consumer[bytes, bytes]:
    return Consumer(
        "orders",
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **clients_of(sim),
        **options,
    )


# -- 1: a commit before the work


async def commits_before_work(sim: Simulation) -> None:
    async with new_consumer(sim) as consumer:
        async for record in consumer:
            await consumer.commit(record)
            await sim.work(0.01)
            sim.handled(record)


async def commits_after_work(sim: Simulation) -> None:
    async with new_consumer(sim) as consumer:
        async for record in consumer:
            await sim.work(0.01)
            sim.handled(record)
            await consumer.commit(record)


# -- 2: a lost task: the service answers before what it has promised is stored


def make_shop(sim: Simulation, *, awaits_sends: bool) -> Any:
    """Return a FastAPI application that stores orders, and a worker of it that bills them."""
    from fastapi import FastAPI

    producer: Producer[bytes, bytes] = Producer(**clients_of(sim), delivery_timeout_ms=20_000)

    async def bill(record: Any) -> None:
        await sim.work(0.01)
        sim.handled(record)

    app = FastAPI(lifespan=lifespan(Worker(new_consumer(sim), bill, signals=False), producer))
    tasks = set()

    async def store(item: str) -> None:
        await producer.send("orders", item.encode())

    @app.post("/orders/{item}", status_code=201)
    async def order(item: str) -> str:
        if awaits_sends:
            await store(item)
        else:
            task = asyncio.create_task(store(item))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return item

    return app


async def serve_shop(sim: Simulation, *, awaits_sends: bool) -> None:
    """Run the shop with a customer, who orders what was not accepted again."""
    accepted = sim.state.setdefault("accepted", [])
    async with sim.http(make_shop(sim, awaits_sends=awaits_sends), timeout=30.0) as client:
        for number in range(len(accepted), 30):
            response = await client.post(f"/orders/{number}")
            response.raise_for_status()
            accepted.append(str(number))
            await asyncio.sleep(0.2)
        await sim.stopped()


async def loses_a_task(sim: Simulation) -> None:
    await serve_shop(sim, awaits_sends=False)


async def awaits_its_tasks(sim: Simulation) -> None:
    await serve_shop(sim, awaits_sends=True)


def accepted_orders_are_stored(sim: Simulation) -> None:
    """Check that each order that was answered with 201 is in the log."""
    stored = {(record.value or b"").decode() for record in sim.kafka.records("orders")}
    missing = [item for item in sim.state.get("accepted", ()) if item not in stored]
    assert not missing, f"orders that were accepted and not stored: {missing}"


# -- 3: a retry without idempotence: a payment whose answer is lost is made again


def make_bank(sim: Simulation) -> Any:
    """Return a FastAPI application that charges; it knows the keys of its former charges."""
    from fastapi import FastAPI, Request

    app = FastAPI()
    charges = sim.state.setdefault("charges", [])
    keys = sim.state.setdefault("keys", set())

    @app.post("/charges/{order}")
    async def charge(order: str, request: Request) -> str:
        key = request.headers.get("idempotency-key")
        if key is None or key not in keys:
            charges.append(order)
            keys.add(key)
        return order

    return app


async def run_billing(sim: Simulation, *, idempotent: bool) -> None:
    client = sim.http(make_bank(sim), timeout=2.0)
    # A service that is killed charges again, which only keys can prevent. Without that, this is
    # the retry of a request.
    retry = Retry(5, always=(Exception,))

    async def bill(record: Any) -> None:
        name = f"{record.partition}-{record.offset}"
        headers = {"idempotency-key": name} if idempotent else {}
        response = await client.post(f"/charges/{name}", headers=headers)
        response.raise_for_status()
        sim.handled(record)

    async with new_consumer(sim) as consumer:
        await consumer.run(bill, retry=retry, signals=False)


async def retries_without_idempotence(sim: Simulation) -> None:
    await run_billing(sim, idempotent=False)


async def retries_with_idempotence(sim: Simulation) -> None:
    await run_billing(sim, idempotent=True)


def charged_once(sim: Simulation) -> None:
    """Check that no order was charged twice."""
    charges = sim.state.get("charges", [])
    twice = sorted({each for each in charges if charges.count(each) > 1})
    assert not twice, f"orders that were charged twice: {twice}"


# -- 4: an unbounded gather


async def bill_batch(sim: Simulation, records: Sequence[Any]) -> None:
    async def bill(record: Any) -> None:
        with sim.handling(record):
            await sim.work(0.05)

    await asyncio.gather(*map(bill, records))


async def gathers_without_bound(sim: Simulation) -> None:
    async with new_consumer(sim) as consumer:
        while True:
            await bill_batch(sim, await consumer.poll(1.0))
            await consumer.commit()


async def gathers_with_bound(sim: Simulation) -> None:
    async with new_consumer(sim) as consumer:
        while True:
            await bill_batch(sim, await consumer.poll(1.0, max_records=MOST_IN_HAND))
            await consumer.commit()


# -- 5: a missing timeout


def make_stock(sim: Simulation) -> Any:
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/items/{item}")
    async def reserve(item: str) -> str:
        await sim.work(0.01)
        return item

    return app


async def run_stock(sim: Simulation, *, timeout: float | None) -> None:
    client = sim.http(make_stock(sim), timeout=timeout)

    async def reserve(record: Any) -> None:
        response = await client.get(f"/items/{record.offset}")
        response.raise_for_status()
        sim.handled(record)

    async with new_consumer(sim) as consumer:
        await consumer.run(reserve, retry=Retry(always=(Exception,)), signals=False)


async def waits_without_timeout(sim: Simulation) -> None:
    await run_stock(sim, timeout=None)


async def waits_with_timeout(sim: Simulation) -> None:
    await run_stock(sim, timeout=2.0)


# -- 6: a rebalance ignored: counts of keys are kept in memory while the partition is elsewhere


class Counts:
    """The counts of keys in a database, with a cache of one process."""

    def __init__(self, stored: dict[bytes, tuple[int, int]]) -> None:
        self.stored = stored
        """For each key, its count and the offset of its last record."""
        self.cached = dict(stored)

    def on_assigned(self, tps: object) -> None:
        self.cached = dict(self.stored)

    def on_revoked(self, tps: object) -> None:
        self.cached.clear()

    def count(self, record: Any, *, checks: bool) -> None:
        """Count a record, unless it was counted before."""
        count, last = self.cached.get(record.key, (0, -1))
        if checks and self.stored.get(record.key, (0, -1)) != (count, last):
            count, last = self.stored.get(record.key, (0, -1))  # Another process has written it.
        if record.offset > last:
            self.cached[record.key] = self.stored[record.key] = count + 1, record.offset


async def run_counts(sim: Simulation, *, listens: bool) -> None:
    counts = Counts(sim.state.setdefault("counts", {}))
    listener = counts if listens else None
    async with new_consumer(sim, listener=listener) as consumer:
        async for record in consumer:
            await sim.work(0.01)
            counts.count(record, checks=listens)
            sim.handled(record)
            await consumer.commit(record)


async def ignores_rebalances(sim: Simulation) -> None:
    await run_counts(sim, listens=False)


async def follows_rebalances(sim: Simulation) -> None:
    await run_counts(sim, listens=True)


def counts_are_right(sim: Simulation) -> None:
    """Check the count of each key against the log."""
    keys = [record.key for record in sim.kafka.records("orders")]
    stored = sim.state.get("counts", {})
    wrong = [
        f"{key!r} is {stored.get(key, (0, -1))[0]}, not {keys.count(key)}"
        for key in sorted(set(filter(None, keys)))
        if stored.get(key, (0, -1))[0] != keys.count(key)
    ]
    assert not wrong, f"wrong counts: {', '.join(wrong)}"


# -- 7: a share consumer that accepts records before the work


async def share_orders(sim: Simulation, *, accepts_first: bool) -> None:
    group = ConfigResource("group", "billing")
    # At the limit of its deliveries, a record is given up, which several kills may cause.
    configs = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    async with Admin(**clients_of(sim)) as admin:
        results = await admin.alter_configs({group: configs})
        results.raise_for_errors()
    async with ShareConsumer("orders", group_id="billing", **clients_of(sim)) as consumer:
        async for record in consumer:
            if accepts_first:
                consumer.done(record)
                await consumer.commit()
            await sim.work(0.01)
            sim.handled(record)
            if not accepts_first:
                consumer.done(record)


async def accepts_before_work(sim: Simulation) -> None:
    await share_orders(sim, accepts_first=True)


async def accepts_after_work(sim: Simulation) -> None:
    await share_orders(sim, accepts_first=False)


class Explored(NamedTuple):
    """A fault, the service that has it, and the one that does not."""

    fault: str
    faulty: Callable[[Simulation], Coroutine[Any, Any, None]]
    mended: Callable[[Simulation], Coroutine[Any, Any, None]]
    topics: Mapping[str, int | Feed]
    invariants: Sequence[Callable[[Simulation], object]]
    """What is checked in addition to ALL_INVARIANTS."""
    found_by: Sequence[str]
    """The invariants of which one finds the fault."""

    def explore_options(self) -> dict[str, Any]:
        chosen = [
            each
            for each in ALL_INVARIANTS
            if self.fault not in UNORDERED or each is not order_within_key
        ]
        return {"topics": self.topics, "invariants": (*self.invariants, *chosen)}


UNORDERED = ("an unbounded gather",)
"""Faults whose services handle the records of a key at the same time, also when they are mended."""

NEED_FASTAPI = ("a lost task", "a retry without idempotence", "a missing timeout")

SERVICES = (
    Explored(
        "a commit before the work",
        commits_before_work,
        commits_after_work,
        {"orders": Feed()},
        (),
        ("committed_at_most_processed",),
    ),
    Explored(
        "a lost task",
        loses_a_task,
        awaits_its_tasks,
        {"orders": 3},
        (accepted_orders_are_stored,),
        ("accepted_orders_are_stored",),
    ),
    Explored(
        "a retry without idempotence",
        retries_without_idempotence,
        retries_with_idempotence,
        {"orders": Feed()},
        (charged_once,),
        ("charged_once",),
    ),
    Explored(
        "an unbounded gather",
        gathers_without_bound,
        gathers_with_bound,
        {"orders": Feed(60)},
        (bounded_in_hand(MOST_IN_HAND),),
        (f"bounded_in_hand({MOST_IN_HAND})",),
    ),
    Explored(
        "a missing timeout",
        waits_without_timeout,
        waits_with_timeout,
        {"orders": Feed()},
        (),
        ("handled_at_least_once",),
    ),
    Explored(
        "a rebalance ignored",
        ignores_rebalances,
        follows_rebalances,
        {"orders": Feed()},
        (counts_are_right,),
        ("counts_are_right",),
    ),
    Explored(
        "an acceptance before the work",
        accepts_before_work,
        accepts_after_work,
        {"orders": Feed()},
        (),
        ("committed_at_most_processed",),
    ),
)
