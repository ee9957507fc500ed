"""Tests of the pytest fixtures and of the command that the package installs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aiokclient.protocol import messages


@pytest.fixture
def run_pytest(tmp_path):
    """Return a function that runs a test file in a separate pytest with only the plugin."""

    def run(text):
        (tmp_path / "test_it.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "aiokclient.testing.plugin"]
        command += ["-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
        command += ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
        command += ["-p", "pytest_asyncio.plugin"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )

    return run


def test_factory_starts_clusters_with_options_and_closes_them(run_pytest):
    done = run_pytest(
        """
import pytest
from aiokclient.errors import IllegalStateError

clusters = []

@pytest.fixture(scope="module")
def two_brokers(kafka_cluster_factory):
    cluster = kafka_cluster_factory(brokers=2)
    clusters.append(cluster)
    return cluster

@pytest.fixture
def topics(kafka_cluster_factory):
    return kafka_cluster_factory(brokers=1, topics={"u": 2})

def test_in_the_test(kafka_cluster_factory, topics, two_brokers):
    cluster = kafka_cluster_factory(brokers=1, topics={"t": 3})
    clusters.extend([cluster, topics])
    assert cluster.topics == {"t": 3}
    assert topics.topics == {"u": 2}
    assert cluster.bootstrap_servers != topics.bootstrap_servers
    cluster.produce("t", [b"v"])

async def test_afterwards(two_brokers):
    kept, *closed = clusters
    assert kept is two_brokers
    assert len(kept.brokers) == 2
    kept.create_topic("alive")
    for cluster in closed:
        with pytest.raises(IllegalStateError):
            cluster.create_topic("late")
"""
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_faults_of_a_test_end_with_it(run_pytest):
    done = run_pytest(
        """
from aiokclient import Producer
from aiokclient.errors import TopicAuthorizationError
from aiokclient.protocol import ApiKey

def test_leaves_faults(kafka_cluster, kafka_topic):
    kafka_cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
    kafka_cluster.stop(1)

async def test_has_no_faults(kafka_cluster, kafka_topic):
    assert kafka_cluster.requests == []
    async with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        await producer.send(kafka_topic, b"v")
        assert len(producer.health().brokers) == 3
"""
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_fixtures_work_in_synchronous_and_asynchronous_tests(run_pytest):
    done = run_pytest(
        """
import pytest

names = []

def test_plain(kafka_cluster, kafka_topic):
    names.append(kafka_topic)
    kafka_cluster.produce(kafka_topic, [b"v"])
    assert len(kafka_cluster.records(kafka_topic)) == 1

async def test_async(kafka_cluster, kafka_topic):
    names.append(kafka_topic)
    assert kafka_cluster.topics == {kafka_topic: 1}
    assert len(kafka_cluster.brokers) == 3

@pytest.mark.kafka_topic(partitions=4, configs={"retention.bytes": 1000})
def test_marked(kafka_cluster, kafka_topic):
    names.append(kafka_topic)
    assert kafka_cluster.topics == {kafka_topic: 4}
    kafka_cluster.delete_topic(kafka_topic)

def test_fresh():
    assert len(set(names)) == 3
"""
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_imports_little():
    code = (
        "import sys, aiokclient.testing.plugin;"
        "print([m for m in ('aiokclient.testing.cluster', 'aiokclient.record.batch')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_runs_a_cluster(wire_to, number):
    command = [sys.executable, "-m", "aiokclient.testing", "--brokers", "2", "--port", "0"]
    command += ["--topic", "orders:3", "--config", "message.max.bytes=777"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("bootstrap servers: ")
            first, second = line.split()[-1].split(",")
            line = process.stdout.readline()
            assert line.startswith("bootstrap controllers: ")
            assert len({first, second, *line.split()[-1].split(",")}) == 4
            host, port = second.split(":")
            connection = wire_to(None).at((host, int(port)))
            response = connection.request(messages.MetadataRequest(topics=None))
            assert [f"{each.host}:{each.port}" for each in response.brokers] == [first, second]
            (topic,) = response.topics
            assert (topic.name, len(topic.partitions)) == ("orders", 3)
        finally:
            process.send_signal(number)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    "arguments",
    [["--brokers", "0"], ["--config", "nonsense=1"], ["--topic", "a:b"], ["--config", "x"]],
)
def test_the_command_refuses_bad_options(arguments):
    command = [sys.executable, "-m", "aiokclient.testing", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(("python -m aiokclient.testing: ", "usage: "))


def test_the_programs_of_the_page_about_pytest_pass(run_pytest):
    page = Path(__file__).resolve().parents[3] / "docs" / "pytest.md"
    programs = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    done = run_pytest("\n".join(programs))
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
