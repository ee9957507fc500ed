"""When a member returns after its session has ended, it cannot commit the record in progress."""

import asyncio
from typing import Any

import pytest
from group_world import KIP848, Diary, committed, fill, member, part
from thinned import one_in
from world import World, simulate

from aiokclient.errors import KafkaError

SESSION_MS = 6000
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": SESSION_MS},
    "kip848": KIP848,
}


@pytest.mark.fault(18)
@pytest.mark.parametrize("seed", one_in(3, range(6)))
@pytest.mark.parametrize("back", [False, True], ids=["of another", "had by another"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_late_commit_of_a_lost_partition_is_refused(protocol: str, back: bool, seed: int) -> None:
    """The commit is refused while another member owns the partition, and after it has left."""

    async def scenario(world: World) -> None:
        fill(world, 50)
        options, diary = PROTOCOLS[protocol], Diary()
        async with member(world, name="late", **options) as late:
            record = await late.get(timeout=60)
            other = member(world, diary, "other", **options)
            await other.start()
            part(world, "late")
            await diary.until(lambda: diary.owned)
            taken = await other.poll(timeout=60, max_records=20)
            await other.commit()
            assert len(taken) == 20
            if back:
                await other.close()
            world.network.heal()
            with pytest.raises(KafkaError):
                await late.commit(record)
            assert committed(world) == 20
            await asyncio.wait_for(other.close(), 60)

    configs = {"group.consumer.session.timeout.ms": SESSION_MS}
    simulate(scenario, seed=seed, brokers=2, topics={"t": 1}, configs=configs)
