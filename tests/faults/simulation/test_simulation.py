"""The simulation through its public API."""

import asyncio
import itertools

import pytest

from aiokclient import Consumer, Producer
from aiokclient.errors import IllegalStateError
from aiokclient.testing import Simulation, SimulationError

EPOCH_MS = 1_700_000_000_000


async def hello(sim: Simulation) -> tuple[bytes | None, str]:
    """Send a record and read it, on a cluster that is reached by its host name."""
    async with sim.cluster(brokers=3, topics={"orders": 6}) as cluster:
        options = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "connector": sim.connector,
            "clock": sim.clock,
        }
        async with Producer(**options) as producer:
            await producer.send("orders", b"hello", partition=4)
        async with Consumer("orders", auto_offset_reset="earliest", **options) as consumer:
            record = await consumer.get(timeout=5.0)
            assert record is not None
            return record.value, sim.trace


def test_the_example_in_the_docstring_works() -> None:
    value, trace = Simulation(7).run(hello)
    assert value == b"hello"
    assert Simulation(7).run(hello) == (value, trace)
    assert Simulation(8).run(hello) != (value, trace)


def test_a_failure_names_the_seed() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster():
            await asyncio.sleep(5)
            raise ValueError("something is wrong")

    with pytest.raises(ValueError, match="something") as raised:
        Simulation(1234).run(main)
    assert "simulation seed 1234, at 5.000 virtual seconds" in raised.value.__notes__[0]


async def test_a_simulation_cannot_run_within_a_loop() -> None:
    with pytest.raises(IllegalStateError, match="a loop of its own"):
        Simulation(seed=1).run(lambda sim: asyncio.sleep(0))


def test_a_program_that_never_ends_is_stopped() -> None:
    async def main(sim: Simulation) -> None:
        for _ in itertools.count():
            await asyncio.sleep(60)

    with pytest.raises(SimulationError, match="still running"):
        Simulation(1, limit_s=3600).run(main)


def test_clusters_have_addresses_and_ids_of_their_own() -> None:
    async def main(sim: Simulation) -> int:
        async with sim.cluster(brokers=2) as one, sim.cluster(brokers=2) as other:
            addresses = f"{one.bootstrap_servers},{other.bootstrap_servers}".split(",")
            assert one.cluster_id != other.cluster_id
            return len(set(addresses))

    assert Simulation(1).run(main) == 4


def test_setting_the_wall_clock_does_not_change_the_monotonic_clock() -> None:
    async def main(sim: Simulation) -> list[float]:
        await asyncio.sleep(2)
        before = sim.clock.time_ms() - EPOCH_MS
        sim.clock.jump(-60)
        return [before, sim.clock.time_ms() - EPOCH_MS, sim.clock.monotonic()]

    assert Simulation(1).run(main) == [2_000, -58_000, 2.0]


def test_tasks_that_wait_for_less_than_the_clocks_resolution_do_not_spin() -> None:
    async def main(sim: Simulation) -> None:
        due = sim.clock.monotonic() + 1e-10

        async def wait(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            while (left := due - sim.clock.monotonic()) > 0:
                # If no callback was ready, the loop would wait for the timer. So these tasks take
                # turns.
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(left):
                        await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            for turns in range(4):
                group.create_task(wait(turns))

    Simulation(1).run(main)
