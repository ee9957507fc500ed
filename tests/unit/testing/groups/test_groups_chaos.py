"""Tests that a group settles after members, brokers, and coordinators came and went at random."""

import asyncio
import itertools

import pytest
from thinned import one_in
from virtual_group import in_virtual_time

from aiokclient.protocol import ApiKey

TURNS = 60
MOST = 6
REJOINS = {22, 27}
STRANGER = 25
FENCED = 82


class Life:
    """A member that joins, syncs, sends heartbeats, and rejoins as Kafka's clients do."""

    def __init__(self, chaos, member):
        self.chaos, self.member = chaos, member
        self.asks_anew = False
        self.task = asyncio.ensure_future(self.run())

    async def run(self):
        while True:
            try:
                await self.member.start()
                while True:
                    await self.generation()
            except (EOFError, OSError):
                # The connection is lost, or the broker is not the coordinator any more. Look for it
                # again.
                await asyncio.sleep(0.2)

    async def generation(self):
        code = await self.member.join()
        if code == 0:
            self.chaos.joined(self.member)
            code = await self.synced()
        while code == 0:
            await asyncio.sleep(0.5)
            code = await self.member.beat()
            if self.asks_anew or (code == 27 and self.chaos.resync):
                self.asks_anew = False
                code = await self.synced(b"new")
        if code in (STRANGER, FENCED):
            self.member.member_id = ""
        if code not in REJOINS:
            raise EOFError

    async def synced(self, prefix=b""):
        told = self.member.told if self.member.leads else ()
        code = await self.member.give({each: prefix + b"%d" % n for n, each in enumerate(told)})
        if code == 0:
            self.chaos.synced(self.member)
        return code

    def end(self):
        """End as if the process was killed, without a LeaveGroup request."""
        self.task.cancel()
        self.member.hang_up()

    async def leave(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.member.member_id:
            await asyncio.gather(self.member.leave(), return_exceptions=True)
        self.end()


class Chaos:
    """A sequence of random events, and the checks of invariants after each of them."""

    def __init__(self, world, resync):
        self.world, self.cluster, self.resync = world, world.cluster, resync
        self.rng = world.sim.rng
        self.names = itertools.count()
        self.lives = {}
        self.leaders, self.given = {}, {}
        self.down = None

    def joined(self, member):
        """Check that a generation has one leader, and that it receives the list of members."""
        if member.leads:
            assert self.leaders.setdefault(member.generation, member.member_id) == member.member_id
            assert member.member_id in member.told

    def synced(self, member):
        """Check that no other member has received this assignment in the generation."""
        if self.resync or not member.given:
            return
        known = self.given.setdefault(member.generation, {})
        assert known.setdefault(member.given, member.member_id) == member.member_id

    async def comes(self):
        if len(self.lives) < MOST:
            name = next(self.names)
            static = self.rng.random() < 0.3
            member = self.world.meet(f"static-{name}" if static else None)
            self.lives[name] = Life(self, member)

    def any(self):
        names = [each for each in self.lives if self.lives[each].member.member_id]
        return self.lives.pop(self.rng.choice(names)) if len(names) > 1 else None

    async def dies(self):
        life = self.any()
        if life is not None:
            life.end()

    async def leaves(self):
        life = self.any()
        if life is not None:
            await life.leave()

    async def moves(self):
        if self.down is None:
            self.cluster.move_coordinator("g")

    async def falls(self):
        if self.down is None:
            self.down = self.rng.choice(self.cluster.brokers)
            self.cluster.stop(self.down)
        else:
            self.cluster.start(self.down)
            self.down = None

    async def loads(self):
        with self.cluster.hold_loading("g"):
            await asyncio.sleep(self.rng.uniform(0, 3))

    async def rebalances(self):
        if "g" in self.cluster.groups:
            self.cluster.rebalance("g")

    async def loses(self):
        api = self.rng.choice([ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
        self.cluster.drop(api, when=self.rng.choice(["before", "after"]), times=1)

    async def changes(self):
        for each in self.lives.values():
            each.member.metadata = b"%d" % self.rng.randrange(3)
            each.asks_anew = each.member.leads

    async def run(self):
        things = [self.comes, self.comes, self.dies, self.leaves, self.moves, self.falls]
        things += [self.loads, self.rebalances, self.loses, self.changes]
        for _ in range(TURNS):
            await self.rng.choice(things)()
            await asyncio.sleep(self.rng.expovariate(0.7))
        if self.down is not None:
            self.cluster.start(self.down)
        self.cluster.reset()
        await self.comes()

    def is_settled(self):
        group = self.cluster.groups.get("g")
        if group is None or group.state != "Stable":
            return False
        here = {life.member.member_id for life in self.lives.values()}
        given = [each.assignment for each in group.members.values()]
        return set(group.members) == here and len(set(given)) == len(given)


@pytest.mark.parametrize("seed", one_in(6, range(6)))
@pytest.mark.parametrize(
    ("resync", "persist"), [(False, True), (True, True), (False, False)], ids=str
)
def test_a_group_settles_after_random_failures(seed, resync, persist):
    async def scenario(world):
        chaos = Chaos(world, resync)
        if not persist:
            # Generation ids start again with each coordinator, so they are not checked.
            chaos.joined = chaos.synced = lambda member: None
        await chaos.run()
        await world.cluster.until(chaos.is_settled, 200)
        generation = world.group.generation
        await asyncio.sleep(60)
        assert chaos.is_settled()
        assert world.group.generation == generation
        for each in chaos.lives.values():
            assert not each.task.done()
            each.end()
        await asyncio.gather(*(each.task for each in chaos.lives.values()), return_exceptions=True)
        return generation

    options = {"resync": resync, "persist_groups": persist}
    assert in_virtual_time(scenario, 0, seed=seed, brokers=3, **options) > 0
