"""Fixtures for all tests: real Kafka clusters, and one interface to real and embedded ones.

Each cluster starts once in a session, when the first test requests it. If the environment
variable ``KAFKA_BOOTSTRAP`` names a cluster, the tests that request ``kafka`` run against it.
"""

import asyncio
import contextlib
import gc
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import loops
import pytest
from garbage import excluded
from hypothesis import HealthCheck, is_hypothesis_test, settings
from kafka_harness import (
    KAFKA,
    OLD,
    TOOLS,
    Distribution,
    ExternalKafka,
    KafkaCluster,
    MissingToolError,
    ToolHost,
    find_java,
)
from kafka_harness.java import find
from kafka_harness.node import running
from slow import SLOW
from thinned import omitted_rows

from aiokclient._native import are_sources_newer, in_use

# High load must not make a test fail, and each run must use the same examples. Only `make test-all`
# and `make fuzz` generate new examples.
explores = any(map(os.environ.get, ("AIOKCLIENT_EXPLORE", "AIOKCLIENT_FUZZ")))
# `make test` draws fewer, and its steps that repeat tests on another Python or loop fewer still. Of
# a test with parameters, those steps run only each `repeated`-th row.
repeated = int(os.environ.get("AIOKCLIENT_REPEATED") or 0)
examples = 100 if explores else 25 if repeated else 50
settings.register_profile(
    "any time",
    deadline=None,
    derandomize=not explores,
    max_examples=examples,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any time")

loops.install()

# If the tests themselves run in the background, the processes that they start would ignore
# interrupts as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

T = TypeVar("T")
TESTS = Path(__file__).resolve().parent
REAL = {"kafka", "kafka3", "kafka_secured", "kafka_old", "kafka_telemetry"}
JAVA = {"java", "kafka_jars", "kafka_tools_jars"}


def or_fail(find: Callable[[], T]) -> T:
    """Return the result of ``find``.

    If a program is missing, the test fails with the command that installs it.
    """
    try:
        return find()
    except MissingToolError as error:
        missing = str(error)
    pytest.fail(missing, pytrace=False)


@pytest.fixture(scope="session")
def java() -> str:
    """The path of Java. If it is missing, the test fails with the command that installs it."""
    return or_fail(find_java)


def jars(distribution: Distribution) -> list[Path]:
    return sorted(or_fail(distribution.jars).glob("*.jar"))


@pytest.fixture(scope="session")
def kafka_jars(java: str) -> list[Path]:
    """The jars of Kafka 4.4.0, including kafka-clients with its message definitions."""
    return jars(KAFKA)


@pytest.fixture(scope="session")
def kafka_tools_jars(java: str) -> list[Path]:
    """The jars of Kafka 4.3.1 with its command line tools."""
    return jars(TOOLS)


@pytest.fixture(scope="session")
def tool_host(kafka_tools_jars: list[Path]) -> Iterator[ToolHost]:
    """All tools of Kafka 4.3.1 in one Java process. `make tools` runs the tests that need it."""
    or_fail(lambda: find("javac"))
    with ToolHost() as host:
        yield host


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[ExternalKafka]:
    """One real broker, or the cluster that KAFKA_BOOTSTRAP names."""
    if own := os.environ.get("KAFKA_BOOTSTRAP"):
        yield ExternalKafka(own)
        return
    request.getfixturevalue("java")
    with KafkaCluster(KAFKA) as cluster:
        yield cluster


idle_clusters: dict[str, KafkaCluster] = {}
"""Clusters of fixtures by their names, which are suspended while tests do not use them."""


@contextlib.contextmanager
def suspended_when_idle(fixture: str, cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """Start a cluster, and let it be suspended before tests without this fixture."""
    with cluster:
        idle_clusters[fixture] = cluster
        yield cluster
        del idle_clusters[fixture]


@pytest.fixture(scope="session")
def kafka_old_session(java: str) -> Iterator[KafkaCluster]:
    with suspended_when_idle("kafka_old", KafkaCluster(OLD)) as cluster:
        yield cluster


@pytest.fixture
def kafka_old(kafka_old_session: KafkaCluster) -> KafkaCluster:
    """One broker of an older Kafka, 3.9.1."""
    kafka_old_session.heal()
    return kafka_old_session


@pytest.fixture(scope="session")
def kafka_telemetry(java: str) -> Iterator[KafkaCluster]:
    """One broker to which clients push metrics. It writes them into the topic `client-metrics`."""
    with KafkaCluster(KAFKA, telemetry="client-metrics") as cluster:
        cluster.create_topic("client-metrics", configs={"max.message.bytes": 1 << 24})
        yield cluster


@pytest.fixture(scope="session")
def kafka3_session(java: str) -> Iterator[KafkaCluster]:
    # A broker may get no processor time for a moment. It must not count as dead then.
    properties = {"broker.session.timeout.ms": 3000}
    made = KafkaCluster(KAFKA, brokers=3, properties=properties)
    with suspended_when_idle("kafka3", made) as cluster:
        yield cluster


@pytest.fixture
def kafka3(kafka3_session: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers and a controller, which run again after a test that kills or suspends them."""
    kafka3_session.heal()
    yield kafka3_session
    kafka3_session.heal()


@pytest.fixture(scope="session")
def kafka_secured(java: str) -> Iterator[KafkaCluster]:
    """One broker with an authorizer. Clients of the listener SASL log in with SCRAM.

    Clients of its other listener are super users.
    """
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    prefix = "listener.name.sasl."
    properties: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "a-test-secret",
        f"{prefix}sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}scram-sha-256.sasl.jaas.config": login,
        f"{prefix}scram-sha-512.sasl.jaas.config": login,
    }
    with KafkaCluster(KAFKA, properties=properties, listeners={"SASL": "SASL_PLAINTEXT"}) as kafka:
        yield kafka


class Servers:
    """A cluster for behavior tests: embedded or real."""

    def __init__(self, kind: str, kafka: ExternalKafka) -> None:
        self.kind, self.kafka, self.bootstrap = kind, kafka, kafka.bootstrap

    async def new_topic(
        self, partitions: int = 1, replication: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic with a new name, which every broker knows when this returns.

        ``replication`` is reduced to the number of brokers if necessary.
        """
        brokers = len(self.kafka.metadata([]).brokers)
        create = self.kafka.create_topic
        return await asyncio.to_thread(create, None, partitions, min(replication, brokers), configs)


@pytest.fixture(scope="session")
def embedded_servers() -> Iterator[Servers]:
    from aiokclient.testing import EmbeddedCluster

    # The shortest session timeout that the real brokers of the tests allow, and their heartbeats.
    configs = {"group.min.session.timeout.ms": 1000, "group.share.heartbeat.interval.ms": 500}
    with EmbeddedCluster(brokers=3, configs=configs) as cluster:
        yield Servers("embedded", ExternalKafka(cluster.bootstrap_servers))


@pytest.fixture(params=["embedded", "kafka"])
def cluster_servers(request: pytest.FixtureRequest) -> Servers:
    """A cluster for a test that runs twice: on the embedded cluster and on a real Kafka."""
    if request.param == "embedded":
        servers: Servers = request.getfixturevalue("embedded_servers")
        return servers
    return Servers("kafka", request.getfixturevalue("kafka"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Distribute the tests to workers by the servers that they need, unless ``--dist`` is set."""
    if config.getoption("dist") != "load":
        return None
    from scheduling import TwoEndsScheduling

    return TwoEndsScheduling(config, log)


NEEDS_SERVERS = re.compile(r"(?<!aio)kafka|java|cluster_servers")
"""A pattern in the files of all tests with a real Kafka or Java, or in a conftest.py above them."""
WITH_TARGETS = ("walk", "tools", "registry", "workers", "share", "share_real")
"""Marks of tests that only run if `-m` names them, as the targets of `make` with these names do.

The target of `share_real` is `share-real`.
"""
RUNS_TOOLS = re.compile(r"tool_host|sides|mark\.tools")
"""A pattern in the files of all tests with the mark `tools`."""
SERVERS = ("kafka", "java")
ONLY_WITH_SERVERS = " or ".join(SERVERS)
QUICK = f"not ({ONLY_WITH_SERVERS} or slow or hypothesis)"
"""The expression of `make quick`. Hypothesis marks the tests whose input it draws."""
WHOLLY_SLOW = tuple(name for name in SLOW if "::" not in name)


def may_need_servers(path: Path) -> bool:
    """Return whether a file may contain tests with the mark `kafka` or `java`."""
    above = [folder / "conftest.py" for folder in path.parents if TESTS in folder.parents]
    files = [path, *(file for file in above if file.exists())]
    return any(NEEDS_SERVERS.search(file.read_text()) for file in files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files whose tests the expression of `-m` would leave out anyway.

    `-m "kafka or java"` leaves out most files, and importing them takes each worker seconds.
    """
    if not collection_path.name.startswith("test_"):
        return None
    match config.option.markexpr:
        case str(chosen) if chosen == ONLY_WITH_SERVERS:
            return None if may_need_servers(collection_path) else True
        case "tools":
            return None if RUNS_TOOLS.search(collection_path.read_text()) else True
        case str(chosen) if chosen == QUICK:
            path = collection_path.relative_to(TESTS.parent).as_posix()
            return True if path.startswith(WHOLLY_SLOW) else None
    return None


if os.environ.get("AIOKCLIENT_COMPILE"):

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
        """Import the files, and make no tests of them, which would take as long again.

        Those of Hypothesis are an exception. For them, it caches the constants in all sources.
        """
        return None if is_hypothesis_test(obj) else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need a real Kafka or Java, and slow ones, so that ``-m`` can omit them."""
    for item in items:
        if "tool_host" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.tools)
    others = {name for name in WITH_TARGETS if name not in (config.option.markexpr or "")}
    left_out = [item for item in items if any(mark.name in others for mark in item.iter_markers())]
    config.hook.pytest_deselected(items=left_out)
    omitted = set(left_out)
    items[:] = [item for item in items if item not in omitted]
    with_servers: set[Path] = set()
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        # A parameter of a fixture may be the name of the fixture that it requests.
        real = names & REAL or any(
            value in REAL for value in parameters.values() if isinstance(value, str)
        )
        # Tests in this folder may start other Kafka clusters without these fixtures.
        if real or item.nodeid.startswith("tests/faults/kafka/"):
            item.add_marker(pytest.mark.kafka)
        if names & JAVA:
            item.add_marker(pytest.mark.java)
        if any(item.iter_markers("kafka")) or any(item.iter_markers("java")):
            with_servers.add(item.path)
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    missed = [str(path) for path in with_servers if not may_need_servers(path)]
    assert missed == [], f"-m '{ONLY_WITH_SERVERS}' would not find the tests of these files"
    if repeated:
        # The expression of `-m` leaves out tests with servers in these steps.
        alone = [item for item in items if not any(map(item.get_closest_marker, SERVERS))]
        omitted = set(omitted_rows(repeated, alone))
        config.hook.pytest_deselected(items=list(omitted))
        items[:] = [item for item in items if item not in omitted]
    if hasattr(config, "workerinput"):
        from scheduling import sort_for_workers

        sort_for_workers(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the skipped tests of faults, because tests/faults.md promises that they run.

    Say if modules ran from their sources, because one has changed since they were compiled.
    """
    if in_use() and are_sources_newer():
        terminalreporter.line("The sources of modules ran that `make native` compiles.")
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "fault" in getattr(report, "keywords", ())  # A file that was skipped whole has none.
    ]
    if skipped:
        terminalreporter.section("tests of faults that did not run")
        for report in skipped:
            terminalreporter.line(f"{report.nodeid}: {report.longrepr[2]}")


LOG_STARTS = pytest.StashKey[dict[Path, int]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    sizes = {node.log: node.log.stat().st_size for node in list(running) if node.log.exists()}
    item.stash[LOG_STARTS] = sizes
    excluded.ensure()
    if hasattr(item.config, "workerinput"):
        # The four processes of `kafka3` take a sixth of a processor even if nobody asks anything of
        # them, and that of `kafka_old` a part of it. The tests of a worker are sorted by need, and
        # the fixtures would resume them.
        for name in idle_clusters.keys() - set(getattr(item, "fixturenames", ())):
            for node in idle_clusters[name].nodes:
                idle_clusters[name].pause(node)
    if "caplog" in getattr(item, "fixturenames", ()):
        # Objects in reference cycles of earlier tests log their failures when they are collected.
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the logs of the brokers to the report of a failed test."""
    report = yield
    if report.failed and item.get_closest_marker("kafka"):
        starts = item.stash.get(LOG_STARTS, {})
        for node in sorted(running, key=lambda node: node.folder.name):
            if tail := node.tail(starts.get(node.log, 0)):
                report.sections.append((f"log of {node.folder.name}", tail))
    return report
