"""One run of a service with the faults of one seed: its instances, its records, and its end.

A run has three parts. For ten seconds of virtual time, records are fed and faults happen. Then all
faults end, and the service has a time to handle what is left. At the end it is asked to stop,
as by SIGTERM: its task is cancelled, or `sim.stopped()` returns.

Each start of the service is an instance, with a connector and tasks of its own. Tasks inherit the
instance of the task that creates them, by a context variable. A killed instance is cut off from the
network, and its tasks are cancelled: what they still do has no effect on anything outside of them.
A task that has not begun is cancelled after its first step (`cancel_after_first_step`).
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import random
import re
import signal
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient.background import LibraryTask
from aiokclient.protocol import ApiKey
from aiokclient.record.batch import RecordBatch
from aiokclient.testing.exploration.faults import FAULTS_S, ServiceFault
from aiokclient.testing.exploration.history import Acknowledged, History, Position, TaskSpan
from aiokclient.testing.simulation.loop import SimulationError
from aiokclient.testing.simulation.network import Weather
from aiokclient.types import TopicPartition, public_in

if TYPE_CHECKING:
    from aiokclient.testing.simulation.simulation import Simulation

Service: TypeAlias = "Callable[[Simulation], Coroutine[Any, Any, object]]"
RECOVERY_S: Final = 120.0
"""The virtual seconds that a service has after the faults to handle the remaining records.

A group misses a killed member for up to 45 seconds, and retries have their backoffs.
"""
SETTLE_S: Final = 6.0
"""The seconds that a run lasts when all records are handled: automatic commits are every 5."""
CLOSE_S: Final = 30.0
_CRASH_PAUSE_S: Final = 1.0
_PATIENCE_S: Final = 5.0
"""The seconds that a fault waits for its moment."""
_STEP_S: Final = 0.25
_ACCEPT: Final = 1

_instance: ContextVar[ServiceInstance | None] = ContextVar("service instance", default=None)


@public_in("aiokclient.testing")
@dataclass(frozen=True)
class Feed:
    """The records that are written to a topic while a service runs, by nobody that can fail.

    A tenth of them is there when the service starts, and the rest comes within `seconds`. The keys
    are `b"key-0"` and so on; with `keys=0`, records have none. All records of a key are in one
    partition. The values are `b"0"`, `b"1"`, and so on, or what `value(number)` returns.
    """

    records: int = 40
    partitions: int = 3
    keys: int = 8
    seconds: float = 8.0
    value: Callable[[int], bytes] | None = None

    def make_record(self, number: int) -> tuple[int, bytes | None, bytes]:
        """Return the partition, the key, and the value of a record."""
        lane = number % self.keys if self.keys else number
        key = b"key-%d" % lane if self.keys else None
        value = b"%d" % number if self.value is None else self.value(number)
        return lane % self.partitions, key, value


class ServiceInstance:
    """One start of the service."""

    def __init__(self, run: ServiceRun, number: int) -> None:
        self.name = f"service-{number}"
        self.run = run
        self.is_killed = self.is_stopping = self.has_fetched = False
        self.stop_requested = asyncio.Event()
        self.awaits_stop = False
        """Whether the service has called `sim.stopped`."""
        self.tasks: dict[asyncio.Task[Any], float] = {}
        """The tasks that run, in the order of their creation, with the times of it.

        The background tasks of clients are not among them.
        """
        self.kept_tasks: set[asyncio.Task[Any]] = set()
        """Those of them that belong to the server in which an application runs."""
        self.began = run.now
        self.sim = copy.copy(run.sim)
        self.sim.instance = self
        self.sim.connector = run.sim.network.connector(self.name)
        self.main: asyncio.Task[object] | None = None

    @property
    def has_ended(self) -> bool:
        return self.main is not None and self.main.done()

    def start(self, service: Service) -> None:
        token = _instance.set(self)
        try:
            self.main = asyncio.create_task(self._run_service(service), name=self.name)
        finally:
            _instance.reset(token)

    async def _run_service(self, service: Service) -> object:
        return await service(self.sim)

    def request_stop(self) -> None:
        """Ask the service to end, as by SIGTERM."""
        self.is_stopping = True
        if self.awaits_stop:
            self.stop_requested.set()
        elif self.main is not None:
            self.main.cancel()

    def kill(self) -> None:
        """End the process of the instance.

        From now on, `explore` ignores warnings of what the process had no time to close.
        """
        self.is_killed = True
        warnings.filterwarnings("ignore", r"coroutine\b.* was never awaited", RuntimeWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        self.run.sim.network.kill(self.name)
        self.cancel_tasks()

    def cancel_tasks(self) -> None:
        for task in list(self.tasks):
            cancel_after_first_step(task)

    def add_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks[task] = self.run.now
        task.add_done_callback(self._on_task_end)
        if self.is_killed:
            cancel_after_first_step(task)

    def _on_task_end(self, task: asyncio.Task[Any]) -> None:
        began = self.tasks.pop(task)
        self.kept_tasks.discard(task)
        if task is not self.main:
            name, is_own = _name_task(task)
            span = TaskSpan(self.name, name, began, self.run.now)
            self.run.history.add_span(span, is_own=is_own)

    def note_current_task(self) -> str:
        """Return the name of the current task, or "" for the service's first one.

        A task that was made without the loop's factory, as those in which a worker calls its
        handler, is one of the instance's from now on. A task of an application that is another
        process is not.
        """
        task = asyncio.current_task()
        if task is None or task is self.main:
            return ""
        is_own = _instance.get() is self and not isinstance(task, LibraryTask)
        if is_own and task not in self.tasks:
            self.add_task(task)
        return _name_task(task)[0]


class ServiceRun:
    """One run. `faults` are those of its seed."""

    def __init__(
        self,
        service: Service,
        sim: Simulation,
        topics: Mapping[str, int | Feed],
        faults: Sequence[ServiceFault],
        recovery_s: float,
    ) -> None:
        self.service, self.sim, self.faults = service, sim, faults
        self._recovery_s = recovery_s
        self.history: History = sim.history
        self.coverage: Counter[tuple[str, str]] = Counter()
        """The number of times that a fault of each class met each phase of the service."""
        self._feeds = {name: each for name, each in topics.items() if isinstance(each, Feed)}
        self._instances: list[ServiceInstance] = []
        self._ended = self._healed = False
        self._moments: list[tuple[str, asyncio.Future[None]]] = []
        self._last_seen: dict[str, float] = {}
        """The time of the last of each kind of moment."""
        self._work = random.Random(f"{sim.seed} work")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starts_pending = 0
        self.failure: AssertionError | SimulationError | None = None

    @property
    def now(self) -> float:
        return self.sim.loop.time()

    # -- the course of a run -------------------------------------------------------------------

    async def execute(self) -> None:
        """Run the service until it has ended. Raises an AssertionError of the service."""
        loop = self.sim.loop
        loop.set_task_factory(self._make_task)
        loop.set_exception_handler(self._on_loop_error)
        loop.on_signal = self._on_signal
        latency = self._work.choice(((0.0002, 0.002), (0.001, 0.02)))
        self.sim.network.weather = Weather(latency_s=latency)
        loop.jitter = random.Random(f"{self.sim.seed} jitter")
        self._observe_brokers()
        self.start_service()
        for name, feed in self._feeds.items():
            self._spawn(self._feed_topic(name, feed))
            self.history.fed[name] = feed.records
        for fault in self.faults:
            self._spawn(self._inject(fault))
        last = max((fault.at for fault in self.faults), default=0.0)
        await self._wait_until(max(last, FAULTS_S) if self._feeds else last)
        await self._finish_faults()
        await self._wait_for_recovery()
        self._ended = True
        await self._stop_service()
        if self.failure is not None:
            raise self.failure

    async def _wait_until(self, until: float) -> None:
        while self.now < until and not self._is_over():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(min(_STEP_S, until - self.now))

    def _is_over(self) -> bool:
        """Return whether the service has ended by itself, and nothing can start it again."""
        if self.failure is not None:
            return True
        return not self._feeds and self._has_returned()

    def _has_returned(self) -> bool:
        return not self.list_running() and not self._is_restarting()

    async def _finish_faults(self) -> None:
        """Wait until all faults are over, and the brokers run as if there had been none."""
        pending = [task for task in self._tasks if not task.done()]
        if pending and not self._is_over():
            await asyncio.wait(pending, timeout=RECOVERY_S)
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()  # A fault, or a feed, must not fail.
        self._healed = True
        network = self.sim.network
        network.weather = Weather()
        network.heal()
        self.sim.conditions.clear()
        self.sim.kafka.reset()
        self._observe_brokers()
        self.history.add_event(self.now, "fault", "healed", "all faults are over")

    async def _wait_for_recovery(self) -> None:
        """Wait until all records are handled, and a little longer, or until it is too late."""
        healed, deadline = self.now, self.now + self._recovery_s
        while self.now < deadline and self.failure is None:
            if self._has_returned():
                return
            # Without a feed, the service itself may still write what it has to handle.
            is_early = not self._feeds and self.now < healed + 2 * SETTLE_S
            if not is_early and not self.history.find_unhandled():
                break
            await asyncio.sleep(1.0)
        await asyncio.sleep(SETTLE_S)

    def _is_restarting(self) -> bool:
        return self._starts_pending > 0

    async def _stop_service(self) -> None:
        """End all instances, and note what they leave."""
        running = [each for each in self._instances if not each.is_killed]
        for instance in running:
            await self._stop_instance(instance)
        await asyncio.sleep(1.0)
        for instance in running:
            if instance.is_killed:  # It did not end in time.
                continue
            left = [task for task in instance.tasks if not task.done()]
            self.history.left_tasks += sorted(
                f"{instance.name}: {_describe(task)}" for task in left
            )
            names = [c.client for c in self.sim.network.connections.values()]
            open_ = names.count(instance.name)
            if open_:
                self.history.left_connections.append(f"{instance.name}: {open_} connections")
        for _ in range(5):  # What was killed, or stuck, must not keep the loop from its end.
            left = [task for each in self._instances for task in each.tasks if not task.done()]
            if not left:
                return
            for instance in self._instances:
                instance.cancel_tasks()
            await asyncio.wait(left, timeout=60.0)

    async def _stop_instance(self, instance: ServiceInstance) -> None:
        """Ask an instance to end, and kill it if it does not."""
        if instance.main is None or instance.has_ended or instance.is_killed:
            return
        began = self.now
        instance.request_stop()
        await asyncio.wait([instance.main], timeout=CLOSE_S)
        if not instance.has_ended:
            if not instance.is_killed:
                self.history.slow_ends.append((instance.name, began))
            instance.kill()

    # -- instances -----------------------------------------------------------------------------

    def start_service(self) -> None:
        """Start an instance of the service."""
        if self._ended or self.failure is not None:
            return
        self.history.starts += 1
        instance = ServiceInstance(self, self.history.starts)
        self._instances.append(instance)
        self.history.add_event(self.now, instance.name, "start", "the service starts")
        instance.start(self.service)
        assert instance.main is not None
        instance.main.add_done_callback(lambda task: self._on_end(instance, task))

    def _on_end(self, instance: ServiceInstance, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if instance.is_killed:
            return
        text = "the service ended" if error is None else f"the service failed: {error!r}"
        self.history.add_event(self.now, instance.name, "end", text)
        if isinstance(error, AssertionError | SimulationError):
            self.failure = error
        if instance.is_stopping or self._ended or (error is None and not task.cancelled()):
            return
        self.history.crashes.append((self.now, repr(error or "a cancellation")))
        self._starts_pending += 1
        self._spawn(self._start_later(_CRASH_PAUSE_S))

    def _on_signal(self, number: int) -> None:
        """End the instance that has sent itself a signal, and start it again, as supervisors do."""
        instance = _instance.get()
        if instance is None or instance.has_ended or instance.is_killed or instance.is_stopping:
            return
        name = signal.Signals(number).name
        self.history.add_event(self.now, instance.name, "error", f"the service sent itself {name}")
        self.history.crashes.append((self.now, name))
        self._starts_pending += 1
        self._spawn(self._end_after_signal(instance))

    async def _end_after_signal(self, instance: ServiceInstance) -> None:
        await self._stop_instance(instance)
        await self._start_later(_CRASH_PAUSE_S)

    async def _start_later(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            self._starts_pending -= 1
        self.start_service()

    async def start_after(self, seconds: float) -> None:
        """Start an instance of the service after so many seconds."""
        self._starts_pending += 1
        await self._start_later(seconds)

    def list_running(self) -> list[ServiceInstance]:
        return [each for each in self._instances if not each.has_ended and not each.is_killed]

    def kill_service(self) -> bool:
        """Kill all instances, and return whether there was one."""
        running = self.list_running()
        for instance in running:
            self.history.add_event(self.now, instance.name, "kill", "the process was killed")
            instance.kill()
        return bool(running)

    async def restart_service(self) -> None:
        """Ask all instances to end, and start one when they have."""
        running = self.list_running()
        self._starts_pending += 1
        try:
            for instance in running:
                await self._stop_instance(instance)
        finally:
            self._starts_pending -= 1
        if running:
            self.start_service()

    def cancel_task(self, number: int) -> None:
        """Cancel the task with this number, of those of all instances that run."""
        found = [
            (instance, task)
            for instance in self.list_running()
            for task in instance.tasks
            if not task.done() and task not in instance.kept_tasks
        ]
        if not found:
            return
        instance, task = found[number % len(found)]
        name = "" if task is instance.main else _name_task(task)[0]
        text = f"the task {name!r} was cancelled" if name else "the service was cancelled"
        self.history.add_event(self.now, instance.name, "cancel", text, name)
        cancel_after_first_step(task)

    async def scale_out(self, seconds: float) -> None:
        if not self.list_running():
            return
        self.start_service()
        instance = self._instances[-1]
        await self.wait(seconds)
        # The last instance must stay.
        if self.list_running() != [instance]:
            await self._stop_instance(instance)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        """Create a task that belongs to the instance whose task creates it.

        A task of an application that is another process has a context without an instance.
        """
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        instance = _instance.get() if context is None else context.get(_instance)
        if instance is not None:
            instance.add_task(task)
        return task

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        instance = _instance.get()
        text = f"{context.get('message')}: {context.get('exception')!r}"
        self.history.loop_errors.append(text)
        name = "loop" if instance is None else instance.name
        self.history.add_event(self.now, name, "error", text)

    # -- faults --------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        token = _instance.set(None)
        try:
            task = asyncio.create_task(coroutine)
        finally:
            _instance.reset(token)
        self._tasks.add(task)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _inject(self, fault: ServiceFault) -> None:
        await asyncio.sleep(fault.at)
        if fault.after:
            await self._wait_for_moment(fault.after)
            await asyncio.sleep(fault.delay)
        if self._healed or self._is_over():
            return
        phase = self.find_phase()
        self.coverage[type(fault).__name__, phase] += 1
        self.history.add_event(self.now, "fault", type(fault).__name__, f"{fault!r} while {phase}")
        await fault.inject(self)

    async def _wait_for_moment(self, moment: str) -> None:
        future: asyncio.Future[None] = self.sim.loop.create_future()
        self._moments.append((moment, future))
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await future

    def on_moment(self, moment: str) -> None:
        """Wake the faults that wait for such a moment."""
        self._last_seen[moment] = self.now
        if self._moments:
            for each in list(self._moments):
                if each[0] == moment:
                    self._moments.remove(each)
                    if not each[1].done():
                        each[1].set_result(None)

    def find_phase(self) -> str:
        """Return what the service is doing."""
        running = self.list_running()
        if not running:
            return "down"
        if any(each.is_stopping for each in running):
            return "stopping"
        newest = running[-1]
        if self.sim.conditions.http_in_flight:
            return "calling HTTP"
        if any(self.history.in_hand[each.name] > 0 for each in running):
            return "handling"
        recent = {kind for kind, at in self._last_seen.items() if self.now - at < 0.02}
        for kind, phase in _PHASES:
            if kind in recent:
                return phase
        if max(self._last_seen.values(), default=-1.0) < newest.began:
            return "starting"
        states = {group.state for group in self.sim.kafka.groups.values()}
        if states & {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}:
            return "rebalancing"
        return "waiting"

    def name_broker(self, broker: int) -> str:
        """Return the name of a broker on the network."""
        host, port = self.sim.kafka.address(broker)
        return f"{host}:{port}"

    def move_leaders(self) -> None:
        cluster = self.sim.kafka
        for topic, partitions in cluster.topics.items():
            for partition in range(partitions):
                leader = cluster.leader(topic, partition)
                others = [each for each in cluster.isr(topic, partition) if each != leader]
                # An election of a replica that is not in sync loses records, in Kafka, too.
                with suppress(ValueError):  # A broker may have stopped.
                    if others:
                        cluster.move_leader(topic, partition, to=self._work.choice(others))
        for group in cluster.groups:
            with suppress(ValueError):
                cluster.move_coordinator(group)

    def rebalance_groups(self) -> None:
        for group in self.sim.kafka.groups:
            self.sim.kafka.rebalance(group)

    async def break_http(self, how: str, times: int, seconds: float) -> None:
        plan = self.sim.conditions.http
        mine = [how] * times
        plan += mine
        await self.wait(seconds)
        for each in mine:
            with suppress(ValueError):  # It was used.
                plan.remove(each)

    # -- records -------------------------------------------------------------------------------

    async def _feed_topic(self, topic: str, feed: Feed) -> None:
        """Write the records of a topic. They are in the log whatever happens to brokers."""
        rng = random.Random(f"{self.sim.seed} feed {topic}")
        first = feed.records // 10
        times = sorted(
            round(rng.uniform(0.0, feed.seconds), 3) for _ in range(feed.records - first)
        )
        for number, at in enumerate([0.0] * first + times):
            await asyncio.sleep(max(0.0, at - self.now))
            partition, key, value = feed.make_record(number)
            while True:
                try:
                    self.sim.kafka.produce(topic, [(key, value)], partition)
                    break
                except ValueError:  # The partition has no leader at present.
                    await asyncio.sleep(0.1)

    # -- brokers -------------------------------------------------------------------------------

    def note_broker(self, broker: int, kind: str, text: str) -> None:
        self.history.add_event(self.now, f"broker-{broker}", kind, text)

    def _observe_brokers(self) -> None:
        """Note what the brokers execute. A fault of the cluster sees each response."""
        for broker in range(1, self.history.brokers + 1):
            BrokerWitness(self, broker)


class BrokerWitness:
    """The requests that one broker executes, for the history of a run."""

    def __init__(self, run: ServiceRun, broker: int) -> None:
        self._run, self._broker = run, broker
        self._history, self._cluster = run.history, run.sim.kafka
        for api, alteration in (
            (ApiKey.PRODUCE, self._on_produce),
            (ApiKey.OFFSET_COMMIT, self._on_commit),
            (ApiKey.TXN_OFFSET_COMMIT, self._on_moment_commit),
            (ApiKey.END_TXN, self._on_end_transaction),
            (ApiKey.SHARE_ACKNOWLEDGE, self._on_acknowledge),
            (ApiKey.SHARE_FETCH, self._on_acknowledge),
        ):
            self._cluster.alter(api, alteration, broker=broker)

    def _find_topic(self, named: Any) -> str:
        """Return the topic's name, which newer requests give by its id."""
        if getattr(named, "name", ""):
            return str(named.name)
        for name in self._cluster.topics:
            if self._cluster.topic_id(name) == named.topic_id:
                return name
        return ""

    def _on_produce(self, request: Any, response: Any) -> Any:
        if response is None:
            return response
        batches: dict[tuple[str, int], list[Any]] = {}
        for topic in request.topic_data:
            name = self._find_topic(topic)
            for each in topic.partition_data:
                batches[name, each.index] = RecordBatch(each.records).records(name, each.index, 0)
        for topic in response.responses:
            name = self._find_topic(topic)
            for each in topic.partition_responses:
                if each.error_code or each.base_offset < 0:
                    continue
                values = tuple((r.key, r.value) for r in batches[name, each.index])
                self._history.acknowledged.append(
                    Acknowledged(
                        self._run.now, TopicPartition(name, each.index), each.base_offset, values
                    )
                )
                text = f"{name}-{each.index} appended {len(values)} records at {each.base_offset}"
                self._run.note_broker(self._broker, "produce", text)
        self._run.on_moment("produce")
        return response

    def _on_commit(self, request: Any, response: Any) -> Any:
        for asked, answered in zip(request.topics, response.topics, strict=False):
            name = self._find_topic(asked)
            codes = {each.partition_index: each.error_code for each in answered.partitions}
            for each in asked.partitions:
                if not codes.get(each.partition_index, -1):
                    tp = TopicPartition(name, each.partition_index)
                    self._history.add_commit(
                        self._run.now, request.group_id, tp, each.committed_offset, self._broker
                    )
        self._run.on_moment("commit")
        return response

    def _on_moment_commit(self, request: Any, response: Any) -> Any:
        self._history.groups.add(request.group_id)
        self._run.on_moment("commit")
        return response

    def _on_end_transaction(self, request: Any, response: Any) -> Any:
        """Note the offsets that a transaction has committed."""
        self._run.on_moment("commit")
        for group in sorted(self._history.groups):
            for tp, stored in self._cluster.committed(group).items():
                known = [c for c in self._history.commits if (c.group, c.partition) == (group, tp)]
                if not known or known[-1].offset != stored.offset:
                    self._history.add_commit(self._run.now, group, tp, stored.offset, self._broker)
        return response

    def _on_acknowledge(self, request: Any, response: Any) -> Any:
        """Note the records that a member of a share group has accepted."""
        failed = {
            (topic.topic_id, each.partition_index)
            for topic in getattr(response, "responses", ())
            for each in topic.partitions
            if each.error_code or getattr(each, "acknowledge_error_code", 0)
        }
        any_accepted = False
        for topic in request.topics:
            name = self._find_topic(topic)
            self._history.shared.add(name)
            for each in topic.partitions:
                if (topic.topic_id, each.partition_index) in failed:
                    continue
                for batch in each.acknowledgement_batches:
                    types = list(batch.acknowledge_types)
                    for index, offset in enumerate(
                        range(batch.first_offset, batch.last_offset + 1)
                    ):
                        if types[index if len(types) > 1 else 0] == _ACCEPT:
                            any_accepted = True
                            position = Position(name, each.partition_index, offset)
                            self._history.add_accepted(self._run.now, position)
        if any_accepted:
            self._run.on_moment("commit")
        return response


_PHASES: Final = (
    ("commit", "committing"),
    ("produce", "producing"),
    ("handled", "after a record"),
    ("http", "after HTTP"),
)


_OTHERS_CODE: Final = (
    str(Path(__file__).parents[2]),
    *(sysconfig.get_path(each) for each in ("stdlib", "purelib", "platlib")),
)
"""The folders of code that is not the service's own, unless it is installed as a package."""
_names: Final[dict[CodeType, tuple[str, bool]]] = {}


def cancel_after_first_step(task: asyncio.Task[Any]) -> None:
    """Cancel a task now, or when it has begun.

    A task that never begins leaves the coroutine that its own one was given to await, as those of
    anyio's task groups are, and Python would warn that nobody has awaited it.
    """
    coroutine = task.get_coro()
    is_new = (
        inspect.iscoroutine(coroutine)
        and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    )
    if is_new:
        task.get_loop().call_soon(task.cancel)
    else:
        task.cancel()


def _name_task(task: asyncio.Task[Any]) -> tuple[str, bool]:
    """Return the name of a task, without its number, and whether its code is the service's own.

    That is the name that the task was given, without that of its client, or that of its coroutine.
    """
    code = getattr(task.get_coro(), "cr_code", None)
    if code is None:
        name, is_own = _describe(task), False
    elif (found := _names.get(code)) is not None:
        name, is_own = found
    else:
        name, is_own = code.co_name, not code.co_filename.startswith(_OTHERS_CODE)
        _names[code] = name, is_own
    given = task.get_name()
    if given != "None" and not given.startswith("Task-"):
        # Numbers of clients and tasks differ between processes.
        name = re.sub(r"[-#]?\d+", "", given.rpartition(": ")[2]).strip() or name
    return name, is_own


def _describe(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return getattr(coroutine, "__qualname__", None) or repr(coroutine)
