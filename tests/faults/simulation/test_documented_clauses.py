"""The programs of the documents that handle errors of transactions, in outages of any length.

A restart and a lookup of committed offsets end after `default_api_timeout_ms`, which is shorter
than the outages here.
"""

import asyncio
import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from group_world import QUICK, committed, fill, member
from owned import until
from thinned import in_turns
from world import World, simulate

from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aiokclient.protocol import ApiKey

ROOT = Path(__file__).resolve().parents[3]
OUTAGE_S = 90.0
RECORDS = 40
SHORT: dict[str, Any] = {"default_api_timeout_ms": 5000, "request_timeout_ms": 1000}
PRODUCER: dict[str, Any] = {**SHORT, "transactional_id": "tx", "delivery_timeout_ms": 5000}
SILENT = {
    "the coordinator of transactions": [ApiKey.INIT_PRODUCER_ID],
    "the coordinator of the group": [ApiKey.OFFSET_FETCH],
    "both": [ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_FETCH],
    "the ends of transactions": [ApiKey.END_TXN],
    "every broker": list(ApiKey),
}
ERRORS = [ProducerFencedError, TransactionAbortableError, None]
every_outage = pytest.mark.parametrize(("silent", "error"), in_turns(3, SILENT, ERRORS))


@contextmanager
def failing_once(world: World, error: type[Exception] | None) -> Iterator[None]:
    """Fail the next record with an error, if one is given."""
    if error is None:
        yield
    else:
        with world.cluster.fail(ApiKey.PRODUCE, error, times=1):
            yield


async def during_outage(
    world: World, silent: str, error: type[Exception] | None, program: asyncio.Task[Any]
) -> None:
    """Run a program in which a transaction fails, while brokers do not answer."""
    await until(lambda: committed(world) == RECORDS)
    with failing_once(world, error), ExitStack() as stack:
        for api in SILENT[silent]:
            stack.enter_context(world.cluster.drop(api, when="before"))
        world.cluster.produce("t", [b"%d" % number for number in range(RECORDS, 2 * RECORDS)], 0)
        await asyncio.sleep(OUTAGE_S)
    assert not program.done(), repr(program)


async def results(world: World) -> list[Any]:
    options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with world.consumer("out", **options) as reader:
        return [record async for record in reader.until_end()]


def documented() -> str:
    """Return the block of the documents that has the three clauses."""
    text = (ROOT / "docs" / "transactions.md").read_text()
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    (block,) = (code for code in blocks if "except ApplicationRecoverableError:" in code)
    definition, _, _ = block.partition("\n\n\nwhile")
    return definition.replace('"payments"', '"out"')


@every_outage
def test_the_three_clauses_of_the_documents_outlast_an_outage(
    silent: str, error: type[Exception] | None
) -> None:
    async def scenario(world: World) -> None:
        fill(world, RECORDS)
        own = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **SHORT}
        async with member(world, **own) as consumer, world.producer(**PRODUCER) as producer:
            names: dict[str, Any] = {
                "producer": producer,
                "consumer": consumer,
                "suppress": suppress,
                "AbortableError": AbortableError,
                "ApplicationRecoverableError": ApplicationRecoverableError,
                "InvalidConfigurationError": InvalidConfigurationError,
            }
            exec(documented(), names)

            async def run() -> None:
                while True:
                    if not await names["process_next"]():
                        await asyncio.sleep(0.1)

            program = asyncio.create_task(run())
            await during_outage(world, silent, error, program)
            await until(lambda: committed(world) == 2 * RECORDS)
            program.cancel()
            await asyncio.wait([program])
        values = [int(record.value[4:]) for record in await results(world)]
        assert values == list(range(2 * RECORDS))

    simulate(scenario, topics={"t": 1, "out": 1})


def word_count(world: World) -> Any:
    """Return the module of the example, with clients of the simulation."""
    path = ROOT / "examples" / "word_count.py"
    spec = importlib.util.spec_from_file_location("word_count", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    simulated = world.options(**SHORT)
    del simulated["bootstrap_servers"]
    session = {name: value for name, value in QUICK.items() if name != "group_id"}
    module.Consumer = partial(module.Consumer, **simulated, **session)
    module.Producer = partial(module.Producer, **simulated, delivery_timeout_ms=5000)
    return module


@every_outage
def test_the_word_count_outlasts_an_outage(silent: str, error: type[Exception] | None) -> None:
    async def scenario(world: World) -> None:
        handlers: set[Callable[[], None]] = set()

        def add_signal_handler(number: int, handler: Callable[[], None]) -> None:
            handlers.add(handler)

        loop: Any = asyncio.get_running_loop()
        loop.add_signal_handler = add_signal_handler  # The simulation has no signals.
        fill(world, RECORDS)
        servers = world.cluster.bootstrap_servers
        main = word_count(world).main(servers, "t", "out", "g", "tx")
        program = asyncio.create_task(main)
        await during_outage(world, silent, error, program)
        await until(lambda: committed(world) == 2 * RECORDS)
        for handler in handlers:
            handler()
        await program
        counts = {record.key.decode(): int(record.value) for record in await results(world)}
        assert counts == {str(number): 1 for number in range(2 * RECORDS)}

    simulate(scenario, topics={"t": 1, "out": 1})
