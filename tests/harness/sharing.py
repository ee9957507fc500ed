"""Group members for tests: a protocol that records its calls, and a task for each member."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokclient import GroupMember, GroupProtocol
from aiokclient.group.generation import GroupGeneration

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]]


def names(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Assign to each member its own metadata and the number of members."""
    return {member: b"%s of %d" % (metadata, len(members)) for member, metadata in members.items()}


class Sharing(GroupProtocol):
    """A protocol with the metadata `says`. It assigns with `how`, and records calls in `asked`."""

    def __init__(self, says: str, name: str = "sharing", how: Assign = names) -> None:
        self.name, self.says, self.how = name, says, how
        self.asked: list[dict[str, bytes]] = []

    def metadata(self) -> bytes:
        return self.says.encode()

    def assign(
        self, members: Mapping[str, bytes]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        self.asked.append(dict(members))
        return self.how(members)


class Life:
    """A member that enters every generation, and a log of them.

    `log` has the (generation id, assignment) of each entered generation, and `errors` has the
    errors of the iteration. `now` is the current generation.
    """

    def __init__(self, member: GroupMember, *protocols: Sharing) -> None:
        self.member, self.protocols = member, protocols
        self.log: list[tuple[int, bytes]] = []
        self.errors: list[Exception] = []
        self.now: GroupGeneration | None = None
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def live(self) -> None:
        generations = self.member.generations()
        while True:
            try:
                generation = await anext(generations)
            except StopAsyncIteration:
                return
            except Exception as error:
                self.errors.append(error)
                self.changed.set()
                if getattr(self.member, "_failure", None) is not None:
                    return
                continue
            await self.enter(generation)

    async def enter(self, generation: GroupGeneration) -> None:
        async with generation as now:
            self.now = now
            self.log.append((now.generation_id, now.assignment))
            self.changed.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.now = None
                self.changed.set()

    async def until(self, predicate: Callable[["Life"], Any]) -> Any:
        """Wait until the predicate returns a true value, and return that value."""
        async with asyncio.timeout(60):
            while not (said := predicate(self)):
                self.changed.clear()
                await self.changed.wait()
        return said

    @property
    def generation(self) -> int:
        """The id of the current generation, or -1."""
        return -1 if self.now is None else self.now.generation_id

    @property
    def assignment(self) -> bytes | None:
        return None if self.now is None else self.now.assignment


@asynccontextmanager
async def living(*lives: Life) -> AsyncIterator[None]:
    """Start the members, run their tasks within the block, and close them."""
    tasks = [asyncio.create_task(begin(life)) for life in lives]
    for life, task in zip(lives, tasks, strict=True):
        life.task = task
    try:
        yield
        for life in lives:
            if life.task is not None and life.task.done():
                life.task.result()
    finally:
        for life in lives:
            await life.member.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def begin(life: Life) -> None:
    await life.member.start()
    await life.live()


async def together(*lives: Life, after: int = -1) -> int:
    """Wait until all members are in one generation, with an id above `after`. Return the id."""
    async with asyncio.timeout(60):
        while True:
            ids = {life.generation for life in lives}
            if len(ids) == 1 and min(ids) > after and count_agrees(lives):
                return ids.pop()
            waits = [asyncio.create_task(life.changed.wait()) for life in lives]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            for life in lives:
                life.changed.clear()


def count_agrees(lives: tuple[Life, ...]) -> bool:
    """Return whether each assignment states the right number of members.

    Only assignments by `names` state a number.
    """
    return all(
        life.protocols[0].how is not names
        or (life.assignment or b"").endswith(b" of %d" % len(lives))
        for life in lives
    )
