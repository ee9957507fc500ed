"""A pytest plugin that runs aiokafka's own suite on the adapter, for `make adapter`.

It installs the adapter as `aiokafka`, gives the tests a cluster, embedded or real, and puts stubs
in place of the modules that the adapter lacks, so that a file of tests can be imported although
some of its tests use them. `APART` names the tests that cannot pass, with the reasons. All of them
assert, replace, or change internals of aiokafka.

The files of the suite that are not run test parts of aiokafka only: its client, connections,
protocol, record formats, fetcher, sender, coordinator, accumulator, and the steps of its assignors.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiokafka_cluster import (
    AclManager,
    Administration,
    KafkaConfig,
    KerberosUtils,
    SuiteCluster,
    suite_cluster,
)
from kerberos_peers import MISSING

from aiokclient.adapters.aiokafka import install

SENDER = "It reads or replaces parts of the producer: its sender, accumulator, or metadata."
REQUESTS = "It replaces the function that sends all requests, or their responses."
TRANSACTIONS = "It reads or changes the producer's transaction manager."
FETCHER = "It counts, reads, or replaces the records that the fetcher has buffered."
GROUP = "It reads or replaces parts of the group coordinator."

APART = {
    **dict.fromkeys(
        (
            *("test_producer_context_manager", "test_producer_idempotence_configuration"),
            *("test_producer_invalid_leader_retry_metadata", "test_producer_notopic"),
            *("test_producer_leader_change_preserves_order", "test_producer_send_empty_batch"),
            "test_producer_send_leader_notfound",
            "test_producer_sender_errors_propagate_to_producer",
        ),
        SENDER,
    ),
    **dict.fromkeys(
        (
            *("test_producer_correct_time_returned", "test_producer_send_error"),
            *("test_producer_send_timeout", "test_producer_send_reenque_resets_waiters"),
            *(
                "test_consumer_compressed_returns_older_msgs",
                "test_consumer_invalid_crc_in_records",
            ),
        ),
        REQUESTS,
    ),
    **dict.fromkeys(
        (
            "test_producer_transactional_aborting_previous_failure",
            "test_producer_transactional_cancel_txn_methods",
            "test_producer_transactional_raise_out_of_sequence",
            "test_producer_transactional_restart_reaquire_pid",
        ),
        TRANSACTIONS,
    ),
    **dict.fromkeys(
        (
            "test_consumer_cleanup_unassigned_data_getmany",
            "test_consumer_cleanup_unassigned_data_getone",
            *("test_consumer_compacted_topic", "test_consumer_seek_backward"),
            *("test_consumer_seek_forward_getmany", "test_consumer_seek_forward_getone"),
        ),
        FETCHER,
    ),
    **dict.fromkeys(
        (
            "test_consumer_propagates_commit_refresh_errors",
            "test_consumer_propagates_coordinator_errors",
            "test_consumer_propagates_heartbeat_errors",
            "test_kafka_consumer_sets_coordinator_values",
            "test_rebalance_listener_with_coroutines",
        ),
        GROUP,
    ),
}
"""The tests that are not run, with the reasons."""
KERBEROS = {"test_sasl_plaintext_gssapi", "test_admin_client_sasl_plaintext_gssapi"}
"""The tests that need a KDC."""


class Stub:
    """A class of a module that the adapter lacks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("This is internal to aiokafka.")


class StubModule(ModuleType):
    """A module that the adapter lacks. It has any class."""

    __path__: list[str] = []  # noqa: RUF012 - that of a module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Stub,), {})


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder of the modules that the adapter lacks."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("aiokafka."):
            return None
        try:
            known = importlib.util.find_spec("aiokclient.adapters." + fullname) is not None
        except ModuleNotFoundError:
            known = False
        return None if known else importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def pytest_configure() -> None:
    """Install the adapter, before the tests are imported."""
    install()
    sys.meta_path.insert(0, StubFinder())
    consumer = importlib.import_module("aiokafka.consumer")
    vars(consumer)["fetcher"] = importlib.import_module("aiokafka.consumer.fetcher")
    sys.modules.setdefault("docker", StubModule("docker"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Do not run the tests of `APART`, nor those that need a KDC if the machine has none."""
    for item in items:
        reason = APART.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, run=False))
        elif item.name in KERBEROS and MISSING:
            item.add_marker(pytest.mark.skip(reason=f"Missing: {MISSING}. Run .ci/need-krb5."))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteCluster]:
    """A cluster that creates topics with two partitions."""
    real = os.environ.get("AIOKCLIENT_SUITE_KAFKA") == "real"
    with suite_cluster(tmp_path_factory.mktemp("certificates"), real) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ssl_folder(cluster: SuiteCluster) -> Path:
    """The folder with the certificates of clients."""
    return cluster.certificates


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop for the tests of a class."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: Any, loop: asyncio.AbstractEventLoop) -> None:
    """The attributes of a class of tests without a cluster."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: Any, loop: asyncio.AbstractEventLoop, cluster: SuiteCluster) -> None:
    """The attributes of a class of tests with a cluster."""
    host, _, port = cluster.plain.rpartition(":")
    administration = Administration(cluster.plain)
    values = {
        "loop": loop,
        "hosts": [cluster.plain],
        "kafka_host": host,
        "kafka_port": int(port),
        "kafka_ssl_port": cluster.ssl_port,
        "kafka_sasl_plain_port": cluster.sasl_port,
        "kafka_version": "2.8",
        "ssl_folder": cluster.certificates,
        "acl_manager": AclManager(administration),
        "kafka_config": KafkaConfig(administration),
        "kerberos_utils": None if cluster.kdc is None else KerberosUtils(cluster.kdc),
    }
    for name, value in values.items():
        setattr(request.cls, name, value)
