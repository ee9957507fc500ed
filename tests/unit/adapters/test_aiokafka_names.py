"""The names, the signatures, and the errors of the adapter beside the installed aiokafka."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from importlib import import_module
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from aiokafka_suite import APART
from aiokafka_table import (
    ADAPTER,
    PAGE,
    RAISED_BY_ADAPTER,
    find_unused_notes,
    signature_of,
    write_page,
)

from aiokclient import TopicPartition
from aiokclient import errors as native
from aiokclient.adapters.aiokafka import client, error_mapping, errors, private_names

CLASSES = (
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "abc.AbstractTokenProvider",
    "admin.AIOKafkaAdminClient",
    "admin.NewPartitions",
    "admin.NewTopic",
    "admin.RecordsToDelete",
    "admin.config_resource.ConfigResource",
    "abc.ConsumerRebalanceListener",
    "producer.message_accumulator.BatchBuilder",
    "producer.producer.TransactionContext",
    "structs.ConsumerRecord",
    "structs.OffsetAndMetadata",
    "structs.OffsetAndTimestamp",
    "structs.RecordMetadata",
    "structs.TopicPartition",
    "structs.BrokerMetadata",
    "structs.PartitionMetadata",
    "partitioner.DefaultPartitioner",
    "coordinator.assignors.abstract.AbstractPartitionAssignor",
    "coordinator.assignors.range.RangePartitionAssignor",
    "coordinator.assignors.roundrobin.RoundRobinPartitionAssignor",
    "coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor",
)
FUNCTIONS = (
    "util.create_task",
    "util.create_future",
    "helpers.create_ssl_context",
    "partitioner.murmur2",
    "errors.for_code",
)
NEVER_RAISED = {
    "Cancelled",
    "CorrelationIdError",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IncompatibleBrokerVersion",
    "InvalidMessageError",
    "InvalidProducerEpoch",
    "KafkaUnavailableError",
    "MetadataEmptyBrokerList",
    "NoBrokersAvailable",
    "NoError",
    "QuotaViolationError",
    "SaslAuthenticationFailed",
    "StaleLeaderEpochCodeError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "UnknownMemberIdError",
    "UnrecognizedBrokerVersion",
    "UnsupportedSaslMechanismError",
}
"""Errors that no error of aiokclient becomes: nothing raises them, or they become other ones."""
BASES = {"BrokerResponseError", "KafkaError"}


def find(package: str, path: str) -> Any:
    module, _, name = f"{package}.{path}".rpartition(".")
    return getattr(import_module(module), name)


def public_methods(owner: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in reversed(owner.__mro__[:-1]):
        if kind.__module__.startswith(("aiokafka", ADAPTER)):
            found |= {n: getattr(owner, n) for n in vars(kind) if not n.startswith("_")}
    return {name: each for name, each in found.items() if callable(each)}


def test_version_is_the_installed_one() -> None:
    assert aiokafka.__version__ == client.VERSION


@pytest.mark.parametrize("path", CLASSES)
def test_class_has_the_methods_and_signatures_of_aiokafka(path: str) -> None:
    theirs, ours = find("aiokafka", path), find(ADAPTER, path)
    if theirs.__init__ is not object.__init__ and not issubclass(theirs, tuple):
        assert signature_of(ours.__init__) == signature_of(theirs.__init__)
    if issubclass(theirs, tuple):
        assert ours._fields == theirs._fields
        return
    methods = public_methods(ours)
    expected = public_methods(theirs)
    if path == "AIOKafkaClient":  # They belong to its own protocol.
        expected.pop("ready")
    if path.endswith("StickyPartitionAssignor"):  # Steps of its own algorithm.
        expected = {name: expected[name] for name in ("assign", "metadata", "on_assignment")}
    assert sorted(set(expected) - set(methods)) == []
    for name, method in expected.items():
        if name in ("range", "name"):
            continue
        assert inspect.iscoroutinefunction(methods[name]) == inspect.iscoroutinefunction(
            method
        ) or (path == "AIOKafkaClient" and not inspect.iscoroutinefunction(method)), name
        if path != "AIOKafkaClient":
            want, have = signature_of(method), signature_of(methods[name])
            if path.endswith("BatchBuilder") and name == "append":
                assert [each[:2] for each in have] == [each[:2] for each in want]
            else:
                assert have == want, name


def test_page_has_each_name_of_aiokafka_and_what_the_adapter_has_for_it() -> None:
    # It raises an error for a signature that differs without a note. Run the module to write it.
    page = write_page()
    assert PAGE.read_text() == page
    assert find_unused_notes(page) == []


@pytest.mark.parametrize("path", FUNCTIONS)
def test_function_has_the_signature_of_aiokafka(path: str) -> None:
    assert signature_of(find(ADAPTER, path)) == signature_of(find("aiokafka", path))


def test_package_has_the_public_names_of_aiokafka() -> None:
    ours = import_module(ADAPTER)
    assert set(aiokafka.__all__) <= set(ours.__all__)
    for module in ("abc", "admin", "errors", "structs"):
        theirs = import_module(f"aiokafka.{module}")
        assert set(theirs.__all__) <= set(dir(import_module(f"{ADAPTER}.{module}"))), module


def error_names(module: Any) -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__ == module.__name__
    }


def test_errors_have_the_names_bases_and_codes_of_aiokafka() -> None:
    theirs, ours = error_names(aiokafka.errors), error_names(errors)
    assert set(ours) == set(theirs)
    for name, their_kind in theirs.items():
        kind = ours[name]
        assert [b.__name__ for b in kind.__mro__] == [b.__name__ for b in their_kind.__mro__]
        for attribute in ("errno", "message", "retriable", "invalid_metadata"):
            expected = getattr(their_kind, attribute, None)
            assert getattr(kind, attribute, None) == expected, (name, attribute)
    assert {c: k.__name__ for c, k in errors.kafka_errors.items()} == {
        c: k.__name__ for c, k in aiokafka.errors.kafka_errors.items()
    }


def native_kinds() -> list[type[Exception]]:
    kinds = [getattr(native, name) for name in native.__all__]
    return [
        kind for kind in kinds if isinstance(kind, type) and issubclass(kind, native.KafkaError)
    ]


def test_each_native_error_becomes_one_of_aiokafka() -> None:
    for kind in native_kinds():
        found = error_mapping.find_class(kind)
        assert issubclass(found, errors.KafkaError), kind
        code = vars(kind).get("code")
        if code in errors.kafka_errors and kind not in error_mapping.RAISED:
            assert getattr(found, "errno", None) == code or issubclass(
                kind, tuple(k for k in error_mapping.RAISED if k is not native.KafkaError)
            ), kind


def test_each_error_of_aiokafka_is_raised_or_listed_as_never_raised() -> None:
    raised = {error_mapping.find_class(kind).__name__ for kind in native_kinds()}
    names = {kind.__name__ for kind in error_names(errors).values()}
    unreachable = names - raised - RAISED_BY_ADAPTER - BASES
    assert unreachable == NEVER_RAISED & names
    assert NEVER_RAISED & raised == set()


async def test_private_names_that_frameworks_read_exist() -> None:
    clients = {
        "AIOKafkaProducer": find(ADAPTER, "AIOKafkaProducer")(),
        "AIOKafkaConsumer": find(ADAPTER, "AIOKafkaConsumer")(),
        "AIOKafkaClient": find(ADAPTER, "AIOKafkaClient")(),
    }
    for path in private_names.READ_BY:
        owner, _, name = path.rpartition(".")
        assert hasattr(clients.get(owner) or import_module(f"aiokclient.adapters.{owner}"), name)
        if owner not in clients:
            assert hasattr(import_module(owner), name)


def test_page_has_each_test_of_aiokafka_that_is_not_run_and_the_reason() -> None:
    rows: dict[str, list[str]] = {}
    for name, reason in sorted(APART.items()):
        rows.setdefault(reason, []).append(f"`{name}`")
    page = (PAGE.parent / "aiokafka.md").read_text()
    for reason, names in rows.items():
        assert f"| {reason} | {', '.join(names)} |" in page
    assert f"The other {len(APART)} " in page


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"security_protocol": "SOME"}, ("`security_protocol`", "SSL", "PLAINTEXT")),
        ({"security_protocol": "SSL"}, ("`ssl_context`", "security_protocol=='SSL'")),
        (
            {"security_protocol": "SASL_PLAINTEXT"},
            ("sasl_plain_username and sasl_plain_password required for PLAIN",),
        ),
        ({"isolation_level": "READ_CCC"}, ("isolation level READ_CCC",)),
    ],
)
def test_error_of_a_wrong_option_names_the_arguments(
    options: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError) as caught:
        find(ADAPTER, "AIOKafkaConsumer")(**options)
    for each in named:
        assert each in str(caught.value)


INSTALLED = """
import sys
from aiokclient.adapters.aiokafka import install
install()
install()
import importlib.metadata
import aiokafka, aiokafka.errors, aiokafka.structs
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.producer.producer import _missing
import aiokclient.adapters.aiokafka.errors as own
assert aiokafka.errors is own
assert aiokafka.AIOKafkaProducer.__module__.startswith("aiokclient")
assert importlib.metadata.version("aiokafka") == "0.14.0" == aiokafka.__version__
try:
    import aiokafka.record.default_records
except ModuleNotFoundError as error:
    assert "migration page" in str(error)
else:
    raise AssertionError
"""


def test_install_gives_the_adapter_under_the_name_of_aiokafka() -> None:
    subprocess.run([sys.executable, "-c", INSTALLED], check=True)


def test_install_raises_after_an_import_of_aiokafka() -> None:
    code = "import aiokafka\nfrom aiokclient.adapters.aiokafka import install\ninstall()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RuntimeError: aiokafka was imported before install()" in done.stderr


def test_errors_name_the_topic_or_the_partition_as_in_aiokafka() -> None:
    reading = native.TopicAuthorizationError(resource="orders")
    assert errors_of_topics(reading) == ("orders", True)
    committing = native.TopicAuthorizationError(
        api="OffsetCommit", topic_partition=TopicPartition("orders", 0)
    )
    assert errors_of_topics(committing) == ({"orders"}, True)
    without = error_mapping.translate(native.OffsetOutOfRangeError(api="ListOffsets"))
    assert without.args == (str(without.__cause__),)


def errors_of_topics(error: native.KafkaError) -> tuple[Any, bool]:
    """Return the argument of the error of aiokafka, and whether its text is that of `error`."""
    translated = pickle.loads(pickle.dumps(error_mapping.translate(error)))
    return *translated.args, str(translated).endswith(str(error))
