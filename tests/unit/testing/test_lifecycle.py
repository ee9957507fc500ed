"""Tests of the threads and loops of an embedded cluster, and of its start and end."""

import asyncio
import concurrent.futures
import gc
import socket
import threading
from typing import Any

import pytest

from aiokclient import errors
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.framing import ClientPipeline, FrameReader
from aiokclient.testing import EmbeddedCluster


async def metadata(address):
    """Return the brokers in a metadata response of this broker, requested in the current loop."""
    reader, writer = await asyncio.open_connection(*address)
    pipeline, frames = ClientPipeline("raw"), FrameReader(1 << 20)
    _, segments = pipeline.encode_request(messages.MetadataRequest(topics=[]), 12)
    writer.writelines(segments)
    found = []
    while not found:
        data = await reader.read(1 << 12)
        assert data, "the connection was closed"
        buffer = frames.get_buffer()
        buffer[: len(data)] = data
        found = frames.take_frames(len(data))
    writer.close()
    await writer.wait_closed()
    return [each.node_id for each in pipeline.match_response(found[0]).decode(found[0]).brokers]


async def test_a_cluster_runs_in_the_current_loop():
    before = set(threading.enumerate())
    async with EmbeddedCluster(2, {"orders": 2}) as cluster:
        assert set(threading.enumerate()) <= before
        assert await metadata(cluster.address(1)) == [1, 2]
        cluster.produce("orders", [b"v"])
        assert len(cluster.records("orders", 0)) == 1
        # Other threads may also use the controls.
        assert await asyncio.to_thread(lambda: cluster.topics) == {"orders": 2}
        cluster.stop(2)
        assert cluster.leader("orders", 1) == 1
        cluster.start(2)
        await cluster.until(lambda: sorted(cluster.isr("orders", 1)) == [1, 2])
        assert await metadata(cluster.address(2)) == [1, 2]
        assert await cluster.until(lambda: len(cluster.requests) == 2)
    assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []


async def test_a_cluster_runs_in_a_thread():
    before = set(threading.enumerate())
    with EmbeddedCluster(2) as cluster:
        (made,) = set(threading.enumerate()) - before
        assert made.name == "aiokclient-embedded-cluster"
        assert await metadata(cluster.address(2)) == [1, 2]
    assert not made.is_alive()
    with pytest.raises(OSError, match=r".*"):
        await metadata(cluster.address(2))


def test_a_cluster_can_be_started_only_once():
    cluster = EmbeddedCluster()
    with pytest.raises(errors.IllegalStateError, match="not running"):
        cluster.produce("x", [b"v"])
    for ask in (lambda: cluster.bootstrap_servers, lambda: cluster.address(1)):
        with pytest.raises(errors.IllegalStateError, match="before its start"):
            ask()
    with cluster:
        pass
    assert cluster.bootstrap_servers == "{}:{}".format(*cluster.address(1))
    with pytest.raises(errors.IllegalStateError, match="started only once"), cluster:
        pass


async def test_start_and_close_run_a_thread_for_a_notebook():
    before = set(threading.enumerate())
    cluster = EmbeddedCluster(2, {"orders": 2})
    assert cluster.start() is None
    assert await metadata(cluster.address(2)) == [1, 2]
    cluster.stop(2)
    cluster.start(2)
    assert await metadata(cluster.address(2)) == [1, 2]
    cluster.close()
    cluster.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match=r".*"):
        await metadata(cluster.address(1))
    with pytest.raises(errors.IllegalStateError, match=r"not running.*or call start\(\)"):
        cluster.produce("orders", [b"v"])
    with pytest.raises(errors.IllegalStateError, match="started only once"):
        cluster.start()


def test_close_does_nothing_before_the_start():
    cluster = EmbeddedCluster()
    cluster.close()
    with pytest.raises(errors.IllegalStateError, match="started only once"):
        cluster.start()


def test_start_raises_when_the_cluster_runs_or_the_broker_does_not_exist():
    with EmbeddedCluster() as cluster:
        with pytest.raises(errors.IllegalStateError, match="started only once"):
            cluster.start()
        with pytest.raises(ValueError, match="There is no broker 7"):
            cluster.start(7)
        with pytest.raises(ValueError, match="There is no broker 0"):
            cluster.start(0)
        cluster.start(1)
        assert cluster.connections() == 0


def test_a_start_that_fails_leaves_no_thread():
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = EmbeddedCluster(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="cannot listen at"):
            cluster.start()
    cluster.close()
    assert set(threading.enumerate()) <= before


async def test_close_stops_the_brokers_inside_async_with():
    async with EmbeddedCluster(2) as cluster:
        cluster.close()
        with pytest.raises(OSError, match=r".*"):
            await metadata(cluster.address(1))
        cluster.close()


async def test_close_raises_in_the_clusters_own_thread(wire_to):
    cluster = EmbeddedCluster()
    cluster.start()
    refused = []

    def change(request, response):
        with pytest.raises(errors.IllegalStateError, match="from its own thread"):
            cluster.close()
        refused.append(request)
        return response

    with cluster.alter(ApiKey.METADATA, change):
        assert await metadata(cluster.address(1)) == [1]
    assert refused
    cluster.close()


def test_two_threads_may_close_a_cluster():
    for _ in range(50):  # The system reuses the identifiers of ended threads for new ones.
        cluster = EmbeddedCluster()
        cluster.start()
        closing = [threading.Thread(target=cluster.close) for _ in range(4)]
        for each in closing:
            each.start()
        for each in closing:
            each.join()
    with pytest.raises(errors.IllegalStateError, match="not running"):
        assert cluster.requests


async def test_wait_for_raises_in_a_loop_and_names_until():
    cluster = EmbeddedCluster()
    cluster.start()
    with pytest.raises(errors.IllegalStateError, match=r"await cluster\.until\(\)"):
        cluster.wait_for(lambda: True)
    assert await cluster.until(lambda: "found", 5.0) == "found"
    with pytest.raises(errors.KafkaTimeoutError, match=r"within 0\.01 s"):
        await cluster.until(lambda: False, 0.01)
    with pytest.raises(errors.KafkaTimeoutError, match=r"within 0\.01 s"):
        await asyncio.to_thread(cluster.wait_for, lambda: False, 0.01)
    cluster.close()


def test_faults_may_be_removed_after_the_end():
    with EmbeddedCluster() as cluster:
        fault = cluster.fail(ApiKey.FETCH, errors.NotLeaderOrFollowerError)
    fault.remove()


@pytest.mark.parametrize("options", [{"brokers": 0}, {"brokers": 2, "racks": ["a"]}])
def test_bad_options_of_the_embedded_cluster_are_refused(options):
    with pytest.raises(ValueError, match="broker"):
        EmbeddedCluster(**options)
    with pytest.raises(ValueError, match="There is no config"):
        EmbeddedCluster(configs={"nonsense": 1})


def free_ports(count):
    """Return the first of `count` consecutive ports that are all free."""
    for first in range(21000, 60000, 17):
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


def test_brokers_listen_on_the_requested_ports():
    first = free_ports(2)
    with EmbeddedCluster(2, port=first) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{first},127.0.0.1:{first + 1}"
        with pytest.raises(OSError, match="cannot listen at"), EmbeddedCluster(port=first):
            pass
    with EmbeddedCluster(2, port=first):
        pass


def test_the_advertised_host_is_returned():
    with EmbeddedCluster(advertised_host="localhost") as cluster:
        assert cluster.address(1)[0] == "localhost"
        asyncio.run(metadata(cluster.address(1)))


def test_the_same_seed_gives_the_same_ids():
    def ids(seed):
        with EmbeddedCluster(topics=["a", "b"], seed=seed) as cluster:
            return cluster.cluster_id, cluster.topic_id("a"), cluster.topic_id("b")

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert len(ids(None)[0]) == 22


async def test_a_failed_start_leaves_nothing(tmp_path):
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="cannot listen at"):
            async with EmbeddedCluster(port=port):
                pass
        with pytest.raises(OSError, match="cannot listen at"), EmbeddedCluster(port=port):
            pass
    assert set(threading.enumerate()) <= before


def test_a_cluster_runs_under_uvloop():
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with EmbeddedCluster(2, {"orders": 1}) as cluster:
            assert await metadata(cluster.address(1)) == [1, 2]
            cluster.stop(2)
            assert await metadata(cluster.address(1)) == [1]
            cluster.start(2)
            await cluster.until(lambda: cluster.isr("orders", 0) == [1, 2])
            return await metadata(cluster.address(2))

    assert uvloop.run(main()) == [1, 2]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topics": {"a b": 1}}, "topics: 'a b': .* is not a legal topic name"),
        ({"topics": {"orders": 0}}, "topics: 'orders': Number of partitions must be larger than 0"),
        ({"brokers": 1, "port": 65_536}, "65536 is not a port"),
    ],
)
async def test_a_failed_start_leaves_no_open_socket(wrong, said):
    """Sockets left open would cause warnings, which are errors here."""
    with pytest.raises(ValueError, match=said), EmbeddedCluster(**{"brokers": 2, **wrong}):
        pass
    with pytest.raises(ValueError, match=said):
        async with EmbeddedCluster(**{"brokers": 2, **wrong}):
            pass
    gc.collect()


def test_topics_may_be_a_single_name():
    with EmbeddedCluster(topics="orders") as cluster:
        assert cluster.topics == {"orders": 1}


async def test_faults_that_match_no_request_are_refused():
    refusal, fetch = errors.NotLeaderOrFollowerError, ApiKey.FETCH
    async with EmbeddedCluster() as cluster:
        with pytest.raises(ValueError, match="'FETCH' is not an ApiKey"):
            cluster.fail("FETCH", refusal)
        with pytest.raises(ValueError, match="5000 is not an ApiKey"):
            cluster.drop(5_000)
        with pytest.raises(ValueError, match=r"There is no broker 9\. Brokers: \[1\]"):
            cluster.fail(fetch, refusal, broker=9)
        with pytest.raises(ValueError, match="has no error code"):
            cluster.fail(fetch, ValueError)
        for times in (0, -1, "2"):
            with pytest.raises(ValueError, match="Use 1 or more"):
                cluster.drop(fetch, times=times)
        for seconds in (-1, "2", float("nan")):
            with pytest.raises(ValueError, match=r"seconds=.* is not valid\. Use 0 or more"):
                cluster.delay(fetch, seconds)
            with pytest.raises(ValueError, match=r"seconds=.* is not valid\. Use 0 or more"):
                cluster.throttle(fetch, seconds)
        assert not cluster._state.faults.find_matching(fetch, 1, None)


@pytest.mark.parametrize("ready", [False, True])
def test_a_start_that_is_interrupted_leaves_no_thread(monkeypatch, ready):
    before = set(threading.enumerate())
    made = []

    class Interrupted(concurrent.futures.Future[Any]):
        def result(self, timeout=None):
            if ready:
                self.exception()
            made.extend(set(threading.enumerate()) - before)
            raise KeyboardInterrupt

    cluster = EmbeddedCluster(2, {"orders": 100})
    with monkeypatch.context() as patch:
        patch.setattr(concurrent.futures, "Future", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            cluster.start()
    assert len(made) == 1
    assert not made[0].is_alive()
    cluster.close()
