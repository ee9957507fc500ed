"""`rewind_group` while the leader, the coordinator, owners, or the calling member fail."""

import asyncio
import os
from typing import Any

import pytest
from owned import until
from rewinding import (
    COUNT,
    PARTITIONS,
    TPS,
    Herd,
    at,
    fail_over,
    herd,
    noted,
    orders_in,
    rewinds,
)
from thinned import IS_WHOLE, in_turns
from world import World, simulate

from aiokclient.consumer.membership.rewind import requests as rewind_requests
from aiokclient.errors import (
    ApiTimeoutError,
    CoordinatorLoadInProgressError,
    IllegalGenerationError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    RebalanceInProgressError,
)
from aiokclient.protocol import ApiKey

ONE = os.environ.get("AIOKCLIENT_REWIND_SEED")
WANTED = int(os.environ.get("AIOKCLIENT_REWIND_SEEDS") or 0)
SEEDS = [int(ONE)] if ONE else range(WANTED or (12 if IS_WHOLE else 3))
EAGER_OR_COOPERATIVE = ("range", "cooperative-sticky")
STRATEGIES = pytest.mark.parametrize("strategy", EAGER_OR_COOPERATIVE, ids=["eager", "cooperative"])
BACK = {tp: 5 + tp.partition for tp in TPS}


def play(scenario: Any, seed: int = 1) -> None:
    simulate(scenario, seed=seed, brokers=2, topics={"t": PARTITIONS})


def jumps(group: Herd) -> list[Any]:
    return sorted(group.history.jumps)


@STRATEGIES
@pytest.mark.parametrize("when", ["before its sync", "its sync is lost", "after its sync"])
def test_a_rewind_is_carried_out_once_when_the_leader_dies(strategy: str, when: str) -> None:
    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        leader = group.leader()
        by = next(name for name in group.members if name != leader)
        if when == "before its sync":
            at(world, ApiKey.SYNC_GROUP, "before", orders_in, lambda: group.kill(leader))
        elif when == "its sync is lost":
            at(world, ApiKey.SYNC_GROUP, "after", orders_in, lambda: group.kill(leader))
        call = group.order(by, BACK)
        if when == "after its sync":
            await world.cluster.until(
                lambda: any(orders_in(r.message) for r in world.requests(ApiKey.SYNC_GROUP))
            )
            await group.group_is("Stable")
            group.kill(leader)
        assert (await call).error is None
        await group.end()
        # Before its death, the leader may have rewound its own partitions.
        assert set(jumps(group)) <= set(BACK.items())
        assert len(jumps(group)) >= PARTITIONS - 2

    play(scenario)


@pytest.mark.parametrize(
    ("strategy", "what", "when"),
    in_turns(2, EAGER_OR_COOPERATIVE, ["join", "sync", "commit"], ["before", "after"]),
)
def test_a_rewind_is_carried_out_once_when_the_coordinator_moves(
    strategy: str, what: str, when: str
) -> None:
    """The rewind request is carried out once, and the call returns."""
    api, which = {
        "join": (ApiKey.JOIN_GROUP, orders_in),
        "sync": (ApiKey.SYNC_GROUP, orders_in),
        "commit": (ApiKey.OFFSET_COMMIT, rewinds),
    }[what]

    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        at(world, api, when, which, lambda: fail_over(world))
        assert (await group.order("m1", BACK)).error is None
        await group.end()
        group.history.check_times(BACK)

    play(scenario)


@pytest.mark.parametrize(
    ("strategy", "state", "persisted"),
    in_turns(
        2,
        EAGER_OR_COOPERATIVE,
        ["PreparingRebalance", "CompletingRebalance", "Stable"],
        [True, False],
    ),
)
def test_a_rewind_is_carried_out_once_when_the_coordinator_moves_in_each_state(
    strategy: str, state: str, persisted: bool
) -> None:
    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        before = world.cluster.groups["g"].generation
        call = group.order("m2", BACK)
        await group.group_is("PreparingRebalance")
        await world.cluster.until(
            lambda: world.cluster.groups["g"].generation > before or state == "PreparingRebalance"
        )
        await group.group_is(state)
        fail_over(world)
        assert (await call).error is None
        await group.end()
        if persisted:
            group.history.check_times(BACK)

    topics = {"t": PARTITIONS}
    simulate(scenario, brokers=2, topics=topics, persist_groups=persisted)


@STRATEGIES
@pytest.mark.parametrize("when", ["joined", "assigned", "committed"])
def test_a_rewind_ends_cleanly_when_its_caller_dies(strategy: str, when: str) -> None:
    """If the caller dies, partitions that its request has reached are rewound once.

    The others are not rewound, even if the caller returns.
    """
    api, which = {
        "joined": (ApiKey.JOIN_GROUP, orders_in),
        "assigned": (ApiKey.SYNC_GROUP, orders_in),
        "committed": (ApiKey.OFFSET_COMMIT, rewinds),
    }[when]

    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        by = next(name for name in group.members if name != group.leader())
        at(world, api, "after", which, lambda: group.kill(by))
        group.order(by, BACK, timeout=20.0)
        await world.cluster.until(lambda: by not in group.members)
        await group.whole()
        group.join()
        await group.end()
        assert len(set(jumps(group))) == len(jumps(group))

    play(scenario)


@STRATEGIES
def test_a_static_caller_that_returns_rewinds_its_own_partitions(strategy: str) -> None:
    """A caller that returns with its instance id gets its former assignment.

    This assignment contains the rewind request, so the caller rewinds its own partitions now.
    """

    async def scenario(world: World) -> None:
        group = Herd(world, strategy)
        for n in range(3):
            group.join(group_instance_id=f"i{n}")
        await group.whole()
        by = next(name for name in group.members if name != group.leader())
        index = list(group.members).index(by)
        at(world, ApiKey.SYNC_GROUP, "after", orders_in, lambda: group.kill(by))
        group.order(by, BACK, timeout=20.0)
        await world.cluster.until(lambda: by not in group.members)
        for _ in range(2):
            back = group.join(group_instance_id=f"i{index}")
            await group.whole()
            group.kill(back)
        group.join(group_instance_id=f"i{index}")
        await group.end()
        assert len(set(jumps(group))) == len(jumps(group))

    play(scenario)


COMMITS: dict[str, dict[str, Any]] = {
    "automatic": {},
    "by hand": {"enable_auto_commit": False, "says": "mine"},
}


@STRATEGIES
@pytest.mark.parametrize("commits", COMMITS.values(), ids=COMMITS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rewind_is_not_lost_when_an_owner_dies_around_its_commit(
    strategy: str, when: str, commits: dict[str, Any]
) -> None:
    """An owner that dies before its commit leaves the rewind to the next owner.

    If it dies after the commit, the next owner begins at the rewound offset, and does not rewind
    again.
    """

    async def scenario(world: World) -> None:
        group = await herd(world, strategy, **commits)
        victim = group.owner(TPS[0])
        by = next(name for name in group.members if name != victim)
        own = group.id_of(victim)
        at(
            world,
            ApiKey.OFFSET_COMMIT,
            when,
            lambda request: rewinds(request) and request.member_id == own,
            lambda: group.kill(victim),
        )
        assert (await group.order(by, BACK)).error is None
        await group.end()
        assert len(jumps(group)) >= PARTITIONS - 1
        assert set(jumps(group)) <= set(BACK.items())

    play(scenario)


@pytest.mark.parametrize(
    ("strategy", "between"), in_turns(2, EAGER_OR_COOPERATIVE, [0.002, 0.05, 0.3])
)
def test_two_concurrent_rewind_requests_both_return(strategy: str, between: float) -> None:
    """Both calls return.

    If one rebalance carries both requests, the later one decides. Otherwise, the later one is
    carried out in the next rebalance.
    """

    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        first = group.order("m1", {TPS[0]: 5})
        await asyncio.sleep(between)
        second = group.order("m2", {TPS[0]: 9})
        assert ((await first).error, (await second).error) == (None, None)
        await group.end()
        actual = [(await call).actual[TPS[0]] for call in (first, second)]
        assert set(actual) <= {5, 9}
        assert group.history.jumps[-1][1] in actual
        outcomes.append(group.history.jumps)
        if between > 0.01:
            # If less time is between the two calls, either request may be carried out first.
            assert group.history.jumps[-1] == (TPS[0], 9)

    outcomes: list[Any] = []
    for seed in (1, 1, 2):
        play(scenario, seed)
    assert outcomes[0] == outcomes[1] != []


@STRATEGIES
def test_rewind_group_returns_the_ends_of_a_log_while_its_leader_is_unknown(strategy: str) -> None:
    """An owner moves offsets outside the log to its start or end, and repeats a failed lookup."""

    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        low, high, inside, end = TPS
        world.cluster.delete_records("t", low.partition, before=7)
        fault = world.cluster.fail(ApiKey.LIST_OFFSETS, LeaderNotAvailableError, times=6)
        wanted = {low: 2, high: COUNT + 999, inside: 12, end: COUNT}
        actual = {low: 7, high: COUNT, inside: 12, end: COUNT}
        group.history.due.update(actual.items())
        call = await group.order("m1", wanted)
        assert (call.error, call.actual, fault.hits) == (None, actual, 6)
        await group.whole()
        assert {jump for jump in group.history.jumps if jump[1] < COUNT} == {(low, 7), (inside, 12)}
        for name in list(group.members):
            await group.leave(name)

    play(scenario)


def test_rewind_group_keeps_an_offset_of_an_open_transaction() -> None:
    """For a rewind, the log ends at the high watermark, also for a read_committed consumer."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 5)
        world.cluster.produce("t", [b"v"] * 3, producer_id=1, transactional=True)
        options = {"isolation_level": "read_committed", "heartbeat_interval_ms": 500}
        async with world.consumer("t", group_id="g", **options) as consumer:
            reader = asyncio.create_task(consumer.poll(timeout=30.0))
            assert await consumer.rewind_group({TPS[0]: 6}) == {TPS[0]: 6}
            assert await consumer.rewind_group({TPS[0]: 99}) == {TPS[0]: 8}
            assert await consumer.end_offsets([TPS[0]]) == {TPS[0]: 5}
            await reader

    play(scenario)


@STRATEGIES
def test_a_rewind_is_carried_out_while_partitions_move(strategy: str) -> None:
    async def scenario(world: World) -> None:
        group = await herd(world, strategy, 2)
        call = group.order("m1", BACK)
        group.join()
        await asyncio.sleep(0.3)
        group.join()
        await group.leave("m2")
        assert (await call).error is None
        await group.end()
        group.history.check_times(BACK)

    play(scenario)


@STRATEGIES
def test_a_cancelled_rewind_leaves_the_group_working(strategy: str) -> None:
    """A call may be cancelled at any moment.

    The group goes on, and the same member can rewind it again.
    """

    async def scenario(world: World, moment: float) -> None:
        group = await herd(world, strategy, 2)
        first = group.order("m1", BACK)
        await asyncio.sleep(moment)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = dict.fromkeys(TPS, 3)
        assert (await group.order("m1", again)).error is None
        await group.end()
        assert set(jumps(group)) <= {*BACK.items(), *again.items()}

    for moment in (0.0, 0.02, 0.1, 0.5, 1.0):
        play(lambda world, moment=moment: scenario(world, moment))


@STRATEGIES
def test_the_error_names_partitions_that_were_not_rewound(strategy: str) -> None:
    """The error names the partitions that could not be rewound because of records in progress."""

    async def scenario(world: World) -> None:
        group = await herd(world, strategy, 2)
        group.pause_s = 15.0
        assert (await group.order("m1", BACK)).error is None
        await until(lambda: group.at_work() == 2)
        error = (await group.order("m2", dict.fromkeys(TPS, 3), timeout=2.0)).error
        assert isinstance(error, ApiTimeoutError)
        stored = world.cluster.committed("g")
        left = [tp for tp in TPS if str(tp) in str(error)]
        assert left == [tp for tp in TPS if stored[tp].offset != 3]
        # With the eager protocol, a record in progress delays the rewind of all partitions;
        # otherwise, only of its own partition.
        assert len(left) == (4 if strategy == "range" else 2)
        group.pause_s = 0.0
        await group.end()

    play(scenario)


@STRATEGIES
@pytest.mark.parametrize("says", ["", "mine"])
def test_commit_metadata_of_the_program_survives_a_rewind(strategy: str, says: str) -> None:
    """The program's commit metadata is kept, and does not hide that a rewind was done."""

    async def scenario(world: World) -> None:
        group = await herd(world, strategy, says=says, enable_auto_commit=not says)
        assert (await group.order("m1", BACK)).error is None
        assert (await group.order("m2", dict.fromkeys(TPS, 2), timeout=20.0)).error is None
        await group.whole()
        group.join()
        await group.whole()
        stored = await group.members["m1"][0].committed(TPS)
        assert [s and s.metadata for s in stored.values()] == [says] * PARTITIONS
        await group.end()

    play(scenario)


@STRATEGIES
@pytest.mark.parametrize(
    "error", [NotCoordinatorError, RebalanceInProgressError, IllegalGenerationError]
)
def test_no_record_is_delivered_again_before_the_rewound_offset_is_committed(
    strategy: str, error: Any
) -> None:
    """An owner delivers no record again before the group has committed the rewound offset."""

    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        victim = group.owner(TPS[0])
        own = group.id_of(victim)
        fault = world.cluster.fail(
            ApiKey.OFFSET_COMMIT, error, where=lambda r: noted(r) and r.member_id == own
        )
        call = group.order(next(name for name in group.members if name != victim), BACK)
        await world.cluster.until(lambda: fault.hits > 2)
        await asyncio.sleep(1)
        assert group.history.times[TPS[0], COUNT - 1] == 1
        group.kill(victim)
        assert (await call).error is None
        await group.end()
        group.history.check_times(BACK)

    play(scenario)


def test_an_earlier_commit_does_not_count_as_the_rewind() -> None:
    """A commit that was requested before the seek does not count as the commit of the rewind.

    This holds even if the coordinator stores it after the seek.
    """

    async def scenario(world: World) -> None:
        group = await herd(world, "cooperative-sticky")
        with world.cluster.fail(ApiKey.OFFSET_COMMIT, CoordinatorLoadInProgressError):
            old = {group.owner(tp): tp for tp in TPS}
            commits = [
                asyncio.create_task(group.members[name][0].commit({tp: COUNT}))
                for name, tp in old.items()
            ]
            call = group.order("m1", BACK)
            await asyncio.sleep(3)
        await asyncio.gather(*commits)
        assert (await call).error is None
        await group.end()
        group.history.check_times(BACK)
        first: dict[int, int] = {}
        for request in world.requests(ApiKey.OFFSET_COMMIT):
            for topic in request.message.topics if noted(request.message) else ():
                for each in topic.partitions:
                    if rewind_requests.note_in(each.committed_metadata):
                        first.setdefault(each.partition_index, each.committed_offset)
        assert first == {tp.partition: offset for tp, offset in BACK.items()}

    play(scenario)


@STRATEGIES
def test_a_rewind_survives_a_rebalance_during_its_offset_lookup(strategy: str) -> None:
    """A rewind is carried out although a rebalance interrupts the lookup of committed offsets.

    State of the earlier assignment does not affect the new one.
    """

    async def scenario(world: World) -> None:
        group = await herd(world, strategy)
        sync = world.requests(ApiKey.SYNC_GROUP)
        call = group.order("m1", BACK, timeout=30.0)
        await group.group_is("CompletingRebalance")
        with world.cluster.fail(ApiKey.OFFSET_FETCH, CoordinatorLoadInProgressError):
            await group.group_is("Stable")
            await asyncio.sleep(0.5)
            world.cluster.rebalance("g")
            await group.group_is("CompletingRebalance")
            await group.group_is("Stable")
            await asyncio.sleep(0.02)
        assert len(world.requests(ApiKey.SYNC_GROUP)) > len(sync) + 3
        assert (await call).error is None
        await group.end()
        group.history.check_times(BACK)

    play(scenario)


async def walk(group: Herd) -> None:
    """Do ten random steps: rewind requests, members that join and leave, coordinators that move."""
    world, rng = group.world, group.rng
    free = {tp: list(range(1, COUNT - 5)) for tp in TPS}
    calls = []
    for _ in range(10):
        group.check()
        names = list(group.members)
        action = rng.choice(["order", "order", "order", "join", "leave", "kill", "move"])
        if action == "order":
            stored = world.cluster.committed("g")
            offsets = {}
            for tp in rng.sample(TPS, rng.randint(1, len(TPS))):
                reached = stored[tp].offset if tp in stored else 0
                below = [offset for offset in free[tp] if offset <= reached]
                if below:
                    offsets[tp] = rng.choice(below)
                    free[tp].remove(offsets[tp])
            calls.append(group.order(rng.choice(names), offsets))
        elif action == "join" or len(names) < 2:
            group.join()
        elif action == "leave":
            await group.leave(rng.choice(names))
        elif action == "kill":
            group.kill(rng.choice(names))
        else:
            fail_over(world)
        await asyncio.sleep(rng.choice((0.0, 0.01, 0.05, 0.3, 1.0, 4.0)))
    for call in calls:
        await call


@pytest.mark.fault(5, 40, 41)
@STRATEGIES
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_walk_of_rewinds_and_failures_loses_nothing(strategy: str, seed: int) -> None:
    async def scenario(world: World) -> None:
        group = await herd(world, strategy, seed=seed)
        group.pause_s = 0.01
        await walk(group)
        await group.end()

    play(scenario, seed)
