"""Fixtures for pytest: an embedded cluster for the session, and a new topic for each test.

    def test_orders(kafka_cluster, kafka_topic):
        kafka_cluster.produce(kafka_topic, [b"v"])

    @pytest.mark.kafka_topic(partitions=6, configs={"retention.bytes": 1 << 20})
    async def test_many(kafka_cluster, kafka_topic): ...

    def test_one_broker(kafka_cluster_factory):
        cluster = kafka_cluster_factory(brokers=1, topics={"orders": 3})

    @pytest.mark.kafka_faults(seeds=50, topics={"orders": Feed()})
    def test_service(kafka_simulation):
        kafka_simulation(service)  # `explore` with these options

After each test, the faults of its clusters are removed, and their brokers started.

A cluster runs in a thread of its own, so that synchronous and asynchronous tests can use it with
any event loop. pytest loads this module in every run where the package is installed, so the module
imports nothing before it is needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from aiokclient.testing.cluster import EmbeddedCluster
    from aiokclient.testing.exploration.exploring import Report
    from aiokclient.testing.simulation.simulation import Simulation

_BROKERS = 3
_SEEDS: Final = 50
_BLOCK: Final = 25
"""The most seeds of one test. Tests with more are several, which pytest-xdist may distribute."""
_FIXTURES = {"kafka_cluster", "kafka_cluster_factory"}
_numbers = count(1)
_running: list[EmbeddedCluster] = []
"""The clusters of the fixtures that are running."""
_of_test: list[EmbeddedCluster] = []
"""Those of them that are closed after the present test."""
_scopes: list[str] = []
"""The scopes of the fixtures that are being made, the innermost last."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers `kafka_topic` and `kafka_faults`."""
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=1, replication=None, configs={}): how the topic of the fixture "
        "kafka_topic is made",
    )
    config.addinivalue_line(
        "markers",
        "kafka_faults(seeds=50, first_seed=0, **options): the options of explore for the fixture "
        "kafka_simulation; a test that is a coroutine function is the service",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divide the seeds of a test with the fixture `kafka_simulation` into blocks."""
    if "kafka_simulation" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("kafka_faults")
    options = {} if marker is None else marker.kwargs
    seeds, first = options.get("seeds", _SEEDS), options.get("first_seed", 0)
    blocks = [(at, min(_BLOCK, first + seeds - at)) for at in range(first, first + seeds, _BLOCK)]
    names = [f"seeds {at}-{at + size - 1}" for at, size in blocks]
    metafunc.parametrize("kafka_simulation", blocks, indirect=True, ids=names)


@pytest.fixture
def kafka_simulation(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """A function that explores a service, with the options of the marker `kafka_faults`.

    It takes a service and more options of `explore`. If the test is a coroutine function, the
    fixture is the `Simulation`: the test is the service, which runs once for each seed. The picture
    of a counterexample is written to pytest's cache.
    """
    from aiokclient.testing.exploration.exploring import CounterexampleError, explore

    marker = request.node.get_closest_marker("kafka_faults")
    first_seed, seeds = request.param
    given = {} if marker is None else marker.kwargs
    options = {**given, "first_seed": first_seed, "seeds": seeds}

    def run(service: Callable[[Simulation], Coroutine[Any, Any, object]], **more: Any) -> Report:
        try:
            return explore(service, **{**options, **more})
        except CounterexampleError as error:
            cache = getattr(request.config, "cache", None)
            if cache is not None:
                path = cache.mkdir("kafka_simulation") / f"seed-{error.seed}.svg"
                path.write_text(error.timeline.svg(), encoding="utf-8")
                error.add_note(f"The picture of the timeline is in {path}.")
            raise

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function with the marker `kafka_faults` as a service."""
    function = inspect.unwrap(pyfuncitem.obj)
    run: Any = pyfuncitem.funcargs.get("kafka_simulation")
    if run is None or not inspect.iscoroutinefunction(function):
        return None
    names = inspect.signature(function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}

    async def service(sim: Simulation) -> None:
        await function(**{**arguments, "kafka_simulation": sim})

    service.__module__, service.__qualname__ = function.__module__, function.__qualname__
    run(service)
    return True


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[EmbeddedCluster]:
    """An embedded cluster of three brokers on loopback, for the whole session.

    Faults that a test does not remove end with the test: `kafka_cluster.reset()` is called after
    it. Topics, records, and groups stay.
    """
    from aiokclient.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(brokers=_BROKERS) as cluster:
        _running.append(cluster)
        yield cluster
        _running.remove(cluster)


@pytest.fixture(scope="session")
def kafka_cluster_factory() -> Iterator[Callable[..., EmbeddedCluster]]:
    """A function that starts an embedded cluster with the options of `EmbeddedCluster`.

    A cluster that a test, or a fixture of one test, has started is closed after that test. One that
    a fixture of a larger scope has started is closed at the end of the session.
    """
    from aiokclient.testing.cluster import EmbeddedCluster

    def start(**options: Any) -> EmbeddedCluster:
        cluster = EmbeddedCluster(**options)
        cluster.start()
        _running.append(cluster)
        if not _scopes or _scopes[-1] == "function":
            _of_test.append(cluster)
        else:
            lasting.append(cluster)
        return cluster

    lasting: list[EmbeddedCluster] = []
    yield start
    for cluster in lasting:
        _running.remove(cluster)
        cluster.close()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],
) -> Generator[None, object, object]:
    """Note the scope of the fixture that is being made, for `kafka_cluster_factory`."""
    _scopes.append(fixturedef.scope)
    try:
        return (yield)
    finally:
        _scopes.pop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Close the clusters of a test, and remove the faults from those that stay."""
    try:
        return (yield)
    finally:
        while _of_test:
            cluster = _of_test.pop()
            _running.remove(cluster)
            cluster.close()
        if _FIXTURES & set(getattr(item, "fixturenames", ())):
            for cluster in _running:
                cluster.reset()


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic for this test only, with one partition unless the marker says more."""
    marker = request.node.get_closest_marker("kafka_topic")
    options = {} if marker is None else dict(marker.kwargs)
    name = f"test-{next(_numbers)}"
    kafka_cluster.create_topic(name, **options)
    yield name
    if name in kafka_cluster.topics:
        kafka_cluster.delete_topic(name)
