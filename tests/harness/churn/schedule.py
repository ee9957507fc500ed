"""Random schedules for a group: members join, leave, are killed, hang, and return."""

from collections.abc import Awaitable, Callable

from .crowd import Crowd, Process

MOST = 8
ACTIONS = {
    "join": 2,
    "leave": 1,
    "kill": 1,
    "hang": 1,
    "stutter": 1,
    "replace": 1,
    "flood": 1,
    "ebb": 1,
}
"""The number of times that each action occurs in a schedule."""


async def churn(crowd: Crowd) -> None:
    """Run one schedule, after which some members are running and own all partitions."""
    chosen = [action for action, count in ACTIONS.items() for _ in range(count)]
    crowd.rng.shuffle(chosen)
    crowd.join("process")
    await crowd.progress(20)
    for action in chosen:
        await DO[action](crowd)
        if crowd.rng.random() < 0.3:
            await crowd.settled()
        await crowd.progress(crowd.rng.randint(5, 60))
    await crowd.settled()


async def one_more(crowd: Crowd) -> str:
    """Add a member. About a third of the members are tasks in the process of the test."""
    return crowd.join("task" if crowd.rng.random() < 0.3 else "process")


async def join(crowd: Crowd) -> None:
    if len(crowd.live) < MOST:
        await one_more(crowd)


async def flood(crowd: Crowd) -> None:
    """Add members, without a pause, until the group has its maximum size."""
    while len(crowd.live) < MOST:
        await one_more(crowd)


async def ebb(crowd: Crowd) -> None:
    """End all members but one, in different ways."""
    names = list(crowd.live)
    crowd.rng.shuffle(names)
    for name in names[1:]:
        await (crowd.leave(name) if crowd.rng.random() < 0.5 else crowd.kill(name))


async def with_another(crowd: Crowd) -> str:
    """Return a started member of this library whose partitions another member can take over."""
    while True:
        names = [name for name, each in crowd.live.items() if isinstance(each, Process)]
        if names and len(crowd.live) > 1:
            break
        crowd.join("process")
    name: str = crowd.rng.choice(names)
    await crowd.until(lambda: crowd.log.of(name, "started"))
    return name


async def leave(crowd: Crowd) -> None:
    if len(crowd.live) < 2:
        await one_more(crowd)
    await crowd.leave(crowd.rng.choice(list(crowd.live)))


async def kill(crowd: Crowd) -> None:
    await crowd.kill(await with_another(crowd))


async def stutter(crowd: Crowd) -> None:
    """Suspend a member until 20 more records are processed.

    It may lose its membership meanwhile.
    """
    name = await with_another(crowd)
    crowd.suspend(name)
    await crowd.progress(20)
    crowd.resume(name)


async def hang(crowd: Crowd) -> None:
    """Suspend a member with a record in progress until others own its partitions.

    After that, its commit must be refused.
    """
    name = await with_another(crowd)
    await crowd.settled()
    crowd.order(name, "hold")
    await crowd.until(lambda: crowd.log.of(name, "holding"))
    crowd.suspend(name)
    _, _, _, (partition, _) = crowd.log.of(name, "holding")[-1]
    await crowd.settled()
    commits = len(crowd.log.of(name, "commit"))
    crowd.order(name, "go")
    crowd.resume(name)
    await crowd.until(lambda: len(crowd.log.of(name, "commit")) > commits)
    *_, error = crowd.log.of(name, "commit")[commits].data
    crowd.expect(error, f"{name} has committed {partition}, which was another's")


async def replace(crowd: Crowd) -> None:
    """End a static member, and start it again with the same instance id in a new process."""
    instance = f"i{len(crowd.instances)}"
    name = crowd.join("process", instance=instance)
    await crowd.settled()
    await crowd.leave(name)
    crowd.join("process", instance=instance)


DO: dict[str, Callable[[Crowd], Awaitable[None]]] = {
    "join": join,
    "leave": leave,
    "kill": kill,
    "hang": hang,
    "stutter": stutter,
    "replace": replace,
    "flood": flood,
    "ebb": ebb,
}
