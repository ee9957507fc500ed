"""The faults that `explore` injects into a run of a service, and how a seed chooses them.

A fault is a value: it has the virtual time at which it happens, `at`, in seconds since the start of
the run, and what else it needs. Its `repr` is Python, so that the faults of a run can be printed
and injected again: `explore(service, faults=[KillService(at=3.2)])`. A class of faults, as in
`faults=[KillService]`, stands for any number of faults of this class, which each seed draws.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Final

from aiokclient.errors import (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.testing.exploration.running import ServiceRun

FAULTS_S: Final = 10.0
"""The virtual seconds within which the faults of a seed begin."""
MOST_FAULTS: Final = 8
MOST_CLASSES: Final = 4
MOST_TASKS: Final = 60
"""The number of tasks among which a seed chooses one to cancel."""
MOMENTS: Final = ("commit", "handled", "http", "produce")
"""The events that a fault may wait for: a response to a commit or to a produce request, a record
that was handled, and an answer of an application to an HTTP request."""
_DELAYS_S: Final = (0.0, 0.0, 0.001, 0.003, 0.01, 0.05)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class ServiceFault:
    """Something that goes wrong at the virtual time `at`, in seconds.

    With `after`, it happens `delay` seconds after the first such moment after that time: "commit"
    or "produce" is the execution of such a request, before its response, "handled" a record that
    was handled, and "http" the answer of an application, before its client gets it. If there is
    none within five seconds, the fault happens then.
    """

    at: float
    after: str = ""
    delay: float = 0.0
    moments: ClassVar[tuple[str, ...]] = MOMENTS
    """The moments at which a fault of this class may happen."""

    def __repr__(self) -> str:
        """Return the call of the constructor, without defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        given = [
            f"{each.name}={values[each.name]!r}"
            for each in fields(self)
            if values[each.name] != each.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        """Return a fault with arguments that `rng` determines."""
        return cls(*cls.draw_time(rng))

    @classmethod
    def draw_time(cls, rng: random.Random) -> tuple[float, str, float]:
        """Return `at`, `after`, and `delay` for a fault."""
        at = round(rng.uniform(0.0, FAULTS_S), 3)
        if not cls.moments or rng.random() < 0.5:
            return at, "", 0.0
        return at, rng.choice(cls.moments), rng.choice(_DELAYS_S)

    async def inject(self, run: ServiceRun) -> None:
        """Let the fault happen, and return when it is over."""
        raise NotImplementedError


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class CutConnections(ServiceFault):
    """All connections to one broker, or with `broker=0` to all, are reset."""

    broker: int = 0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        return cls(*cls.draw_time(rng), broker=rng.randint(0, brokers))

    async def inject(self, run: ServiceRun) -> None:
        run.sim.network.cut(run.name_broker(self.broker) if self.broker else None)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class LoseReplies(ServiceFault):
    """The connections of the next `times` requests of an API are cut instead of an answer.

    The requests are executed.
    """

    api: str = "PRODUCE"
    times: int = 1
    seconds: float = 4.0
    moments: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        api = rng.choice(("PRODUCE", "PRODUCE", "OFFSET_COMMIT", "FETCH", "END_TXN"))
        return cls(*cls.draw_time(rng), api=api, times=rng.randint(1, 3))

    async def inject(self, run: ServiceRun) -> None:
        with run.sim.kafka.drop(ApiKey[self.api], when="after", times=self.times):
            await run.wait(self.seconds)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class RefuseRequests(ServiceFault):
    """Brokers refuse the next `times` requests of an API with an error that passes.

    The leader or the coordinator is another one, or too few replicas are in sync.
    """

    api: str = "PRODUCE"
    times: int = 3
    seconds: float = 3.0
    moments: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        return cls(*cls.draw_time(rng), api=rng.choice(list(_REFUSALS)), times=rng.randint(1, 5))

    async def inject(self, run: ServiceRun) -> None:
        error = _REFUSALS[self.api]
        with run.sim.kafka.fail(ApiKey[self.api], error, times=self.times):
            await run.wait(self.seconds)


_REFUSALS: Final = {
    "PRODUCE": NotEnoughReplicasError,
    "FETCH": NotLeaderOrFollowerError,
    "OFFSET_COMMIT": NotCoordinatorError,
    "FIND_COORDINATOR": CoordinatorNotAvailableError,
}


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class SlowNetwork(ServiceFault):
    """Each write takes up to `latency` seconds to arrive, for `seconds`."""

    latency: float = 0.5
    seconds: float = 3.0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        latency, seconds = rng.choice((0.05, 0.3, 1.0)), round(rng.uniform(0.5, 5.0), 3)
        return cls(*cls.draw_time(rng), latency=latency, seconds=seconds)

    async def inject(self, run: ServiceRun) -> None:
        network = run.sim.network
        former, network.weather = network.weather, Weather(latency_s=(0.0, self.latency))
        await run.wait(self.seconds)
        network.weather = former


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class MoveLeaders(ServiceFault):
    """The leaders of all partitions, and the coordinators of all groups, move to other brokers."""

    async def inject(self, run: ServiceRun) -> None:
        run.move_leaders()


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class StopBroker(ServiceFault):
    """A broker dies, and starts again after `seconds`. Other replicas lead its partitions."""

    broker: int = 1
    seconds: float = 3.0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        seconds = round(rng.uniform(0.5, 5.0), 3)
        return cls(*cls.draw_time(rng), broker=rng.randint(1, brokers), seconds=seconds)

    async def inject(self, run: ServiceRun) -> None:
        run.sim.kafka.stop(self.broker)
        run.note_broker(self.broker, "down", "the broker stopped")
        await run.wait(self.seconds)
        run.sim.kafka.start(self.broker)
        run.note_broker(self.broker, "up", "the broker started")


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class PauseBroker(ServiceFault):
    """A broker accepts connections but answers nothing, for `seconds`. It stays the leader."""

    broker: int = 1
    seconds: float = 3.0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        seconds = round(rng.uniform(0.5, 5.0), 3)
        return cls(*cls.draw_time(rng), broker=rng.randint(1, brokers), seconds=seconds)

    async def inject(self, run: ServiceRun) -> None:
        run.sim.kafka.pause(self.broker)
        run.note_broker(self.broker, "down", "the broker answers nothing")
        await run.wait(self.seconds)
        run.sim.kafka.resume(self.broker)
        run.note_broker(self.broker, "up", "the broker answers again")


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class Rebalance(ServiceFault):
    """All groups rebalance. Each member may keep its partitions."""

    async def inject(self, run: ServiceRun) -> None:
        run.rebalance_groups()


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class ScaleOut(ServiceFault):
    """A second instance of the service starts, so that partitions move to it.

    It is asked to end after `seconds`.
    """

    seconds: float = 4.0
    moments: ClassVar[tuple[str, ...]] = ("commit", "handled")

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        return cls(*cls.draw_time(rng), seconds=round(rng.uniform(1.0, 8.0), 3))

    async def inject(self, run: ServiceRun) -> None:
        await run.scale_out(self.seconds)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class CancelService(ServiceFault):
    """The task of each instance is cancelled, as at Ctrl-C, and the service starts again.

    An instance that awaits `sim.stopped()` is told that way instead. The new one starts when the
    old one has ended.
    """

    async def inject(self, run: ServiceRun) -> None:
        await run.restart_service()


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class CancelTask(ServiceFault):
    """One task of the service is cancelled, whichever it is, and nothing else.

    `number` counts the tasks that run at that time from 0, in the order of their creation: the
    first one is that of the service itself. A number that is too large goes on from the start. The
    tasks in which clients work in the background are not counted.
    """

    number: int = 0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        return cls(*cls.draw_time(rng), number=rng.randrange(MOST_TASKS))

    async def inject(self, run: ServiceRun) -> None:
        run.cancel_task(self.number)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class KillService(ServiceFault):
    """The process of each instance is killed, and the service starts again after `seconds`."""

    seconds: float = 0.5

    async def inject(self, run: ServiceRun) -> None:
        if run.kill_service():
            await run.start_after(self.seconds)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class StallService(ServiceFault):
    """The process does not run for `seconds`, as on a busy machine.

    Brokers see the service late: what they wait for is overdue.
    """

    seconds: float = 2.0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        return cls(*cls.draw_time(rng), seconds=rng.choice((0.3, 2.0, 12.0)))

    async def inject(self, run: ServiceRun) -> None:
        run.sim.loop.leap(self.seconds)


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class SlowHandlers(ServiceFault):
    """Each `sim.work()` and each HTTP request takes `longer` seconds longer, for `seconds`."""

    longer: float = 1.0
    seconds: float = 3.0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        longer, seconds = rng.choice((0.2, 1.0, 7.0)), round(rng.uniform(0.5, 5.0), 3)
        return cls(*cls.draw_time(rng), longer=longer, seconds=seconds)

    async def inject(self, run: ServiceRun) -> None:
        state = run.sim.conditions
        state.work_delay += self.longer
        await run.wait(self.seconds)
        state.work_delay -= self.longer


@public_in("aiokclient.testing")
@dataclass(frozen=True, repr=False)
class BreakHttp(ServiceFault):
    """The next `times` HTTP requests fail within `seconds`.

    `how` is "refuse" (the connection is refused), "lose" (the application answers, but the
    connection is reset before), "hang" (no answer, ever), or "busy" (status 503).
    """

    how: str = "lose"
    times: int = 1
    seconds: float = 4.0

    @classmethod
    def draw(cls, rng: random.Random, brokers: int) -> ServiceFault:
        how = rng.choice(("refuse", "lose", "lose", "hang", "hang", "busy"))
        return cls(*cls.draw_time(rng), how=how, times=rng.randint(1, 3))

    async def inject(self, run: ServiceRun) -> None:
        await run.break_http(self.how, self.times, self.seconds)


ALL_FAULTS: Final[tuple[type[ServiceFault], ...]] = (
    BreakHttp,
    CancelService,
    CancelTask,
    CutConnections,
    KillService,
    LoseReplies,
    MoveLeaders,
    PauseBroker,
    Rebalance,
    RefuseRequests,
    ScaleOut,
    SlowHandlers,
    SlowNetwork,
    StallService,
    StopBroker,
)
"""All classes of faults."""


def draw_faults(
    seed: int, faults: Sequence[type[ServiceFault] | ServiceFault], brokers: int
) -> list[ServiceFault]:
    """Return the faults of a seed, the earliest first: those that are given, and drawn ones.

    A seed draws from a few classes only. So there are seeds in which no restart hides the effect of
    another fault.
    """
    given = [each for each in faults if isinstance(each, ServiceFault)]
    classes = [each for each in faults if not isinstance(each, ServiceFault)]
    rng = random.Random(f"{seed} faults")
    if classes:
        chosen = rng.sample(classes, min(len(classes), rng.randint(1, MOST_CLASSES)))
        for _ in range(rng.randint(1, MOST_FAULTS)):
            given.append(rng.choice(chosen).draw(rng, brokers))
    return sorted(given, key=lambda each: each.at)
