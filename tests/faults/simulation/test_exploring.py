"""`explore`: services under faults in virtual time, and what it finds, prints, and refuses."""

import asyncio
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from contextvars import copy_context
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import explored
import pytest

from aiokclient import Consumer, ConsumerRecord, Producer
from aiokclient.errors import IllegalStateError
from aiokclient.testing import (
    ALL_FAULTS,
    BreakHttp,
    CancelService,
    CancelTask,
    CounterexampleError,
    Feed,
    KillService,
    Rebalance,
    ScaleOut,
    ServiceFault,
    Simulation,
    SimulationError,
    SlowNetwork,
    StopBroker,
    bounded_in_hand,
    closes_in_time,
    exactly_once,
    explore,
    handled_at_least_once,
    no_task_left,
    nothing_lost,
    order_within_key,
)
from aiokclient.worker import Retry, lifespan

ROOT = Path(__file__).resolve().parents[3]
TOPICS = {"orders": Feed(20)}


def find_fault(service: Any, **options: Any) -> CounterexampleError:
    with pytest.raises(CounterexampleError) as raised:
        explore(service, **{"topics": TOPICS, "seeds": 100, **options})
    return raised.value


def http_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the library that `sim.http` uses for requests that have no answer."""
    for name in ("httpx2", "httpx"):
        with suppress(ImportError):
            return (import_module(name).ReadTimeout,)
    return ()


def run_printed(test: str) -> None:
    """Run a printed test as a module of its own."""
    names: dict[str, Any] = {"__name__": "pasted"}
    exec(test, names)
    (function,) = [each for name, each in names.items() if name.startswith("test_")]
    function()


# -- faults are found, shrunk, and printed


@pytest.fixture(scope="module")
def lost_records() -> CounterexampleError:
    """The error for records that a killed service has committed and not handled."""
    return find_fault(
        explored.commits_before_work,
        topics={"orders": Feed(8, seconds=1.0)},
        faults=[SlowNetwork(at=0.2), KillService(at=0.8, after="commit"), Rebalance(at=0.9)],
        invariants=[handled_at_least_once],
        recovery_s=55.0,
    )


def test_a_commit_before_the_work_is_found_and_printed_as_a_test_that_passes_when_mended(
    lost_records: CounterexampleError,
) -> None:
    error = lost_records
    assert error.invariant == "handled_at_least_once"
    assert 1 <= len(error.faults) <= 2
    assert "never handled" in str(error)
    with pytest.raises(CounterexampleError) as raised:
        run_printed(error.test)
    assert raised.value.args == error.args
    run_printed(error.test.replace("commits_before_work", "commits_after_work"))


def test_a_commit_before_the_work_is_found_without_a_fault_by_its_time() -> None:
    error = find_fault(explored.commits_before_work)
    assert (error.seed, error.invariant, error.faults) == (0, "committed_at_most_processed", [])


def test_the_timeline_is_text_and_a_picture(lost_records: CounterexampleError) -> None:
    error = lost_records
    text, picture = str(error.timeline), error.timeline.svg()
    assert "handled orders-" in text
    assert text.splitlines()[-1].split()[2] == "verdict"
    assert repr(error.faults[0]) in text
    assert picture.startswith("<svg")
    assert type(error.faults[0]).__name__ in picture
    for lane in ("faults", "service-1", "service-2", "broker 1", "broker 2", "broker 3"):
        assert f">{lane}</text>" in picture


def test_the_picture_has_lanes_for_the_tasks_of_the_service_and_for_stopped_brokers() -> None:
    async def handles_in_tasks(sim: Simulation) -> None:
        async def bill(number: int) -> None:
            await sim.work(0.1)
            sim.handled(ConsumerRecord("orders", 0, number, 0, b"", b"", ()))

        await asyncio.gather(*map(bill, range(3)))
        await asyncio.sleep(3)
        assert all(each.kind != "down" for each in sim.history.events)

    faults = [StopBroker(at=1.0, broker=2, seconds=1.0)]
    picture = find_fault(handles_in_tasks, topics={}, seeds=1, faults=faults).timeline.svg()
    assert ">   bill x3</text>" in picture
    assert "handled orders-0 offset 2" in picture
    # The broker ran until its stop.
    assert "<title>0.000 to 1.0" in picture


def test_a_service_without_a_fault_passes_and_the_report_says_what_was_tried() -> None:
    report = explore(explored.commits_after_work, seeds=6, topics=TOPICS)
    assert report.seeds == 6
    assert report.coverage
    assert set(report.coverage) <= {each.__name__ for each in ALL_FAULTS}
    assert "6 seeds passed" in str(report)


def test_a_printed_test_of_a_local_service_has_its_source() -> None:
    async def fails(sim: Simulation) -> None:
        await asyncio.sleep(1)
        if sim.seed == 3:
            raise AssertionError("too large")

    error = find_fault(fails, topics={}, faults=[])
    assert (error.seed, error.invariant, error.args) == (3, "the service", ("too large",))
    with pytest.raises(CounterexampleError, match="too large"):
        run_printed(error.test)


def test_a_printed_test_imports_names_from_their_public_packages() -> None:
    async def fails(sim: Simulation) -> None:
        await asyncio.sleep(1)
        raise AssertionError(str([Consumer, Retry, lifespan]))

    error = find_fault(fails, topics={}, faults=[], seeds=1)
    assert error.test.partition("\n\n\n")[0].splitlines() == [
        "import asyncio",
        "from aiokclient import Consumer",
        "from aiokclient.testing import Simulation, explore",
        "from aiokclient.worker import Retry, lifespan",
    ]


def test_a_seed_is_the_same_run_in_every_process() -> None:
    script = (
        "import sys, json; sys.path.insert(0, 'tests/harness')\n"
        "import explored\n"
        "from aiokclient.testing import *\n"
        "try: explore(explored.commits_before_work, recovery_s=55.0,\n"
        "    topics={'orders': Feed(8, seconds=1.0)}, invariants=[handled_at_least_once],\n"
        "    faults=[MoveLeaders(at=0.3), KillService(at=0.8, after='commit')])\n"
        "except CounterexampleError as e: print(json.dumps([e.seed, e.test, e.timeline.svg()]))\n"
    )
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1]


# -- invariants


def test_records_in_hand_are_counted() -> None:
    error = find_fault(explored.gathers_without_bound, invariants=[bounded_in_hand(3)])
    assert error.invariant == "bounded_in_hand(3)"
    with pytest.raises(CounterexampleError):
        run_printed(error.test)


def test_an_order_within_a_key_that_is_broken_is_found() -> None:
    async def reorders(sim: Simulation) -> None:
        async with explored.new_consumer(sim) as consumer:
            while True:
                records = await consumer.poll(1.0)
                sim.handled(*reversed(records))
                await consumer.commit()

    topics = {"orders": Feed(20, keys=1, seconds=0.0)}
    error = find_fault(reorders, topics=topics, faults=[], invariants=[order_within_key])
    assert "same key" in error.args[0]


def test_an_acknowledged_record_that_is_lost_is_found() -> None:
    """With acks=1 and an unclean election, Kafka loses records, too."""

    async def writes(sim: Simulation) -> None:
        options = {**explored.clients_of(sim), "acks": 1, "enable_idempotence": False}
        async with Producer[Any, Any](**options) as producer:
            with sim.kafka.hold_replication("out"):
                await producer.send("out", b"v")
                sim.kafka.move_leader("out")

    error = find_fault(writes, topics={"out": 1}, faults=[], invariants=[nothing_lost])
    assert "1 acknowledged records are not in the log" in error.args[0]


def test_an_output_that_is_there_twice_is_found() -> None:
    async def repeats(sim: Simulation) -> None:
        async with Producer[Any, Any](**explored.clients_of(sim)) as producer:
            for _ in range(2):
                await producer.send("out", b"v")

    error = find_fault(repeats, topics={"out": 1}, faults=[], invariants=[exactly_once])
    assert "more than once" in error.args[0]


def test_a_task_that_outlives_its_service_is_found() -> None:
    async def leaves(sim: Simulation) -> None:
        sim.state["task"] = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)

    error = find_fault(leaves, topics={}, faults=[], invariants=[no_task_left])
    assert "service-1: sleep" in error.args[0]


def test_a_service_that_does_not_close_in_time_is_found() -> None:
    async def lingers(sim: Simulation) -> None:
        try:
            await sim.loop.create_future()
        finally:
            await asyncio.sleep(100)

    error = find_fault(lingers, topics={}, faults=[], invariants=[closes_in_time])
    assert "did not end within 30 s" in error.args[0]


def test_a_service_that_waits_for_its_stop_is_told_and_not_cancelled() -> None:
    ends = []

    async def waits(sim: Simulation) -> None:
        await sim.stopped()
        ends.append(sim.loop.time())

    explore(waits, seeds=1, faults=[CancelService(at=2.0)])
    assert len(ends) == 2


def test_a_request_that_another_process_still_serves_is_no_task_of_the_service() -> None:
    async def gives_up(sim: Simulation) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await sim.work(1.0)
            sim.state["served"] = sim.state.get("served", 0) + 1
            await sim.work(1000.0)

        client = sim.http(app, timeout=0.5)
        with suppress(TimeoutError, *http_errors()):
            await client.get("/")
        await asyncio.sleep(3.0)

    def both_were_served(sim: Simulation) -> None:
        assert (sim.history.starts, sim.state["served"]) == (2, 2)

    # The kill of the service does not end what the application serves, either.
    faults = [KillService(at=0.3)]
    explore(gives_up, seeds=1, faults=faults, invariants=[no_task_left, both_were_served])


def test_an_application_in_the_service_ends_after_the_requests_that_it_serves() -> None:
    async def serves(sim: Simulation) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await sim.work(5.0)
                sim.state["steps"].append("served")
                await echo(scope, receive, send)
                return
            for step in ("startup", "shutdown"):
                await receive()
                sim.state["steps"].append(step)
                await send({"type": f"lifespan.{step}.complete"})

        sim.state["steps"] = []
        async with sim.http(app, timeout=0.5) as client:
            with suppress(TimeoutError, *http_errors()):
                await client.get("/")

    def was_served(sim: Simulation) -> None:
        assert sim.state["steps"] == ["startup", "served", "shutdown"]

    explore(serves, seeds=1, faults=[], invariants=[no_task_left, was_served])


def find_warnings(service: Any, *faults: Any) -> list[str]:
    """Return the warnings of one run of a service, also those of what it leaves to the garbage."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explore(service, seeds=1, faults=faults, invariants=[])
        gc.collect()
    return [str(each.message) for each in caught]


async def wait_for(awaitable: Any) -> None:
    """Await something that a task was given, as the tasks of anyio's groups do."""
    await awaitable


def test_nothing_that_a_killed_process_did_not_end_is_reported() -> None:
    async def closes_at_its_stop(sim: Simulation) -> None:
        producer = Producer[Any, Any](**explored.clients_of(sim))
        await producer.start()
        step = asyncio.sleep(1)
        await sim.stopped()
        await producer.close()
        await step

    assert find_warnings(closes_at_its_stop, KillService(at=1.0)) == []
    # What is cancelled must close what it has opened.
    found = sorted(find_warnings(closes_at_its_stop, CancelTask(at=1.0)))
    assert [("Producer" in each, "never awaited" in each) for each in found] == [
        (True, False),
        (False, True),
    ]


def test_coroutines_of_a_killed_process_begin_before_they_are_cancelled() -> None:
    """Otherwise, Python warns of those that tasks of anyio's groups would await."""

    async def closes(sim: Simulation) -> None:
        begun = sim.state.setdefault("begun", [])

        async def close(name: str) -> None:
            begun.append(name)
            await asyncio.sleep(1)
            begun.append(f"{name} slept")

        try:
            await sim.stopped()
        finally:
            await asyncio.wait([asyncio.create_task(wait_for(close("a")))])
            async with anyio.create_task_group() as group:
                group.start_soon(close, "b")

    def have_begun(sim: Simulation) -> None:
        assert sim.state["begun"][:2] == ["a", "b"]

    explore(closes, seeds=1, faults=[KillService(at=1.0)], invariants=[have_begun])


def test_no_coroutine_is_reported_as_never_awaited_when_a_new_task_is_cancelled() -> None:
    class EndNewTask(ServiceFault):
        """A fault that ends the newest task of the service before that begins."""

        def __init__(self, kills: bool) -> None:
            super().__init__(at=0.1)
            self.kills = kills

        async def inject(self, run: Any) -> None:
            (instance,) = run.list_running()
            context = run.sim.state["context"]
            new = context.run(asyncio.create_task, wait_for(asyncio.sleep(1000)))
            assert new in instance.tasks
            if self.kills:
                instance.kill()
            else:
                run.cancel_task(1)
            await asyncio.wait([new])
            assert new.cancelled()

    async def waits(sim: Simulation) -> None:
        sim.state["context"] = copy_context()
        await sim.stopped()

    assert find_warnings(waits, EndNewTask(kills=True)) == []
    assert find_warnings(waits, EndNewTask(kills=False)) == []


# -- faults


def test_each_task_of_a_service_can_be_cancelled_by_its_number() -> None:
    async def has_tasks(sim: Simulation) -> None:
        ended = sim.state.setdefault("ended", [])

        async def sleep(name: str) -> None:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                ended.append(f"{name} cancelled")
                raise

        tasks = [asyncio.create_task(sleep(name), name=f"sleep-{name}") for name in "ab"]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            ended.append("service cancelled")
            raise

    def find_ended(number: int) -> list[str]:
        found: list[str] = []
        explore(
            has_tasks,
            seeds=1,
            faults=[CancelTask(at=1.0, number=number)],
            invariants=[lambda sim: found.extend(sim.state["ended"])],
        )
        return found

    # The cancelled service starts again. Its former tasks are left.
    assert find_ended(0) == ["service cancelled"]
    assert find_ended(1) == ["a cancelled"]
    assert find_ended(2) == ["b cancelled"]
    assert find_ended(4) == ["a cancelled"]


def test_the_lifespan_of_an_application_is_no_task_that_is_cancelled() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    async def serves(sim: Simulation) -> None:
        async with sim.http(app):
            sim.state["starts"] = sim.state.get("starts", 0) + 1
            await sim.stopped()

    def was_cancelled(sim: Simulation) -> None:
        # Number 1 is the service again, whose only other task is the lifespan.
        assert (sim.state["starts"], len(sim.history.crashes)) == (2, 1)

    explore(serves, seeds=1, faults=[CancelTask(at=1.0, number=1)], invariants=[was_cancelled])


def test_a_signal_to_the_own_process_restarts_the_simulated_service() -> None:
    async def gives_up_once(sim: Simulation) -> None:
        sim.state["starts"] = sim.state.get("starts", 0) + 1
        if sim.state["starts"] == 1:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(100)

    def two_starts(sim: Simulation) -> None:
        assert (sim.state["starts"], len(sim.history.crashes)) == (2, 1)

    explore(gives_up_once, seeds=1, faults=[], invariants=[two_starts])


def test_a_killed_service_writes_nothing_more() -> None:
    async def writes_at_its_end(sim: Simulation) -> None:
        async with Producer[Any, Any](**explored.clients_of(sim)) as producer:
            try:
                sim.state["starts"] = sim.state.get("starts", 0) + 1
                await asyncio.sleep(5)
            finally:
                await producer.send("out", b"%d" % sim.state["starts"])

    def second_only(sim: Simulation) -> None:
        assert [each.value for each in sim.kafka.records("out")] == [b"2"]

    explore(
        writes_at_its_end,
        seeds=1,
        topics={"out": 1},
        faults=[KillService(at=1.0)],
        invariants=[second_only],
    )


def test_an_exception_restarts_the_service_and_a_return_ends_it() -> None:
    async def fails_twice(sim: Simulation) -> None:
        sim.state["starts"] = sim.state.get("starts", 0) + 1
        if sim.state["starts"] < 3:
            raise RuntimeError("not yet")

    def three_starts(sim: Simulation) -> None:
        assert sim.state["starts"] == 3

    explore(fails_twice, seeds=1, faults=[], invariants=[three_starts])


def test_given_faults_happen_in_each_seed_beside_those_that_are_drawn() -> None:
    report = explore(
        explored.commits_after_work,
        seeds=2,
        topics=TOPICS,
        faults=[ScaleOut(at=1.0, seconds=2.0), StopBroker(at=3.0, broker=2), SlowNetwork],
    )
    counts = {name: sum(phases.values()) for name, phases in report.coverage.items()}
    assert counts["ScaleOut"] == counts["StopBroker"] == 2
    assert counts["SlowNetwork"] >= 2


def test_faults_are_written_as_python() -> None:
    fault = BreakHttp(at=1.5, after="http", how="hang", times=2)
    assert repr(fault) == "BreakHttp(at=1.5, after='http', how='hang', times=2)"
    assert eval(repr(fault)) == fault
    assert repr(Rebalance(at=2.0)) == "Rebalance(at=2.0)"


def test_explore_restores_the_collection_of_garbage_and_the_logs() -> None:
    async def fails(sim: Simulation) -> None:
        assert gc.get_freeze_count() > 0
        assert not sim.state

    def find_settings() -> tuple[object, ...]:
        return gc.get_threshold(), gc.get_freeze_count() > 0, logging.root.manager.disable

    former = find_settings()
    explore(fails, seeds=1, faults=[])
    find_fault(fails, topics={}, faults=[], invariants=[bounded_in_hand(-1)])
    assert find_settings() == former


def test_explore_is_refused_where_an_event_loop_runs() -> None:
    async def main() -> None:
        explore(explored.commits_after_work, seeds=1)

    with pytest.raises(IllegalStateError, match="event loop"):
        asyncio.run(main())


# -- virtual time, threads, and HTTP


def simulate(main: Any, **options: Any) -> Any:
    return Simulation(1, **options).run(main)


def test_functions_for_threads_run_in_the_loop() -> None:
    async def main(sim: Simulation) -> set[int]:
        loop = asyncio.get_running_loop()
        return {
            await asyncio.to_thread(threading.get_ident),
            await anyio.to_thread.run_sync(threading.get_ident),
            await loop.run_in_executor(None, threading.get_ident),
        }

    assert simulate(main) == {threading.get_ident()}
    # Elsewhere, anyio has its threads again.
    assert asyncio.run(anyio.to_thread.run_sync(threading.get_ident)) != threading.get_ident()


def test_a_thread_of_the_program_is_refused_by_its_name() -> None:
    def target() -> None:
        raise AssertionError

    async def main(sim: Simulation) -> None:
        threading.Thread(target=target, name="poller").start()

    with pytest.raises(SimulationError, match=r"'poller', which runs .*target"):
        simulate(main)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def test_timeouts_and_sleeps_of_anyio_have_virtual_time() -> None:
    async def main(sim: Simulation) -> float:
        with anyio.move_on_after(3600):
            await anyio.sleep(7200)
        return anyio.current_time()

    assert simulate(main) == pytest.approx(3600)


def test_the_module_time_has_virtual_time_on_request() -> None:
    async def main(sim: Simulation) -> tuple[float, float, float]:
        began, real = time.monotonic(), time.time()
        await asyncio.sleep(3600)
        time.sleep(100)  # noqa: ASYNC251 - it has virtual time
        return time.monotonic() - began, time.time() - real, time.time_ns() / 1e9 - real

    assert simulate(main, patch_clocks=True) == pytest.approx((3700, 3700, 3700))
    assert simulate(lambda sim: asyncio.sleep(0, time.time())) == pytest.approx(
        time.time(), abs=600
    )


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the method, the path, and the body; fail for /fail."""
    message = await receive()
    assert scope["path"] != "/fail"
    text = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} ".encode()
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text + message["body"]})


@pytest.fixture(params=["httpx", "own"])
def http_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "own":
        monkeypatch.setattr("aiokclient.testing.simulation.asgi._LIBRARIES", ())
    return str(request.param)


def test_http_stays_in_memory(http_kind: str) -> None:
    async def main(sim: Simulation) -> None:
        client = sim.http(echo)
        assert (type(client).__module__.startswith("httpx")) is (http_kind == "httpx")
        response = await client.post("/a", content=b"body", params={"q": "1"})
        assert (response.status_code, response.text) == (200, "POST /a q=1 body")
        assert (await client.get("/fail")).status_code == 500

    simulate(main)


def test_http_requests_break_as_faults_say(http_kind: str) -> None:
    async def main(sim: Simulation) -> None:
        client = sim.http(echo, timeout=3.0)
        sim.conditions.http += ["refuse", "lose", "busy", "hang"]
        names = []
        for _ in range(4):
            try:
                response = await client.get("/")
                names.append(str(response.status_code))
            except Exception as error:
                names.append(type(error).__name__)
        expected = {
            "httpx": ["ConnectError", "ReadError", "503", "ReadTimeout"],
            "own": ["ConnectionRefusedError", "ConnectionResetError", "503", "TimeoutError"],
        }
        assert names == expected[http_kind]
        assert sim.loop.time() == pytest.approx(3.0, abs=0.1)

    simulate(main)


def test_the_lifespan_of_an_application_is_that_of_its_block(http_kind: str) -> None:
    steps = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        for step in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{step}"
            steps.append(step)
            await send({"type": f"lifespan.{step}.complete"})

    async def main(sim: Simulation) -> None:
        async with sim.http(app):
            assert steps == ["startup"]
        async with sim.http(echo) as client:  # It knows no lifespan.
            assert (await client.get("/")).status_code == 200

    simulate(main)
    assert steps == ["startup", "shutdown"]
