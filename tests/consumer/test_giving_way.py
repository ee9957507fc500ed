"""`async for` and the loop: a program that awaits nothing else lets others have their turns."""

import asyncio
import contextlib

import anyio
from world import World, simulate


def test_an_iteration_gives_way_to_the_loop() -> None:
    """A program that never awaits anything else still lets timeouts in."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 5_000)
        async with world.consumer("t") as consumer:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            seen = 0
            async for record in consumer:
                if seen == 0:
                    ticks = 0
                seen += 1
                # A slow program, in virtual time.
                world.sim.loop.leap(0.001)
                if record.offset == 1_999:
                    break
            # A tick is three turns: its timer, its wake-up, and the one that it missed.
            assert ticks >= 2_000 / 10 / 3 - 5
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking

    simulate(scenario)


def test_a_timeout_around_a_loop_that_never_waits() -> None:
    async def scenario(world: World) -> None:
        for _ in range(5):
            world.cluster.produce("t", [b"v"] * 10_000)
        async with world.consumer("t") as consumer:
            offsets: list[int] = []
            with anyio.move_on_after(0.1):
                async for record in consumer:
                    offsets.append(record.offset)
                    world.sim.loop.leap(0.0001)
            assert 0 < len(offsets) < 2_000
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 49_999:
                    break
            assert offsets == list(range(50_000))

    simulate(scenario)
