"""Where an embedded cluster runs: in a thread, a loop, pytest, the command line, a simulation."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokclient import Admin, Consumer, Producer
from aiokclient.errors import IllegalStateError, NotLeaderOrFollowerError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster, Simulation


async def round_trip(bootstrap: str, topic: str, **options: Any) -> list[bytes]:
    """Send three values to a topic, and return all values of the topic."""
    async with Producer(bootstrap_servers=bootstrap, **options) as producer:
        await producer.gather(producer.send_many(topic, [b"1", b"2", b"3"]))
    options["auto_offset_reset"] = "earliest"
    async with Consumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
        return sorted([record.value async for record in consumer.until_end()])


class TestInAThread:
    def test_a_cluster_in_a_thread_serves_synchronous_code(self) -> None:
        before = set(threading.enumerate())
        with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
            # Clients start threads, too, so the cluster's thread is looked up before they run.
            (thread,) = set(threading.enumerate()) - before
            assert len(cluster.bootstrap_servers.split(",")) == 3
            assert asyncio.run(round_trip(cluster.bootstrap_servers, "orders")) == [
                b"1",
                b"2",
                b"3",
            ]
            assert len(cluster.records("orders")) == 3
        assert not thread.is_alive()
        with pytest.raises(IllegalStateError):
            cluster.produce("orders", [b"v"])

    async def test_a_cluster_in_a_thread_serves_asynchronous_code(self) -> None:
        with EmbeddedCluster(topics=["orders"]) as cluster:
            assert len(await round_trip(cluster.bootstrap_servers, "orders")) == 3

    def test_a_cluster_in_a_thread_ends_after_an_exception(self) -> None:
        def use() -> None:
            with cluster:
                raise ZeroDivisionError

        cluster = EmbeddedCluster()
        with pytest.raises(ZeroDivisionError):
            use()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(cluster.address(1))

    def test_a_cluster_takes_options(self) -> None:
        options: dict[str, Any] = {"resync": False, "persist_groups": True, "seed": None}
        with EmbeddedCluster(1, {"a": 2}, **options) as cluster:
            assert cluster.topics == {"a": 2}
        ids = []
        for seed in (5, 5, 6):
            with EmbeddedCluster(topics={"a": 1}, seed=seed) as cluster:
                ids.append((cluster.cluster_id, cluster.topic_id("a")))
        assert ids[0] == ids[1] != ids[2]

    def test_two_clusters_run_at_a_time(self) -> None:
        with EmbeddedCluster(topics=["a"]) as one, EmbeddedCluster(topics=["a"]) as other:
            one.produce("a", [b"v"])
            assert len(one.records("a")) == 1
            assert other.records("a") == []


class TestInTheLoop:
    async def test_a_cluster_in_the_loop_serves_clients(self) -> None:
        before = threading.active_count()
        async with EmbeddedCluster(brokers=2, topics={"orders": 2}) as cluster:
            assert threading.active_count() == before
            with cluster.fail(ApiKey.PRODUCE, NotLeaderOrFollowerError, times=1):
                assert len(await round_trip(cluster.bootstrap_servers, "orders")) == 3
            assert await cluster.until(lambda: cluster.records("orders"), 5)
            async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                assert "orders" in await admin.list_topics()

    async def test_a_cluster_in_the_loop_runs_under_anyio(self) -> None:
        async with (
            anyio.create_task_group() as group,
            EmbeddedCluster(topics=["orders"]) as cluster,
        ):
            found: list[Any] = []

            async def use() -> None:
                found.append(await round_trip(cluster.bootstrap_servers, "orders"))

            async with anyio.create_task_group() as inner:
                inner.start_soon(use)
            assert len(found[0]) == 3
            group.cancel_scope.cancel()

    async def test_a_cluster_in_the_loop_ends_after_a_cancellation(self) -> None:
        with anyio.move_on_after(0.01):
            async with EmbeddedCluster(topics=["orders"]) as cluster:
                await asyncio.Event().wait()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*cluster.address(1))


PLUGIN_TESTS = """
import asyncio
import pytest
from aiokclient import Consumer, Producer

names = []
clusters = []


def test_plain(kafka_cluster, kafka_topic):
    names.append(kafka_topic)
    clusters.append(kafka_cluster)
    kafka_cluster.produce(kafka_topic, [b"v"])
    kafka_cluster.wait_for(lambda: kafka_cluster.records(kafka_topic), 5)


async def test_async(kafka_cluster, kafka_topic):
    names.append(kafka_topic)
    clusters.append(kafka_cluster)
    async with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        await producer.send(kafka_topic, b"v")
    await kafka_cluster.until(lambda: kafka_cluster.records(kafka_topic), 5)


class TestOthers:
    async def test_async(self, kafka_topic, kafka_cluster):
        names.append(kafka_topic)
        clusters.append(kafka_cluster)
        options = {"auto_offset_reset": "earliest"}
        servers = kafka_cluster.bootstrap_servers
        async with Consumer(kafka_topic, bootstrap_servers=servers, **options) as consumer:
            kafka_cluster.produce(kafka_topic, [b"w"])
            assert (await consumer.get(timeout=10)).value == b"w"


@pytest.fixture
async def producer(kafka_cluster):
    async with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        yield producer


async def test_in_fixtures(producer, kafka_topic):
    await producer.send(kafka_topic, b"v")


def test_fresh_names_and_one_cluster():
    assert len(set(names)) == 3
    assert len(set(map(id, clusters))) == 1
"""


class TestPytest:
    def test_the_pytest_fixtures_provide_a_cluster_and_a_topic(self, tmp_path: Path) -> None:
        (tmp_path / "test_them.py").write_text(PLUGIN_TESTS)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
        command += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
        command += [str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        if not plugin_is_installed():
            command += ["-p", "aiokclient.testing.plugin"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert "5 passed" in done.stdout, done.stdout + done.stderr


def plugin_is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(each.name == "aiokclient" for each in entry_points(group="pytest11"))


class TestCommand:
    def test_the_command_runs_three_brokers_at_consecutive_ports(self) -> None:
        first = free_ports(3)
        command = [
            sys.executable,
            "-m",
            "aiokclient.testing",
            "--brokers",
            "3",
            "--port",
            str(first),
            "--defaults",
            "kafka",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                servers = [f"127.0.0.1:{first + i}" for i in range(3)]
                assert all(server in line for server in servers)
                asyncio.run(self.use(servers[1]))
            finally:
                process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0

    async def use(self, bootstrap: str) -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            cluster = await admin.describe_cluster()
            assert len(cluster.brokers) == 3
        # `round_trip` need not create its topic: brokers do so at the first use, as Kafka does by
        # default.
        assert len(await round_trip(bootstrap, "made-by-use")) == 3


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports that are not in use."""
    for first in range(23_000, 60_000, 13):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        else:
            return first
        finally:
            for each in sockets:
                each.close()
    raise AssertionError(f"No {count} consecutive ports are free.")


async def service(sim: Simulation) -> tuple[Any, ...]:
    """Run a user's service with workers, queues, threads, timeouts, random numbers, and a clock."""
    async with sim.cluster(brokers=3, topics={"in": 3, "out": 3}) as cluster:
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "connector": sim.connector,
            "clock": sim.clock,
        }
        done: list[bytes] = []
        async with Producer(**options) as producer:
            await producer.gather(producer.send_many("in", [b"%d" % i for i in range(60)]))
            options["auto_offset_reset"] = "earliest"
            async with Consumer("in", **options) as consumer, asyncio.TaskGroup() as group:
                queue: asyncio.Queue[Any] = asyncio.Queue(5)

                async def work() -> None:
                    while (record := await queue.get()) is not None:
                        await asyncio.sleep(sim.rng.random())
                        value = await asyncio.to_thread(bytes.__add__, record.value, b"!")
                        await producer.send("out", value)
                        done.append(value)

                for _ in range(4):
                    group.create_task(work())
                async for record in consumer.until_end():
                    await queue.put(record)
                    if record.offset == 7:
                        cluster.move_leader("out", record.partition)
                for _ in range(4):
                    await queue.put(None)
        assert sorted(r.value for r in cluster.records("out")) == sorted(done)
        return tuple(done), sim.loop.time(), sim.clock.time_ms(), sim.trace


class TestSimulation:
    def test_the_same_seed_gives_the_same_run(self) -> None:
        first = Simulation(3).run(service)
        assert Simulation(3).run(service) == first
        assert len(first[0]) == 60
        assert Simulation(4).run(service) != first

    def test_the_same_seed_gives_the_same_run_in_another_process(self) -> None:
        """A seed gives the same results in another process, with any hash seed for strings."""
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]);"
            "from test_embedded_running import service; from aiokclient.testing import Simulation;"
            "print(Simulation(3).run(service)[1:])"
        )
        told = set()
        for seed in ("1", "77"):
            command = [sys.executable, "-c", code, str(Path(__file__).parent)]
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=60, check=True
            )
            told.add(done.stdout)
        assert told == {f"{Simulation(3).run(service)[1:]}\n"}

    def test_virtual_hours_pass_immediately(self) -> None:
        async def main(sim: Simulation) -> float:
            async with sim.cluster(topics=["t"]) as cluster:
                consumer = Consumer(
                    "t",
                    bootstrap_servers=cluster.bootstrap_servers,
                    connector=sim.connector,
                    clock=sim.clock,
                    fetch_max_wait_ms=10_000,
                )
                async with consumer:
                    asyncio.get_running_loop().call_later(7200, cluster.produce, "t", [b"v"])
                    record = await consumer.get(timeout=86400)
                    assert record is not None
                    return sim.clock.monotonic()

        assert 7200 <= Simulation(1).run(main) < 7201

    def test_an_exception_of_the_scenario_is_raised(self) -> None:
        async def main(sim: Simulation) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as raised:
            Simulation(99).run(main)
        assert any("99" in note for note in raised.value.__notes__)
